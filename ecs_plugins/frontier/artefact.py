"""The artefact: a frontier as versioned JSON that is validated before it is believed.

It holds the points, the rows behind them (so that intervals and prices can be recomputed), the
prices and the provenance. Means that do not follow from the rows are refused: such a file was
edited or damaged.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar, cast

import numpy as np

from ecs_plugins.common.files import read_text
from ecs_plugins.common.files import write_atomically as write_atomically
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.cost import ModelPrice, PriceVector, Usage
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.measurements import Arm, Array, Measurements
from ecs_plugins.frontier.points import ConfigValue, StrategyPoint
from ecs_plugins.frontier.provenance import Dropped, Provenance
from ecs_plugins.tokens import Role, Stage

FORMAT = "ecs_plugins.frontier"
VERSION = 1
T = TypeVar("T")


def to_json(frontier: EfficiencyFrontier, *, measurements: bool = True) -> str:
    """The frontier as JSON text; without ``measurements`` it is small and has no intervals."""
    rows = frontier.measurements if measurements else None
    data = {
        "format": FORMAT,
        "version": VERSION,
        "provenance": _plain(asdict(frontier.provenance)),
        "prices": _plain(asdict(frontier.prices)),
        "points": [_point(point) for point in frontier.points],
        "dropped": [_plain(asdict(dropped)) for dropped in frontier.dropped],
    }
    # What a person reads is indented; the rows are many numbers and stand on one line.
    head = json.dumps(data, indent=1, allow_nan=False)
    numbers = json.dumps(rows and _rows(rows), separators=(",", ":"), allow_nan=False)
    return f'{head[:-2]},\n "measurements": {numbers}\n}}\n'


def save(
    frontier: EfficiencyFrontier, path: str | os.PathLike[str], *, measurements: bool = True
) -> Path:
    """Write the artefact; a file of that name is replaced whole or not at all.

    Raises:
        StorageError: It cannot be written.
    """
    return write_atomically(Path(path), to_json(frontier, measurements=measurements))


def load(path: str | os.PathLike[str]) -> EfficiencyFrontier:
    """Read an artefact.

    Raises:
        StorageError: It cannot be read.
        InvalidInputError: It is not a valid artefact; see `from_json`.
    """
    return from_json(read_text(path, "the frontier"), source=str(path))


def from_json(text: str, *, source: str = "the artefact") -> EfficiencyFrontier:
    """Rebuild a frontier and check it.

    Raises:
        InvalidInputError: Not JSON, not a frontier, of a newer version, a field missing or of
            the wrong type (named), a value out of range, or means that do not follow from the
            measurements.
    """
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidInputError(
            f"{source} is not valid JSON (line {error.lineno}): {error.msg}; was it cut short?"
        ) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InvalidInputError(
            f"{source} is not a frontier; make one with: ecs-plugins calibrate --out frontier.json"
        )
    node = _Node(data, source)
    version = node.get("version", int)
    if version > VERSION:
        raise InvalidInputError(
            f"{source} has version {version}, newer than the {VERSION} that this package "
            "reads; upgrade ecs-plugins, or calibrate again"
        )
    return _frontier(node)


class _Node:
    """One JSON object, with the path to it for error messages."""

    def __init__(self, data: object, path: str) -> None:
        if not isinstance(data, dict):
            raise InvalidInputError(f"{path} must be an object, got {type(data).__name__}")
        self.data: dict[str, object] = data
        self.path = path

    def get(self, name: str, kind: type[T] | tuple[type[T], ...]) -> T:
        if name not in self.data:
            raise InvalidInputError(f"{self.path}: the field {name!r} is missing; calibrate again")
        value = self.data[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise InvalidInputError(
                f"{self.path}.{name} has the wrong type {type(value).__name__}; calibrate again"
            )
        return value

    def number(self, name: str) -> float:
        return float(self.get(name, cast("tuple[type[float], ...]", (int, float))))

    def child(self, name: str) -> _Node:
        return _Node(self.get(name, dict), f"{self.path}.{name}")

    def children(self, name: str) -> list[_Node]:
        return [
            _Node(item, f"{self.path}.{name}[{k}]") for k, item in enumerate(self.get(name, list))
        ]

    def has(self, name: str) -> bool:
        return self.data.get(name) is not None


def _plain(data: dict[str, object]) -> dict[str, object]:
    return {
        key: dict(value) if isinstance(value, Mapping) else value for key, value in data.items()
    }


def _point(point: StrategyPoint) -> dict[str, object]:
    out: dict[str, object] = {
        name: getattr(point, name)
        for name in ("strategy", "config", "f1", "stage1", "stage2", "n", "f1_se", "stage1_se")
    }
    out |= {name: getattr(point, name) for name in ("stage2_se", "em", "seconds", "routable")}
    if point.usage is not None:
        usage = point.usage
        out["usage"] = {
            "tokens": _accounts({key: float(value) for key, value in usage.tokens.items()}),
            "shared_input": usage.shared_input,
            "prepare_seconds": usage.prepare_seconds,
            "query_seconds": usage.query_seconds,
        }
    return out


def _accounts(tokens: Mapping[tuple[Stage, Role], T]) -> dict[str, dict[str, T]]:
    out: dict[str, dict[str, T]] = {}
    for (stage, role), value in tokens.items():
        out.setdefault(str(stage), {})[str(role)] = value
    return out


def _rows(rows: Measurements) -> dict[str, object]:
    def plain(values: Array | None) -> list[list[float]]:
        assert values is not None
        return cast("list[list[float]]", values.tolist())

    return {
        "arms": [
            {"strategy": arm.strategy, "config": dict(arm.config), "routable": arm.routable}
            for arm in rows.arms
        ],
        "questions": list(rows.questions),
        "contexts": list(rows.contexts),
        "f1": plain(rows.f1),
        "em": plain(rows.em),
        "tokens": _accounts({account: plain(values) for account, values in rows.tokens.items()}),
        "shared_input": plain(rows.shared_input),
        "prepare_seconds": plain(rows.prepare_seconds),
        "query_seconds": plain(rows.query_seconds),
    }


def _frontier(node: _Node) -> EfficiencyFrontier:
    try:
        prices = _read_prices(node.child("prices"))
        provenance = _read_provenance(node.child("provenance"))
        points = tuple(_read_point(child) for child in node.children("points"))
        rows = _read_rows(node.child("measurements")) if node.has("measurements") else None
        dropped = tuple(
            Dropped(
                child.get("strategy", str),
                _config(child),
                child.get("questions", int),
                child.get("reason", str),
            )
            for child in node.children("dropped")
        )
        if rows is not None:
            points = _agreeing(points, rows.points(prices), node.path)
        return EfficiencyFrontier(
            points, measurements=rows, prices=prices, provenance=provenance, dropped=dropped
        )
    except InvalidInputError as error:
        if str(error).startswith(node.path):
            raise
        raise InvalidInputError(f"{node.path}: {error}") from error


def _agreeing(
    points: Sequence[StrategyPoint], means: Sequence[StrategyPoint], source: str
) -> tuple[StrategyPoint, ...]:
    stated = {point.key: point for point in points}
    for mean in means:
        point = stated.get(mean.key)
        if len(stated) != len(means) or point is None or not _alike(point, mean):
            raise InvalidInputError(
                f"{source}: the point {mean.label} does not follow from the measurements in the "
                "same file; it was edited or damaged, so calibrate again"
            )
    return tuple(means)


def _alike(a: StrategyPoint, b: StrategyPoint) -> bool:
    names = ("f1", "stage1", "stage2")
    pairs = ((getattr(a, name), getattr(b, name)) for name in names)
    return a.routable == b.routable and all(
        math.isclose(x, y, rel_tol=1e-6, abs_tol=1e-9) for x, y in pairs
    )


def _config(node: _Node, name: str = "config") -> dict[str, ConfigValue]:
    config = node.child(name).data
    for key, value in config.items():
        if not isinstance(value, str | int | float | bool | None):
            raise InvalidInputError(f"{node.path}.{name}.{key} must be a single value")
    return cast("dict[str, ConfigValue]", config)


def _read_prices(node: _Node) -> PriceVector:
    def model(name: str) -> ModelPrice:
        child = node.child(name)
        cached = child.number("cached_input") if child.has("cached_input") else None
        return ModelPrice(child.number("input"), child.number("output"), cached)

    return PriceVector(
        unit=node.get("unit", str),
        answer=model("answer"),
        compressor=model("compressor") if node.has("compressor") else None,
        scorer=node.number("scorer"),
        prepare_factor=node.number("prepare_factor"),
        per_second=node.number("per_second"),
    )


def _read_provenance(node: _Node) -> Provenance:
    models = node.child("models")
    return Provenance(
        models={name: models.get(name, str) for name in models.data},
        data=node.get("data", str),
        data_hash=node.get("data_hash", str),
        questions=node.get("questions", int),
        created=node.get("created", str),
        package_version=node.get("package_version", str),
        seed=node.get("seed", int),
        settings=_config(node, "settings"),
    )


def _read_point(node: _Node) -> StrategyPoint:
    usage = None
    if node.has("usage"):
        child = node.child("usage")
        accounts = _read_accounts(child.child("tokens"))
        usage = Usage(
            {account: child_node.number(role) for account, (child_node, role) in accounts.items()},
            child.number("shared_input"),
            child.number("prepare_seconds"),
            child.number("query_seconds"),
        )
    numbers = {name: node.number(name) for name in ("f1", "stage1", "stage2", "seconds")}
    errors = {name: node.number(name) for name in ("f1_se", "stage1_se", "stage2_se")}
    return StrategyPoint(
        node.get("strategy", str),
        _config(node),
        n=node.get("n", int),
        em=node.number("em") if node.has("em") else None,
        usage=usage,
        routable=node.get("routable", bool),
        **numbers,
        **errors,
    )


def _read_accounts(node: _Node) -> dict[tuple[Stage, Role], tuple[_Node, str]]:
    out = {}
    for stage in node.data:
        child = node.child(stage)
        for role in child.data:
            try:
                out[(Stage(stage), Role(role))] = (child, role)
            except ValueError as error:
                raise InvalidInputError(f"{child.path}: {error}") from error
    return out


def _read_rows(node: _Node) -> Measurements:
    def array(of: _Node, name: str) -> Array:
        try:
            return np.array(of.get(name, list), dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"{of.path}.{name} must be rows of numbers, all of one length"
            ) from error

    return Measurements(
        arms=tuple(
            Arm(child.get("strategy", str), _config(child), child.get("routable", bool))
            for child in node.children("arms")
        ),
        questions=tuple(str(name) for name in node.get("questions", list)),
        contexts=tuple(str(name) for name in node.get("contexts", list)),
        f1=array(node, "f1"),
        em=array(node, "em"),
        tokens={
            account: array(child, role)
            for account, (child, role) in _read_accounts(node.child("tokens")).items()
        },
        shared_input=array(node, "shared_input"),
        prepare_seconds=array(node, "prepare_seconds"),
        query_seconds=array(node, "query_seconds"),
    )
