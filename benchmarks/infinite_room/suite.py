"""Many policies on many streams: the comparison behind the tables, and its JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field

import numpy as np

from benchmarks.infinite_room.simulation import (
    Run,
    ablations,
    entropic_configs,
    policies,
    readings,
    simulate,
)
from benchmarks.infinite_room.worlds import World
from benchmarks.intervals import student_half_width


@dataclass(frozen=True, slots=True)
class Task:
    """Stream and the policies that run on it."""

    world: str
    settings: World
    seed: int
    policies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """Policy in one world over several seeds: mean, standard deviation, 95 % interval."""

    mean: float
    std: float
    half_width: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Cell:
        """Summarise one value per seed; the interval is Student's t over seeds."""
        sample = np.asarray(values, dtype=np.float64)
        if sample.size < 2:
            return cls(float(sample.mean()), 0.0, math.nan)
        return cls(float(sample.mean()), float(sample.std(ddof=1)), student_half_width(sample))


@dataclass(slots=True)
class Results:
    """All runs: ``runs[world][policy]`` lists one :class:`Run` per seed, in seed order."""

    worlds: dict[str, World]
    seeds: tuple[int, ...]
    runs: dict[str, dict[str, list[Run]]] = field(default_factory=dict)

    def cell(self, world: str, policy: str, metric: str = "expected") -> Cell:
        """Summarise a metric of :class:`Run`."""
        return Cell.of([getattr(run, metric) for run in self.runs[world][policy]])

    def ratio(self, world: str, policy: str) -> float:
        """Return the mean over seeds of the expected survival relative to the oracle's."""
        pairs = zip(self.runs[world][policy], self.runs[world]["Oracle"], strict=True)
        return float(np.mean([run.expected / ceiling.expected for run, ceiling in pairs]))

    def best_baseline(self, world: str) -> tuple[str, float]:
        """Return the classical policy of highest expected survival, and that survival."""
        scores = {
            name: self.cell(world, name).mean
            for name in self.runs[world]
            if name != "Oracle" and not name.startswith("Entropic")
        }
        best = max(scores, key=lambda name: scores[name])
        return best, scores[best]

    def to_json(self) -> dict[str, object]:
        """Return everything, curves included, as plain JSON types."""
        return {
            "seeds": list(self.seeds),
            "worlds": {key: asdict(world) for key, world in self.worlds.items()},
            "configs": {
                name: {
                    "version": variant.config.version,
                    **variant.config.to_json(),
                    "contradiction": variant.contradiction,
                    "merges": variant.merges,
                }
                for name, variant in (entropic_configs() | readings() | ablations()).items()
            },
            "runs": {
                world: {policy: [asdict(run) for run in runs] for policy, runs in table.items()}
                for world, table in self.runs.items()
            },
        }


def run_suite(
    worlds: dict[str, World],
    names: Sequence[str],
    seeds: Sequence[int],
    *,
    extra: Mapping[str, Sequence[str]] | None = None,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Results:
    """Run every policy on every stream.

    Args:
        worlds: Worlds by key.
        names: Policies to run in every world.
        seeds: One stream per world and seed.
        extra: Further policies for some of the worlds, by key.
        workers: Processes.
        progress: Called with (streams done, streams in all).
    """
    further = extra or {}
    tasks = [
        Task(key, world, seed, (*names, *further.get(key, ())))
        for seed in seeds
        for key, world in worlds.items()
    ]
    outcomes: dict[tuple[str, int], dict[str, Run]] = {}
    for done, (task, runs) in enumerate(_executed(tasks, workers), start=1):
        outcomes[task.world, task.seed] = runs
        if progress is not None:
            progress(done, len(tasks))
    results = Results(worlds, tuple(seeds))
    for task in tasks:
        table = results.runs.setdefault(task.world, {})
        for name in task.policies:
            table.setdefault(name, []).append(outcomes[task.world, task.seed][name])
    return results


def _executed(tasks: Sequence[Task], workers: int) -> Iterator[tuple[Task, dict[str, Run]]]:
    if workers <= 1:
        for task in tasks:
            yield task, _execute(task)
        return
    with ProcessPoolExecutor(workers) as pool:
        futures = {pool.submit(_execute, task): task for task in tasks}
        for future in as_completed(futures):
            yield futures[future], future.result()


def _execute(task: Task) -> dict[str, Run]:
    table = policies()
    return {name: simulate(task.settings, task.seed, table[name]) for name in task.policies}
