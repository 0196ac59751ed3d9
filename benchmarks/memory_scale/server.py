"""A memory on PostgreSQL beside one in a file: adding and recalling the same, by turns.

Vectors are precomputed, and near texts share rare words, so that both halves of a recall have
work. Adding at a size, where messages are appended (the paper's rule) and where repeats are merged
(the default), is compared with bare inserts of the same rows into equal tables with equal indexes
that hold as much.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from benchmarks.memory_scale.add_cost import Figures
from benchmarks.memory_scale.growth import PrecomputedEmbedder, latent_vectors, texts_of
from ecs_plugins.common.files import statements
from ecs_plugins.memory import EntropicMemory, MemoryConfig, StoreConfig
from ecs_plugins.memory.types import Matrix

QUERIES = 100
TURNS = 5
_SCHEMA = "ecs_benchmark"
_TABLES = {"messages": "seq", "tiers": "row", "provenance": "message", "entries_384": "row"}
"""Tables of the bare inserts, each with a column that marks new rows."""


def measure_server(count: int, address: str) -> Figures:
    """Add so many messages to a new schema of a server and to a file; then add and recall by turns.

    Args:
        count: Messages.
        address: Of a server; the schema ``ecs_benchmark`` is made there, and dropped.

    Returns:
        Milliseconds and rows per second by the clock, and ratios by the clock and of CPU time, the
        server's included where it runs on this machine.
    """
    import psycopg

    with (
        tempfile.TemporaryDirectory() as folder,
        psycopg.connect(address, autocommit=True) as server,
    ):
        server.execute(f"DROP SCHEMA IF EXISTS {_SCHEMA} CASCADE")
        places = places_of(address, Path(folder))
        fill(places, server, count)
        figures = measure(places, server, count)
        server.execute(f"DROP SCHEMA {_SCHEMA} CASCADE")
    return figures


def places_of(address: str, folder: Path) -> dict[str, str]:
    """Places of the two memories."""
    schema = f"{'&' if '?' in address else '?'}schema={_SCHEMA}"
    return {"file": str(folder / "memory.db"), "server": address + schema}


def fill(places: Mapping[str, str], server: Any, count: int) -> None:
    """Add so many messages to both, and copy the server's tables into bare ones.

    An index of vectors is built when all of them are there, which takes a fraction of the time.
    """
    texts = texts_of(_documents(count), "t")[:count]
    with _opened(places, count, "paper") as memories:
        server.execute(f"SET search_path = {_SCHEMA}, public")
        server.execute("SET maintenance_work_mem = '1GB'")
        server.execute("DROP INDEX entries_384_by_vector")
        for start in range(0, count, 1000):
            for memory in memories.values():
                memory.add(texts[start : start + 1000])
        server.execute(_entries("entries_384")[-1])
        memories["file"].recall(texts[0])
        memories["file"].admin.wait()
    for table in _TABLES:
        made, *indexed = [f"CREATE TABLE bare_{table} (LIKE {table} INCLUDING ALL)"]
        if table == "entries_384":
            made, *indexed = _entries(f"bare_{table}")
        insert = f"INSERT INTO bare_{table} OVERRIDING SYSTEM VALUE"
        for statement in (made, f"{insert} SELECT * FROM {table}", *indexed):
            server.execute(statement)
    server.execute("VACUUM ANALYZE")


@contextmanager
def _opened(
    places: Mapping[str, str], count: int, rule: Literal["default", "paper"]
) -> Iterator[dict[str, EntropicMemory]]:
    """Memories that know the vectors of so many messages and of the turns after them."""
    documents = _documents(count)
    embedder = PrecomputedEmbedder(documents, latent_vectors(QUERIES, seed=1))
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(
                EntropicMemory.open(
                    place,
                    embedder=embedder,
                    config=MemoryConfig(rule=rule, hot_capacity=len(documents)),
                    store=StoreConfig(sleep="manual"),
                )
            )
            for name, place in places.items()
        }


def _entries(table: str) -> list[str]:
    """The statements that make a table of vectors; the last one makes the index of these."""
    return [
        statement.format(dimension=384).replace("entries_384", table)
        for statement in statements("ecs_plugins.memory.store", "entries.sql")
    ]


def _documents(count: int) -> Matrix:
    """The vectors of so many messages, and of those that the turns add."""
    return latent_vectors(count + 2 * TURNS * _batch(count))


def _batch(count: int) -> int:
    return min(1000, count // 10)


def measure(places: Mapping[str, str], server: Any, count: int) -> Figures:
    """Adds beside bare inserts of the same rows, and recalls from both, by turns."""
    server.execute(f"SET search_path = {_SCHEMA}, public")
    batch = _batch(count)
    texts = texts_of(_documents(count), "t")[count:]
    figures: Figures = {}
    for rule in ("paper", "default"):
        with _opened(places, count, rule) as memories:
            these, texts = texts[: TURNS * batch], texts[TURNS * batch :]
            figures |= _adds("appended" if rule == "paper" else "merged", memories, server, these)
            if rule == "default":
                server.execute("VACUUM ANALYZE")
                figures |= _recalls(memories, server)
    return figures


class _Clock:
    """Seconds of a block: by the clock, and of CPU with those of the server's own processes."""

    def __init__(self, server: Any) -> None:
        found = server.execute("SELECT pid FROM pg_stat_activity WHERE client_port IS NOT NULL")
        files = [Path(f"/proc/{pid}/schedstat") for (pid,) in found.fetchall()]
        self._files = [file for file in files if file.exists()]

    def _now(self) -> tuple[float, float]:
        theirs = sum(int(file.read_text().split()[0]) for file in self._files)
        return time.perf_counter(), time.process_time() + theirs / 1e9

    def __enter__(self) -> Self:
        self._began = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall, self.cpu = np.subtract(self._now(), self._began).tolist()


def _adds(
    how: str, memories: Mapping[str, EntropicMemory], server: Any, texts: Sequence[str]
) -> Figures:
    """Adds in batches beside bare inserts of the same rows, by turns: medians."""
    batch = len(texts) // TURNS
    ours, bare = [], []
    for start in range(0, len(texts), batch):
        said = texts[start : start + batch]
        memories["server"].recall(said[0], record=False)  # connects
        with _Clock(server) as spent:
            memories["server"].add(said)
        ours.append((spent.wall, spent.cpu))
        memories["file"].add(said)
        new = {
            table: server.execute(
                f"SELECT * FROM {table} WHERE {key} NOT IN (SELECT {key} FROM bare_{table})"
            ).fetchall()
            for table, key in _TABLES.items()
        }
        with _Clock(server) as spent:
            _insert(server, new)
        bare.append((spent.wall, spent.cpu))
    ours, bare = ours[1:], bare[1:]  # the first turn warms up
    wall, cpu = np.median(np.divide(bare, ours), axis=0).tolist()
    return {
        f"{how}_per_s": batch / np.median(ours, axis=0)[0],
        f"{how}_bare_per_s": batch / np.median(bare, axis=0)[0],
        f"{how}_over_bare": wall,
        f"{how}_over_bare_cpu": cpu,
    }


def _insert(server: Any, new: Mapping[str, Sequence[Sequence[object]]]) -> None:
    with server.transaction():
        for table, rows in new.items():
            marks = ", ".join(["%s"] * len(rows[0]))
            plain = [[*map(_plain, row)] for row in rows]
            insert = f"INSERT INTO bare_{table} OVERRIDING SYSTEM VALUE VALUES ({marks})"
            server.cursor().executemany(insert, plain)


def _plain(value: object) -> object:
    return json.dumps(value) if isinstance(value, dict) else value


def _recalls(memories: Mapping[str, EntropicMemory], server: Any) -> Figures:
    """Milliseconds of both by turns, after a round that warms up, and how often they agree."""
    questions = texts_of(latent_vectors(QUERIES, seed=1), "q")
    for memory in memories.values():
        for question in questions:
            memory.recall(question, record=False)
            memory.admin.wait()
    clock = _Clock(server)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in memories}
    same = 0
    for question in questions:
        found = []
        for name, memory in memories.items():
            with clock:
                best = memory.recall(question, k=3, threshold=-1.0, record=False)
            times[name].append((1000 * clock.wall, 1000 * clock.cpu))
            found.append({item.text for item in best})
        same += len(found[0] & found[1])
    figures: Figures = {"same_at_3": same / (3 * len(questions))}
    for name, each in times.items():
        for part in (50, 99):
            wall, cpu = np.percentile(each, part, axis=0).tolist()
            figures[f"{name}_recall_p{part}_ms"] = wall
            figures[f"{name}_recall_p{part}_cpu_ms"] = cpu
    for clocked in ("ms", "cpu_ms"):
        ratio = figures[f"server_recall_p50_{clocked}"] / figures[f"file_recall_p50_{clocked}"]
        figures[f"server_over_file_p50_{clocked}"] = ratio
    return figures
