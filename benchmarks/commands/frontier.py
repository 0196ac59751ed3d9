"""``python -m benchmarks frontier``: cost of a routing decision and of a count, as ratios.

A figure in microseconds belongs to a machine; a ratio to what has to be done anyway, measured
in the same run, travels. A decision is compared with a bare dictionary look-up, a count in the
reuse ledger with a bare SQLite upsert in a file of the same settings.
"""

from __future__ import annotations

import json
import platform
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ecs_plugins.frontier.envelope import EfficiencyFrontier

_ROUNDS = 9
_UPSERT = "INSERT INTO t VALUES (?, 1) ON CONFLICT (k) DO UPDATE SET n = n + 1"


def frontier(
    out: Annotated[Path, typer.Option(help="Folder for frontier-bench.json.")],
    points: Annotated[int, typer.Option(min=2, help="Configurations on the frontier.")] = 40,
    decisions: Annotated[int, typer.Option(min=100, help="Decisions per round.")] = 20_000,
    counts: Annotated[int, typer.Option(min=100, help="Counts per round.")] = 2_000,
    writers: Annotated[int, typer.Option(min=1, help="Concurrent writers of the ledger.")] = 8,
) -> None:
    """Router overhead and ledger updates, beside a bare look-up and a bare upsert."""
    from ecs_plugins import __version__
    from ecs_plugins.common.files import write_atomically

    result = {
        "version": __version__,
        "machine": f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}",
        "points": points,
        "decision": _decisions(_made_up(points), decisions),
        "ledger": _ledger(counts, writers),
    }
    path = write_atomically(out / "frontier-bench.json", json.dumps(result, indent=2) + "\n")
    typer.echo(json.dumps(result, indent=2))
    typer.echo(f"wrote {path}")


def _made_up(count: int) -> EfficiencyFrontier:
    """A frontier on which nothing is dominated: the longest search there can be."""
    from ecs_plugins.frontier.cost import StrategyPoint
    from ecs_plugins.frontier.envelope import EfficiencyFrontier

    return EfficiencyFrontier(
        StrategyPoint(
            ("retrieval", "compression")[k % 2],
            {"k": k},
            f1=0.2 + 0.6 * k / count,
            stage1=1500.0 * (k % 2),
            stage2=100.0 * 1.05**k,
        )
        for k in range(count)
    )


def _decisions(frontier: EfficiencyFrontier, count: int) -> dict[str, float]:
    """Microseconds per decision, and ratios to a dictionary look-up."""
    table = {k: object() for k in range(64)}

    def look_up() -> None:
        for k in range(count):
            table[k & 63]

    def cheapest() -> None:
        for k in range(count):
            frontier.decide(reuse=1 + (k & 63), target_f1=0.5)

    def best() -> None:
        for k in range(count):
            frontier.decide(reuse=1 + (k & 63), weight=0.93)

    bare, target, weight = _medians([look_up, cheapest, best], count)
    return {
        "dict_lookup_us": bare,
        "cheapest_us": target,
        "best_us": weight,
        "cheapest_over_dict": target / bare,
        "best_over_dict": weight / bare,
    }


def _ledger(count: int, writers: int) -> dict[str, float]:
    """Microseconds per count, ratio to a bare upsert, and tail with concurrent writers."""
    from ecs_plugins.frontier.reuse import ReuseLedger

    with tempfile.TemporaryDirectory() as folder:
        bare = sqlite3.connect(Path(folder) / "bare.db", isolation_level=None)
        bare.execute("PRAGMA journal_mode = WAL")
        bare.execute("PRAGMA synchronous = NORMAL")
        bare.execute("CREATE TABLE t (k TEXT PRIMARY KEY, n INTEGER) WITHOUT ROWID")
        ledger = ReuseLedger(Path(folder) / "ledger.db")

        def upsert() -> None:
            for k in range(count):
                bare.execute(_UPSERT, (f"context {k % 100}",))

        def record() -> None:
            for k in range(count):
                ledger.record(f"context {k % 100}")

        upsert_us, record_us = _medians([upsert, record], count)
        bare.close()
        ledger.close()
        each = max(100, count // writers)
        single = _latencies(Path(folder) / "one.db", 1, count)
        shared = _latencies(Path(folder) / "shared.db", writers, each, shared=True)
        many = _latencies(Path(folder) / "many.db", writers, each)
    return {
        "bare_upsert_us": upsert_us,
        "record_us": record_us,
        "record_over_upsert": record_us / upsert_us,
        "one_writer_p50_us": quantile(single, 0.5),
        "one_writer_p99_us": quantile(single, 0.99),
        "writers": float(writers),
        "threads_of_one_ledger_p50_us": quantile(shared, 0.5),
        "threads_of_one_ledger_p99_us": quantile(shared, 0.99),
        "writers_p50_us": quantile(many, 0.5),
        "writers_p99_us": quantile(many, 0.99),
        "writers_max_us": max(many),
    }


def _latencies(path: Path, writers: int, each: int, *, shared: bool = False) -> list[float]:
    """Microseconds of every count by ``writers`` threads, with a connection each or one."""
    from ecs_plugins.frontier.reuse import ReuseLedger

    ledgers = [ReuseLedger(path) for _ in range(1 if shared else writers)] * (
        writers if shared else 1
    )
    took: list[list[float]] = [[] for _ in range(writers)]
    start = threading.Barrier(writers)

    def write(index: int) -> None:
        start.wait()
        for k in range(each):
            began = time.perf_counter()
            ledgers[index].record(f"context {k % 100}")
            took[index].append((time.perf_counter() - began) * 1e6)

    threads = [threading.Thread(target=write, args=(index,)) for index in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for ledger in ledgers:
        ledger.close()
    return [value for values in took for value in values]


def _medians(tasks: Sequence[Callable[[], None]], count: int) -> list[float]:
    """Median microseconds per step of each task; rounds alternate, so all see the same load."""
    seconds: list[list[float]] = [[] for _ in tasks]
    for _ in range(_ROUNDS):
        for index, task in enumerate(tasks):
            began = time.perf_counter()
            task()
            seconds[index].append(time.perf_counter() - began)
    return [quantile(values, 0.5) / count * 1e6 for values in seconds]


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which a share of them lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
