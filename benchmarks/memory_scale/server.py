"""A memory on PostgreSQL beside one in a file: adding and recalling the same, by turns.

Vectors are precomputed; the texts are of words as frequent as words are (Zipf), so that both halves
of a recall have work. Adding at a size is compared, by turns, with bare inserts of the same rows
into equal tables with equal indexes that hold as much.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory_scale.add_cost import Figures
from benchmarks.memory_scale.growth import PrecomputedEmbedder, latent_vectors
from ecs_plugins.common.files import statements
from ecs_plugins.memory import EntropicMemory, MemoryConfig, StoreConfig
from ecs_plugins.memory.types import Matrix, Vector

QUERIES = 100
TURNS = 5
_WORDS = 5000
_SCHEMA = "ecs_benchmark"
_TABLES = {"messages": "seq", "tiers": "row", "provenance": "message", "entries_384": "row"}
"""Those whose rows are inserted bare, and a column that tells new rows from old ones."""


class _NamedByFirstWord(PrecomputedEmbedder):
    """Looks the vector up by the first word of a text."""

    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        return super().embed_documents([text.split()[0] for text in texts])

    def embed_query(self, text: str) -> Vector:
        return super().embed_query(text.split()[0])


def _texts(kind: str, count: int, words: int) -> list[str]:
    rng = np.random.default_rng(len(kind) + words)
    frequency = 1.0 / np.arange(1, _WORDS + 1)
    drawn = rng.choice(_WORDS, (count, words), p=frequency / frequency.sum())
    return [" ".join([f"{kind}{n}", *(f"w{word}" for word in row)]) for n, row in enumerate(drawn)]


def measure_server(count: int, address: str) -> Figures:
    """Add so many messages to a new schema of a server and to a file, and recall from both.

    Args:
        count: Messages.
        address: Of a server; the schema ``ecs_benchmark`` is made there, and dropped.
    """
    import psycopg

    place = f"{address}{'&' if '?' in address else '?'}schema={_SCHEMA}"
    with (
        tempfile.TemporaryDirectory() as folder,
        psycopg.connect(address, autocommit=True) as server,
    ):
        server.execute(f"DROP SCHEMA IF EXISTS {_SCHEMA} CASCADE")
        memories = opened(count, {"file": str(Path(folder, "m.db")), "server": place})
        figures = adds(memories, server, count)
        figures |= recalls(memories)
        for memory in memories.values():
            memory.close()
        server.execute(f"DROP SCHEMA {_SCHEMA} CASCADE")
    return figures


def opened(count: int, places: Mapping[str, str]) -> dict[str, EntropicMemory]:
    """Memories at several places that know the vectors of so many messages, and of the turns."""
    documents = latent_vectors(count + TURNS * _batch(count))
    embedder = _NamedByFirstWord(documents, latent_vectors(QUERIES, seed=1))
    return {
        name: EntropicMemory.open(
            place,
            embedder=embedder,
            config=MemoryConfig(hot_capacity=len(documents)),
            store=StoreConfig(sleep="manual"),
        )
        for name, place in places.items()
    }


def _batch(count: int) -> int:
    return min(1000, count // 10)


def adds(memories: Mapping[str, EntropicMemory], server: Any, count: int) -> Figures:
    """Messages per second up to a size; then, by turns, beside bare inserts of the same rows."""
    batch = _batch(count)
    texts = _texts("t", count + TURNS * batch, 10)
    figures = {
        f"{name}_adds_per_s": count / _seconds(memory, texts[:count])
        for name, memory in memories.items()
    }
    server.execute(f"SET search_path = {_SCHEMA}, public")
    _make_bare_tables(server)
    server.execute("VACUUM ANALYZE")
    ours, bare = [], []
    for start in range(count, len(texts), batch):
        ours.append(_seconds(memories["server"], texts[start : start + batch]))
        memories["file"].add(texts[start : start + batch])
        bare.append(_bare_insert(server))
    for table in _TABLES:
        server.execute(f"DROP TABLE bare_{table}")
    return figures | {
        "server_adds_per_s_at_size": TURNS * batch / sum(ours),
        "bare_inserts_per_s_at_size": TURNS * batch / sum(bare),
        "add_over_bare": float(np.median(np.divide(bare, ours))),
    }


def _seconds(memory: EntropicMemory, texts: Sequence[str]) -> float:
    started = time.perf_counter()
    for start in range(0, len(texts), 1000):
        memory.add(texts[start : start + 1000])
    return time.perf_counter() - started


def _make_bare_tables(server: Any) -> None:
    """Copies of the tables with their indexes; that of the vectors is built when all are there."""
    server.execute("SET maintenance_work_mem = '1GB'")
    made, *indexed = (
        statement.format(dimension=384).replace("entries_384", "bare_entries_384")
        for statement in statements("ecs_plugins.memory.store", "entries.sql")
    )
    for table in _TABLES:
        if table == "entries_384":
            server.execute(made)
        else:
            server.execute(f"CREATE TABLE bare_{table} (LIKE {table} INCLUDING ALL)")
        server.execute(f"INSERT INTO bare_{table} SELECT * FROM {table}")
    for statement in indexed:
        server.execute(statement)


def _bare_insert(server: Any) -> float:
    """Seconds in which the rows that the bare tables lack are inserted."""
    new = {
        table: server.execute(
            f"SELECT * FROM {table} WHERE {key} NOT IN (SELECT {key} FROM bare_{table})"
        ).fetchall()
        for table, key in _TABLES.items()
    }
    started = time.perf_counter()
    with server.transaction():
        for table, rows in new.items():
            marks = ", ".join(["%s"] * len(rows[0]))
            plain = [[*map(_plain, row)] for row in rows]
            server.cursor().executemany(f"INSERT INTO bare_{table} VALUES ({marks})", plain)
    return time.perf_counter() - started


def _plain(value: object) -> object:
    return json.dumps(value) if isinstance(value, dict) else value


def recalls(memories: Mapping[str, EntropicMemory]) -> Figures:
    """Milliseconds of both by turns, after a round that warms up, and how often they agree."""
    questions = _texts("q", QUERIES, 6)
    memories["file"].recall(questions[0])
    memories["file"].admin.wait()
    times: dict[str, list[float]] = {name: [] for name in memories}
    same = 0
    for turn in range(2):
        for question in questions:
            found = []
            for name, memory in memories.items():
                started = time.perf_counter()
                best = memory.recall(question, k=3, threshold=-1.0, record=False)
                times[name].append(1000 * (time.perf_counter() - started))
                found.append({item.text for item in best})
            same += len(found[0] & found[1]) if turn else 0
    figures: Figures = {"same_at_3": same / (3 * len(questions))}
    for name, each in times.items():
        for part in (50, 99):
            value = np.percentile(each[len(questions) :], part)
            figures[f"{name}_recall_p{part}_ms"] = float(value)
    p50 = "recall_p50_ms"
    return figures | {"server_over_file": figures[f"server_{p50}"] / figures[f"file_{p50}"]}
