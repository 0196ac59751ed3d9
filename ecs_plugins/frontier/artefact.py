"""The file that keeps a frontier: versioned JSON of points, rows, prices and provenance.

Means that do not follow from the rows are refused: such a file was edited or damaged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from pydantic import BaseModel, TypeAdapter

from ecs_plugins.common.files import read_versioned
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.cost import Dropped, Provenance, StrategyPoint
from ecs_plugins.frontier.measured import PARTS
from ecs_plugins.frontier.measurements import Measurements
from ecs_plugins.frontier.prices import PriceVector

FORMAT = "ecs_plugins.frontier"
VERSION = 1
_close = partial(np.allclose, rtol=1e-6, atol=1e-9)


class _File(BaseModel):
    """Base class of checked records; unknown fields are ignored."""

    format: str = FORMAT
    version: int = VERSION
    provenance: Provenance
    prices: PriceVector
    points: tuple[StrategyPoint, ...]
    dropped: tuple[Dropped, ...]
    measurements: Measurements | None = None


def written(parts: Mapping[str, Any]) -> str:
    """Return the parts of a frontier as JSON text.

    What a person reads is indented; the rows are many numbers and stand on one line.
    """
    head = _File.model_construct(**parts).model_dump(mode="json")
    rows = head.pop("measurements")
    text = json.dumps(head, indent=1, allow_nan=False)
    numbers = json.dumps(rows, separators=(",", ":"), allow_nan=False)
    return f'{text[:-2]},\n "measurements": {numbers}\n}}\n'


def read(text: str, source: str) -> dict[str, Any]:
    """Return the parts of a frontier behind `written`, checked.

    Raises:
        InvalidInputError: Not JSON, not a frontier, of another version, a field missing or of
            the wrong type (named), a value out of range, or means that do not follow from the
            measurements.
    """
    file = read_versioned(
        TypeAdapter(_File),
        text,
        FORMAT,
        VERSION,
        source=source,
        otherwise="is not a frontier; make one with: ecs-plugins calibrate --out frontier.json",
        again="calibrate again",
    )
    parts = {name: getattr(file, name) for name in PARTS}
    if file.measurements is not None:
        means = file.measurements.points(file.prices)
        if not _agree(file.points, means):
            raise InvalidInputError(
                f"{source}: a point does not follow from the measurements in the same file; "
                "it was edited or damaged, so calibrate again"
            )
        parts["points"] = means
    return parts


def _agree(points: Sequence[StrategyPoint], means: Sequence[StrategyPoint]) -> bool:
    """Return True if points are the means of their rows."""
    names = [(point.key, point.routable) for point in points]
    if names != [(point.key, point.routable) for point in means]:
        return False
    stored = [(point.f1, point.stage1, point.stage2) for point in points]
    computed = [(point.f1, point.stage1, point.stage2) for point in means]
    return bool(_close(stored, computed))
