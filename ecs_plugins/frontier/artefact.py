"""The files of a frontier: the artefact, and price lists.

An artefact is versioned JSON that is validated before it is believed. It holds the points, the
rows behind them (so that intervals and prices can be recomputed), the prices and the provenance.
Means that do not follow from the rows are refused: such a file was edited or damaged.

A price list has prices per million tokens, as providers quote them:

    {"unit": "USD", "answer": {"input": 0.75, "cached_input": 0.075, "output": 4.5},
     "compressor": {"input": 0.1, "output": 0.4}, "scorer": 0.0,
     "prepare_factor": 0.5, "per_second": 0.0}

Only ``unit`` and ``answer`` are needed. The compressor costs what the answering model costs and
the local scorer nothing, unless the list says otherwise.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from ecs_plugins.common.config import Config
from ecs_plugins.common.files import read_text
from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.frontier.cost import ModelPrice, PriceVector, Usage
from ecs_plugins.frontier.measurements import Arm, Array, MeasuredPoints, Measurements
from ecs_plugins.frontier.points import ConfigValue, Dropped, Provenance, StrategyPoint
from ecs_plugins.tokens import Role, Stage

FORMAT = "ecs_plugins.frontier"
VERSION = 1
T = TypeVar("T")
_Table = list[list[float]]


class _Stored(BaseModel):
    """A part of the file; every value is checked, and what is unknown is left alone."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _Head(_Stored):
    format: str
    version: int


class _Usage(_Stored):
    tokens: dict[Stage, dict[Role, float]]
    shared_input: float
    prepare_seconds: float
    query_seconds: float


class _Point(_Stored):
    strategy: str
    config: dict[str, ConfigValue]
    f1: float
    stage1: float
    stage2: float
    n: int
    f1_se: float
    stage1_se: float
    stage2_se: float
    em: float | None
    seconds: float
    routable: bool
    usage: _Usage | None = None


class _Rows(_Stored):
    arms: tuple[Arm, ...]
    questions: tuple[str, ...]
    contexts: tuple[str, ...]
    f1: _Table
    em: _Table
    tokens: dict[Stage, dict[Role, _Table]]
    shared_input: _Table
    prepare_seconds: _Table
    query_seconds: _Table


class _File(_Stored):
    provenance: Provenance
    prices: PriceVector
    points: tuple[_Point, ...]
    dropped: tuple[Dropped, ...]
    measurements: _Rows | None = None


def dumps(measured: MeasuredPoints, *, with_rows: bool = True) -> str:
    """The artefact as JSON text."""
    head = {
        "format": FORMAT,
        "version": VERSION,
        "provenance": asdict(measured.provenance),
        "prices": asdict(measured.prices),
        "points": [_point_json(point) for point in measured.points],
        "dropped": [asdict(dropped) for dropped in measured.dropped],
    }
    rows = measured.measurements if with_rows else None
    # What a person reads is indented; the rows are many numbers and stand on one line.
    text = json.dumps(head, indent=1, allow_nan=False)
    numbers = json.dumps(rows and _rows_json(rows), separators=(",", ":"), allow_nan=False)
    return f'{text[:-2]},\n "measurements": {numbers}\n}}\n'


def _point_json(point: StrategyPoint) -> dict[str, object]:
    out = {name: getattr(point, name) for name in _Point.model_fields if name != "usage"}
    if point.usage is not None:
        usage = {name: getattr(point.usage, name) for name in _Usage.model_fields}
        out["usage"] = usage | {"tokens": _nested(point.usage.tokens)}
    return out


def _rows_json(rows: Measurements) -> dict[str, object]:
    out = {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name in _Rows.model_fields
        if (value := getattr(rows, name)) is not None
    }
    tables = {account: values.tolist() for account, values in rows.tokens.items()}
    return out | {"arms": [asdict(arm) for arm in rows.arms], "tokens": _nested(tables)}


def _nested(accounts: Mapping[tuple[Stage, Role], T]) -> dict[str, dict[str, T]]:
    out: dict[str, dict[str, T]] = {}
    for (stage, role), value in accounts.items():
        out.setdefault(str(stage), {})[str(role)] = value
    return out


def _flat(accounts: Mapping[Stage, Mapping[Role, T]]) -> dict[tuple[Stage, Role], T]:
    return {(stage, role): v for stage, roles in accounts.items() for role, v in roles.items()}


def loads(text: str, source: str) -> MeasuredPoints:
    """Read an artefact and check it; errors name ``source`` and the place.

    Raises:
        InvalidInputError: See `EfficiencyFrontier.from_json`.
    """
    try:
        head = _Head.model_validate_json(text)
    except ValidationError as error:
        if error.errors()[0]["type"] == "json_invalid":
            raise InvalidInputError(
                f"{source} is not valid JSON: {error.errors()[0]['msg']}; was it cut short?"
            ) from error
        head = _Head(format="", version=0)
    if head.format != FORMAT:
        raise InvalidInputError(
            f"{source} is not a frontier; make one with: ecs-plugins calibrate --out frontier.json"
        )
    if head.version > VERSION:
        raise InvalidInputError(
            f"{source} has version {head.version}, newer than the {VERSION} that this package "
            "reads; upgrade ecs-plugins, or calibrate again"
        )
    try:
        file = _File.model_validate_json(text)
        rows = None if file.measurements is None else _rows(file.measurements)
        points = tuple(_point(point) for point in file.points)
        means = points if rows is None else rows.points(file.prices)
        if not _agree(points, means):
            raise InvalidInputError(
                "a point does not follow from the measurements in the same file; it was edited "
                "or damaged, so calibrate again"
            )
        return MeasuredPoints(
            means,
            measurements=rows,
            prices=file.prices,
            provenance=file.provenance,
            dropped=file.dropped,
        )
    except ValidationError as error:
        raise InvalidInputError(f"{source}: {_first_error(error)}; calibrate again") from error
    except InvalidInputError as error:
        raise InvalidInputError(f"{source}: {error}") from error


def _point(stored: _Point) -> StrategyPoint:
    values: dict[str, Any] = dict(stored)
    if stored.usage is not None:
        usage: dict[str, Any] = dict(stored.usage)
        values["usage"] = Usage(**usage | {"tokens": _flat(stored.usage.tokens)})
    return StrategyPoint(**values)


def _rows(stored: _Rows) -> Measurements:
    def array(table: _Table) -> Array:
        try:
            return np.array(table, dtype=np.float64)
        except ValueError as error:
            raise InvalidInputError("measurements must be rows of one length") from error

    arrays = ("f1", "em", "shared_input", "prepare_seconds", "query_seconds")
    return Measurements(
        arms=stored.arms,
        questions=stored.questions,
        contexts=stored.contexts,
        tokens={account: array(table) for account, table in _flat(stored.tokens).items()},
        **{name: array(getattr(stored, name)) for name in arrays},
    )


def _agree(points: tuple[StrategyPoint, ...], means: tuple[StrategyPoint, ...]) -> bool:
    stated = {point.key: point for point in points}
    return len(stated) == len(means) and all(
        (point := stated.get(mean.key)) is not None
        and point.routable == mean.routable
        and all(
            math.isclose(getattr(point, name), getattr(mean, name), rel_tol=1e-6, abs_tol=1e-9)
            for name in ("f1", "stage1", "stage2")
        )
        for mean in means
    )


def _first_error(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else str(first["msg"])


class _QuotedModel(Config):
    input: float
    output: float
    cached_input: float | None = None


class _QuotedPrices(Config):
    unit: str
    answer: _QuotedModel
    compressor: _QuotedModel | None = None
    scorer: float = 0.0
    prepare_factor: float = 1.0
    per_second: float = 0.0


def read_prices(path: str | os.PathLike[str]) -> PriceVector:
    """Read a price list.

    Raises:
        StorageError: The file cannot be read.
        ConfigurationError: It is no price list; says what is wrong.
    """
    text = read_text(path, "the price list")
    try:
        quoted = _QuotedPrices.from_json(json.loads(text))
    except ValueError as error:
        raise ConfigurationError(f"{path} is no price list: {error}") from error
    compressor = quoted.compressor
    return PriceVector(
        unit=quoted.unit,
        answer=ModelPrice.per_million(**dict(quoted.answer)),
        compressor=None if compressor is None else ModelPrice.per_million(**dict(compressor)),
        scorer=quoted.scorer / 1e6,
        prepare_factor=quoted.prepare_factor,
        per_second=quoted.per_second,
    )
