"""Measured points with their rows, prices, provenance and intervals, and the file that keeps them.

The file is versioned JSON. Means that do not follow from its rows are refused: such a file was
edited or damaged.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from pydantic import BaseModel, TypeAdapter

from ecs_plugins.common.checks import check_each, check_kind
from ecs_plugins.common.files import read_text, read_versioned, write_atomically
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.cost import ConfigValue, Dropped, PointKey, Provenance, StrategyPoint
from ecs_plugins.frontier.measurements import (
    FEW_QUESTIONS,
    Bootstrap,
    Interval,
    Measurements,
    wilson,
)
from ecs_plugins.frontier.prices import PriceVector

PARTS = ("points", "measurements", "prices", "provenance", "dropped")
"""Names of the parts of a frontier."""

FORMAT = "ecs_plugins.frontier"
VERSION = 1


class Latency(NamedTuple):
    """Seconds of a query in the calibration."""

    p50: float
    p95: float


def check_choice(routable: Iterable[PointKey], why: str = "") -> None:
    """Refuse a choice between fewer than two points; ``why`` ends the message."""
    keys = set(routable)
    if len(keys) < 2:
        strategies = sorted(strategy for strategy, _ in keys)
        names = ", ".join(strategies) or "none"
        message = (
            "a frontier chooses between strategies and needs at least two that can be "
            f"routed, got {names}; measure another one as well. {why}"
        )
        raise InvalidInputError(message.strip())


class MeasuredPoints:
    """Points with their measurements.

    Args:
        points: At least two that can be routed; no strategy and configuration twice.
        measurements: The rows of the points, for intervals and prices; in their order.
        prices: Prices of the costs of the points.
        provenance: Where the points come from.
        dropped: Configurations that calibration gave up.

    Attributes:
        unit: Unit of the costs.

    Raises:
        InvalidInputError: Fewer than two routable points, or a duplicate.
    """

    def __init__(
        self,
        points: Iterable[StrategyPoint],
        *,
        measurements: Measurements | None = None,
        prices: PriceVector | None = None,
        provenance: Provenance | None = None,
        dropped: Sequence[Dropped] = (),
    ) -> None:
        self.points = check_each("points", points, StrategyPoint)
        if prices is not None:
            check_kind("prices", prices, PriceVector)
        self.measurements = measurements
        self.prices = prices or PriceVector()
        self.unit = self.prices.unit
        self.provenance = provenance or Provenance()
        self.dropped = tuple(dropped)
        self.routable = tuple(point for point in self.points if point.routable)
        self._rows = {point.key: row for row, point in enumerate(self.points)}
        counts = Counter(point.key for point in self.points)
        repeated = [key for key, count in counts.items() if count > 1]
        if repeated:
            strategy, config = repeated[0]
            raise InvalidInputError(
                f"{strategy} {config} is given twice; average repeated measurements first"
            )
        check_choice(point.key for point in self.routable)

    @classmethod
    def from_measurements(cls, measurements: Measurements, **parts: Any) -> Self:
        """Return the frontier of measured rows, whose means are its points."""
        points = measurements.points(parts.get("prices"))
        return cls(points, measurements=measurements, **parts)

    def parts(self, **changes: Any) -> dict[str, Any]:
        """Return the constructor's arguments with some changes."""
        return {name: getattr(self, name) for name in PARTS} | changes

    def with_points(self, points: Iterable[StrategyPoint], **changes: Any) -> Self:
        """Return a copy with other points and other changes."""
        return type(self)(**self.parts(points=points, **changes))

    def priced(self, prices: PriceVector) -> Self:
        """Return the measurements in another unit.

        Raises:
            InvalidInputError: A point has no usage to price.
        """
        check_kind("prices", prices, PriceVector)
        if self.measurements is None:
            points = tuple(point.priced(prices) for point in self.points)
        else:
            points = self.measurements.points(prices)
        return self.with_points(points, prices=prices)

    def only(self, names: Iterable[str]) -> Self:
        """Return the measurements of the points that have chains.

        ``names`` are labels (``"bm25(depth=4)"``) or strategies (``"bm25"``, all configurations).

        Raises:
            InvalidInputError: A name was not measured, or fewer than two routable points are
                left.
        """
        wanted = set(check_each("names", names, str))
        unknown = set(wanted)
        points = []
        for point in self.points:
            own_names = {point.label, point.strategy}
            unknown -= own_names
            if own_names & wanted:
                points.append(point)
        if unknown:
            raise self._not_measured(", ".join(sorted(unknown)))
        kept = None
        if self.measurements is not None:
            rows = [self.row(point) for point in points]
            kept = self.measurements.select(rows)
        return self.with_points(points, measurements=kept)

    def get(self, strategy: str, **config: ConfigValue) -> StrategyPoint:
        """Return the point of a strategy and configuration.

        Raises:
            InvalidInputError: It was not measured.
        """
        for point in self.points:
            if point.strategy == strategy and dict(point.config) == config:
                return point
        raise self._not_measured(f"{strategy} {config}")

    def _not_measured(self, what: str) -> InvalidInputError:
        labels = ", ".join(point.label for point in self.points)
        return InvalidInputError(f"{what} was not measured; measured are {labels}")

    def row(self, point: StrategyPoint) -> int:
        """Return the row of a point in `points` and in the measurements."""
        return self._rows[point.key]

    @cached_property
    def lapsing(self) -> Mapping[PointKey, float]:
        """Return the part of stage 1 that a prompt cache forgets, if any."""
        if not self.prices.caches:
            return {}
        written = {}
        for point in self.points:
            if point.usage is None:
                continue
            entry = float(self.prices.lapsing(point.usage))
            cost = min(point.stage1, entry)
            if cost > 0:
                written[point.key] = cost
        return written

    @property
    def cache_seconds(self) -> float | None:
        """Return the life of an entry of the prompt cache in seconds; None without such a cache."""
        return self.prices.answer.cache_seconds if self.lapsing else None

    @cached_property
    def bootstrap(self) -> Bootstrap:
        """Return paired resamples of the measurements.

        Raises:
            InvalidInputError: There are points alone.
        """
        if self.measurements is None:
            raise InvalidInputError(
                "this frontier holds means only; intervals need the measurements that "
                "calibrate() keeps"
            )
        return Bootstrap(self.measurements, self.prices)

    def f1_interval(self, point: StrategyPoint) -> Interval:
        """Return the bootstrap interval of a point's F1.

        It is Wilson's, which is never too narrow for values in [0, 1], where there are few
        questions, all scored alike, or no rows. One question without its rows has none.
        """
        if self.measurements is None and point.n == 1:
            return Interval(point.f1, point.f1)
        if self.measurements is not None and point.n >= FEW_QUESTIONS:
            interval = self.bootstrap.f1_interval(self.row(point))
            if interval.low < interval.high:
                return interval
        return wilson(point)

    def latency(self, point: StrategyPoint) -> Latency | None:
        """Return seconds of a query, p50 and p95; None without measurements."""
        if not self._latencies:
            return None
        return self._latencies[self.row(point)]

    @cached_property
    def _latencies(self) -> list[Latency]:
        if self.measurements is None:
            return []
        quantiles = np.quantile(self.measurements.query_seconds, [0.5, 0.95], axis=1)
        pairs = quantiles.T.tolist()
        return [Latency(p50, p95) for p50, p95 in pairs]

    @property
    def caution(self) -> str:
        """Return a warning if there are too few questions to compare; else an empty text."""
        questions = max(point.n for point in self.points)
        counted = questions > 1 or self.measurements is not None
        if questions >= FEW_QUESTIONS or not counted:
            return ""
        return (
            f"measured on {questions} questions, fewer than {FEW_QUESTIONS}: too few to compare F1"
        )

    # The file.

    def to_json(self) -> str:
        """Return the frontier as indented JSON text, with all measured rows on one line."""
        head = _File.model_construct(**self.parts()).model_dump(mode="json")
        rows = head.pop("measurements")
        text = json.dumps(head, indent=1, allow_nan=False)
        numbers = json.dumps(rows, separators=(",", ":"), allow_nan=False)
        return f'{text[:-2]},\n "measurements": {numbers}\n}}\n'

    @classmethod
    def from_json(cls, text: str, *, source: str = "the artefact") -> Self:
        """Return the frontier that `to_json` wrote, checked.

        Raises:
            InvalidInputError: Not JSON, not a frontier, of another version, a field missing or of
                the wrong type (named), a value out of range, or means that do not follow from the
                measurements.
        """
        file = read_versioned(
            TypeAdapter(_File),
            check_kind(source, text, str),
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
        return cls(**parts)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the artefact; a file of that name is replaced whole or not at all.

        Raises:
            StorageError: It cannot be written.
        """
        return write_atomically(path, self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read an artefact.

        Raises:
            StorageError: It cannot be read.
            InvalidInputError: It is not a valid artefact; see `from_json`.
        """
        return cls.from_json(read_text(path, "the frontier"), source=str(path))


class _File(BaseModel):
    """The artefact; unknown fields are ignored."""

    format: str = FORMAT
    version: int = VERSION
    provenance: Provenance
    prices: PriceVector
    points: tuple[StrategyPoint, ...]
    dropped: tuple[Dropped, ...]
    measurements: Measurements | None = None


def _agree(points: Sequence[StrategyPoint], means: Sequence[StrategyPoint]) -> bool:
    """Return True if points are the means of their rows."""
    names = [(point.key, point.routable) for point in points]
    if names != [(point.key, point.routable) for point in means]:
        return False
    stored, computed = ([(p.f1, p.stage1, p.stage2) for p in each] for each in (points, means))
    return np.allclose(stored, computed, rtol=1e-6, atol=1e-9)
