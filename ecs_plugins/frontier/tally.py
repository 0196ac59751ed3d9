"""The forecast from a tally of a ledger: how many contexts have come how far, and when they ended.

Contexts that have ended are tallied by how long ago, so that a change of traffic shows in those
that have ended last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ecs_plugins.frontier.forecast import (
    Gaps,
    Histories,
    History,
    ReuseModel,
    fit_carefully,
    fit_gaps,
)

AGES = (1, 2, 4, 8, 16)
"""Between how many times the idle time ago contexts that have ended are counted together."""

_AGE = " ".join(f"WHEN last_seen >= ? THEN {age}" for age in range(len(AGES)))
_TALLY = (
    f"SELECT queries, lapses, run, CASE {_AGE} ELSE {len(AGES)} END, last_seen < ?, count(*) "
    "FROM contexts WHERE namespace = ? GROUP BY 1, 2, 3, 4, 5"
)
_RUNS = "SELECT queries, sum(times) FROM runs WHERE namespace = ? GROUP BY 1"
_FOREVER = 1e18  # seconds that no gap is longer than
_RECENT = 0.5  # of all contexts: those in which a change of traffic is looked for


class Tallied(NamedTuple):
    """Some contexts that have come equally far.

    Attributes:
        queries: Of each.
        lapses: How often a prompt cache has lapsed between them.
        run: Queries since it did.
        age: 0 while they may go on; else the place in `AGES` of when they were last asked, from 1.
        has_lapsed: Whether their cache has lapsed since the last query.
        contexts: How many they are.
    """

    queries: int
    lapses: int
    run: int
    age: int
    has_lapsed: bool
    contexts: int


class Times(NamedTuple):
    """What makes contexts and entries end, in seconds.

    Attributes:
        now: Unix time.
        idle: Without a query, until a context counts as ended.
        life: Of an entry of a prompt cache; None where nothing lapses.
    """

    now: float
    idle: float
    life: float | None


def read_model(
    run: Callable[[str, tuple[object, ...]], Sequence[Any]], namespace: str, times: Times
) -> ReuseModel:
    """The forecast of a namespace, from the tables of its ledger.

    Args:
        run: Runs a statement with its values.
        namespace: As the tables have it.
        times: What has ended by now.

    Raises:
        StorageError: They cannot be read.
    """
    since = [times.now - age * times.idle for age in AGES]
    life = _FOREVER if times.life is None else times.life
    rows = run(_TALLY, (*since, times.now - life, namespace))
    tally = [Tallied(*row) for row in rows]
    runs = run(_RUNS, (namespace,))
    return model_of(tally, runs, with_runs=times.life is not None)


def model_of(
    tally: Sequence[Tallied], runs: Iterable[tuple[int, int]], *, with_runs: bool
) -> ReuseModel:
    """The forecast of a tally; ``runs`` says how often a run of so many queries has ended."""
    ended: Counter[int] = Counter()
    alive: Counter[int] = Counter()
    whole: Counter[History] = Counter()
    for some in tally:
        counted = ended if some.age else alive
        counted[some.queries] += some.contexts
        whole[_history(some)] += some.contexts
    model = replace(
        fit_carefully(ended, alive),
        histories=tuple(sorted(whole.items())),
        recent=_recent(tally, _RECENT * whole.total()),
    )
    if with_runs:
        model = replace(model, runs=_runs_of(tally, runs))
    return model


def _history(some: Tallied) -> History:
    return History(some.queries, some.lapses, some.run)


def _recent(tally: Sequence[Tallied], contexts: float) -> Histories:
    """So many contexts: those that ended last, and where these are too few, others that go on.

    Of an age that would be too many, a part of each history.
    """
    newest = [*range(1, len(AGES) + 1), 0]
    by_age: dict[int, list[Tallied]] = {age: [] for age in newest}
    for some in tally:
        by_age[some.age].append(some)
    recent: dict[History, float] = {}
    left = contexts
    for age in newest:
        aged = sum(some.contexts for some in by_age[age])
        if not aged:
            continue
        share = min(1.0, left / aged)
        for some in by_age[age]:
            history = _history(some)
            recent[history] = recent.get(history, 0.0) + share * some.contexts
        left -= share * aged
    return tuple(sorted(recent.items()))


def _runs_of(tally: Iterable[Tallied], runs: Iterable[tuple[int, int]]) -> ReuseModel:
    """The model of the queries between two lapses of a cache."""
    gaps: Counter[Gaps] = Counter()
    lengths: Counter[int] = Counter()
    for some in tally:
        lengths[some.run] += some.contexts
        kept = some.queries - 1 - some.lapses
        stops = some.lapses + some.has_lapsed
        gaps[Gaps(stops, kept)] += some.contexts
    for queries, times in runs:
        lengths[queries] += int(times)
    a, b = fit_gaps(gaps)
    counted = []
    for queries, times in sorted(lengths.items()):
        counted.append((History(queries, 0, queries), float(times)))
    return ReuseModel(a, b, lengths.total(), histories=tuple(counted))
