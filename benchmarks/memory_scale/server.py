"""A memory on PostgreSQL beside one in a file: adding and recalling the same, by turns.

Vectors are precomputed; the texts are of words as frequent as words are (Zipf), so that both halves
of a recall have work. Adding is compared with bare inserts of the same rows of the same tables.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory_scale.add_cost import Figures
from benchmarks.memory_scale.growth import PrecomputedEmbedder, latent_vectors
from ecs_plugins.memory import EntropicMemory, MemoryConfig, StoreConfig
from ecs_plugins.memory.types import Matrix, Vector

QUERIES = 100
BATCH = 1000
_WORDS = 5000
_TABLES = ("messages", "tiers", "provenance", "entries_384")


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

    embedder = _NamedByFirstWord(latent_vectors(count), latent_vectors(QUERIES, seed=1))
    texts, questions = _texts("t", count, 10), _texts("q", QUERIES, 6)
    schema = "ecs_benchmark"
    place = f"{address}{'&' if '?' in address else '?'}schema={schema}"
    with (
        tempfile.TemporaryDirectory() as folder,
        psycopg.connect(address, autocommit=True) as server,
    ):
        server.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        memories = {
            name: EntropicMemory.open(
                where,
                embedder=embedder,
                config=MemoryConfig(hot_capacity=count),
                store=StoreConfig(sleep="manual"),
            )
            for name, where in (("file", str(Path(folder, "m.db"))), ("server", place))
        }
        figures: Figures = {}
        for name, memory in memories.items():
            started = time.perf_counter()
            for start in range(0, count, BATCH):
                memory.add(texts[start : start + BATCH])
            figures[f"{name}_adds_per_s"] = count / (time.perf_counter() - started)
        memories["file"].recall(questions[0])
        memories["file"].admin.wait()
        figures["bare_inserts_per_s"] = count / _bare_inserts(server, schema)
        figures["add_over_bare"] = figures["server_adds_per_s"] / figures["bare_inserts_per_s"]
        server.execute("VACUUM ANALYZE")
        figures |= _recalls(memories, questions)
        for memory in memories.values():
            memory.close()
        server.execute(f"DROP SCHEMA {schema} CASCADE")
    return figures


def _bare_inserts(server: Any, schema: str) -> float:
    """Seconds in which the rows that were written are written again, table by table."""
    server.execute(f"SET search_path = {schema}, public")
    rows = {table: server.execute(f"SELECT * FROM {table}").fetchall() for table in _TABLES}
    for table in _TABLES:
        server.execute(f"CREATE TABLE bare_{table} (LIKE {table} INCLUDING ALL)")
    started = time.perf_counter()
    for start in range(0, len(rows["messages"]), BATCH):
        with server.transaction():
            for table, every in rows.items():
                these = [[*map(_plain, row)] for row in every[start : start + BATCH]]
                if these:
                    marks = ", ".join(["%s"] * len(these[0]))
                    server.cursor().executemany(f"INSERT INTO bare_{table} VALUES ({marks})", these)
    seconds = time.perf_counter() - started
    for table in _TABLES:
        server.execute(f"DROP TABLE bare_{table}")
    return seconds


def _plain(value: object) -> object:
    return json.dumps(value) if isinstance(value, dict) else value


def _recalls(memories: dict[str, EntropicMemory], questions: Sequence[str]) -> Figures:
    """Milliseconds of both by turns, after a round that warms up, and how often they agree."""
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
