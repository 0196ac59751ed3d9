"""``python -m benchmarks route``: latency of a decision with a ledger of many contexts.

The ledger is filled in bulk; then contexts drawn at random are asked about, one in ten of them
new, and every query is routed and counted.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ecs_plugins.frontier import ReuseLedger

_AT_ONCE = 20_000  # rows of a transaction
_NEW = 0.1  # of the queries
_CONTEXT = (
    "INSERT INTO contexts (namespace, context, game, queries, run, last_seen) "
    "VALUES ('[]', ?, '', ?, ?, ?)"
)


def route(
    contexts: Annotated[int, typer.Option(min=1, help="In the ledger.")] = 1_000_000,
    queries: Annotated[int, typer.Option(min=10, help="That are timed.")] = 5_000,
    ledger: Annotated[
        str | None,
        typer.Option(
            help='Address of an empty PostgreSQL schema, or "private" for a server of its own; '
            "by default a new file.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """The time that `Router.route` takes, without a ledger and with one."""
    from benchmarks.deployment.month import PAPER_POINTS
    from benchmarks.private_server import place_of
    from ecs_plugins.frontier import EfficiencyFrontier, ReuseLedger, Router, RouterConfig
    from ecs_plugins.storage.addresses import is_address

    frontier = EfficiencyFrontier(PAPER_POINTS)
    config = RouterConfig(target_f1=0.78)
    alone = Router(frontier, config)
    _report("without a ledger", _times(lambda _: alone.route(), ["a"] * queries))
    with place_of(ledger) as place, ReuseLedger(place) as counted:
        began = time.perf_counter()
        _fill(counted, contexts)
        filled = time.perf_counter()
        typer.echo(f"{contexts:,} contexts: filled in {filled - began:.1f} s")
        router = Router(frontier, config, ledger=counted)
        names = _asked(contexts, queries)
        if is_address(place):
            _report("a bare round trip to the server", _round_trips(str(place), names))
        _report("with it", _times(lambda name: router.route(context_id=name), names))


def _round_trips(address: str, names: Sequence[str]) -> Iterator[float]:
    """Return the times of a bare query to the server, as a lower bound."""
    import psycopg

    from ecs_plugins.storage.addresses import parsed

    server, _ = parsed(address)
    with psycopg.connect(server, autocommit=True) as connection:
        yield from _times(lambda name: connection.execute("SELECT %s", (name,)).fetchone(), names)


def _fill(ledger: ReuseLedger, contexts: int) -> None:
    """Contexts that were last asked about within a month, most of them a few times."""
    rng = random.Random(42)
    now = time.time()
    database = ledger._database
    for start in range(0, contexts, _AT_ONCE):
        rows = []
        for number in range(start, min(contexts, start + _AT_ONCE)):
            asked = min(1000, int(rng.paretovariate(1.2)))
            first = now - rng.uniform(0, 29 * 86_400)
            rows.append((f"context {number}", asked, asked, first))
        with database.write(scope=("[]",)) as connection:
            connection.executemany(_CONTEXT, rows)


def _asked(contexts: int, queries: int) -> list[str]:
    rng = random.Random(7)
    names = []
    for number in range(queries):
        is_new = rng.random() < _NEW
        names.append(f"new {number}" if is_new else f"context {rng.randrange(contexts)}")
    return names


def _times(work: Callable[[str], object], names: Sequence[str]) -> Iterator[float]:
    """Microseconds of each, after some that warm it up."""
    for name in names[:100]:
        work(name)
    for name in names:
        began = time.perf_counter()
        work(name)
        yield (time.perf_counter() - began) * 1e6


def _report(what: str, microseconds: Iterator[float]) -> None:
    times = list(microseconds)
    middle = quantile(times, 0.5)
    tail = quantile(times, 0.99)
    typer.echo(f"{what}: p50 {middle:.0f} us, p99 {tail:.0f} us, n = {len(times):,}")


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which a share of them lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
