"""The file of a frontier: versioned JSON that is validated before it is believed.

It holds the points, the rows behind them (so that intervals and prices can be recomputed), the
prices and the provenance. Means that do not follow from the rows are refused: such a file was
edited or damaged.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from pydantic import BaseModel, ValidationError

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.cost import PriceVector
from ecs_plugins.frontier.measurements import MeasuredPoints, Measurements
from ecs_plugins.frontier.points import Dropped, Provenance, StrategyPoint

FORMAT = "ecs_plugins.frontier"
VERSION = 1


class _File(BaseModel):
    """Every value is checked, and what is unknown is left alone."""

    format: str = FORMAT
    version: int = VERSION
    provenance: Provenance
    prices: PriceVector
    points: tuple[StrategyPoint, ...]
    dropped: tuple[Dropped, ...]
    measurements: Measurements | None = None


def dumps(measured: MeasuredPoints, *, with_rows: bool = True) -> str:
    """The artefact as JSON text."""
    parts = measured.parts() | ({} if with_rows else {"measurements": None})
    head = _File.model_construct(**parts).model_dump(mode="json")
    rows = head.pop("measurements")
    # What a person reads is indented; the rows are many numbers and stand on one line.
    text = json.dumps(head, indent=1, allow_nan=False)
    numbers = json.dumps(rows, separators=(",", ":"), allow_nan=False)
    return f'{text[:-2]},\n "measurements": {numbers}\n}}\n'


def loads(text: str, source: str) -> dict[str, Any]:
    """Read an artefact and check it: the arguments of `MeasuredPoints`.

    Raises:
        InvalidInputError: See `EfficiencyFrontier.from_json`; names ``source`` and the place.
    """
    try:
        head = json.loads(text)
    except ValueError as error:
        raise InvalidInputError(
            f"{source} is not valid JSON: {error}; was it cut short?"
        ) from error
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise InvalidInputError(
            f"{source} is not a frontier; make one with: ecs-plugins calibrate --out frontier.json"
        )
    if head.get("version") != VERSION:
        raise InvalidInputError(
            f"{source} has version {head.get('version')}, not the {VERSION} that this package "
            "reads; upgrade ecs-plugins, or calibrate again"
        )
    try:
        file = _File.model_validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise InvalidInputError(f"{source}: {place}: {first['msg']}; calibrate again") from error
    rows = file.measurements
    means = file.points if rows is None else rows.points(file.prices)
    if not _agree(file.points, means):
        raise InvalidInputError(
            f"{source}: a point does not follow from the measurements in the same file; it was "
            "edited or damaged, so calibrate again"
        )
    parts = {name: getattr(file, name) for name in ("measurements", "prices", "provenance")}
    return {"points": means, "dropped": file.dropped, **parts}


def _agree(points: tuple[StrategyPoint, ...], means: tuple[StrategyPoint, ...]) -> bool:
    named, measured = ([(p.key, p.routable) for p in each] for each in (points, means))
    if named != measured:
        return False
    stated, found = ([(p.f1, p.stage1, p.stage2) for p in each] for each in (points, means))
    return np.allclose(stated, found, rtol=1e-6, atol=1e-9)
