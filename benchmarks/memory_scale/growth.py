"""Growth of a memory: recall, latency, throughput, bytes, opening and rebuilding.

Everything goes through `EntropicMemory` with precomputed vectors, so embedding is in no figure.
Beside it, in the same run and on the same vectors: raw FAISS HNSW with the same parameters, a bare
lexical search by bm25s, a bare SQLite insert of the same rows with the same settings, and
LangGraph's ``InMemoryStore`` where it is installed.

The words of a text are drawn: some that are common everywhere, and some that say where its vector
lies, so that near texts share rare words, as sentences do.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bm25s
import faiss
import numpy as np

from benchmarks.memory_scale.add_cost import SINGLE_ADDS, Figures, measure_adding
from benchmarks.tables import markdown_table
from ecs_plugins.common.text import terms
from ecs_plugins.memory import EntropicMemory, MemoryConfig, StoreConfig
from ecs_plugins.memory.store import namespaces
from ecs_plugins.memory.store.index import search_width
from ecs_plugins.memory.store.search import CANDIDATES
from ecs_plugins.memory.types import Matrix, Vector

LATENT = 32
QUERIES = 200
STORE_LIMIT = 10_000
"""LangGraph's ``InMemoryStore`` is measured up to here: it scans in Python."""

MERGING_ADDS = 4000
"""Adding where repeats are merged, the default, is measured up to here."""


def latent_vectors(count: int, dimension: int = 384, seed: int = 0) -> Matrix:
    """Unit vectors near a 32-dimensional subspace: the closest simple model of sentence vectors.

    Independent gaussian vectors have no neighbours to find, and are like no embedding.
    """
    rng = np.random.default_rng(seed)
    basis = np.random.default_rng(12345).normal(size=(LATENT, dimension))
    points = rng.normal(size=(count, LATENT)) @ basis / LATENT**0.5
    points += 0.1 * rng.normal(size=points.shape)
    return np.asarray(points / np.linalg.norm(points, axis=1, keepdims=True), dtype=np.float32)


COMMON_WORDS, COMMON_PER_TEXT = 5000, 8
TOPICS, TOPICS_PER_TEXT = 2000, 4


def texts_of(vectors: Matrix, letter: str) -> list[str]:
    """A text for each vector: its name, common words by Zipf's law, and its nearest topics."""
    rng = np.random.default_rng(len(vectors))
    topics = np.random.default_rng(6).normal(size=(vectors.shape[1], TOPICS)).astype(np.float32)
    odds = 1 / np.arange(3, COMMON_WORDS + 3)
    common = rng.choice(COMMON_WORDS, (len(vectors), COMMON_PER_TEXT), p=odds / odds.sum())
    out = []
    for number, (vector, words) in enumerate(zip(vectors, common, strict=True)):
        near = np.argpartition(vector @ topics, -TOPICS_PER_TEXT)[-TOPICS_PER_TEXT:]
        said = [f"w{word}" for word in words] + [f"topic{topic}" for topic in near]
        out.append(f"{letter}{number} {' '.join(said)}")
    return out


class PrecomputedEmbedder:
    """Embeds texts that begin with ``t0, t1, ...`` or ``q0, q1, ...`` by looking the vector up."""

    name = "precomputed"

    def __init__(self, documents: Matrix, queries: Matrix) -> None:
        self._of = {"t": documents, "q": queries}
        self.dimension = int(documents.shape[1])

    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """The documents of these names."""
        return self._of["t"][[_number(text) for text in texts]]

    def embed_query(self, text: str) -> Vector:
        """The query of this name."""
        vector: Vector = self._of[text[0]][_number(text)]
        return vector


def _number(text: str) -> int:
    return int(text.partition(" ")[0][1:])


@dataclass(frozen=True, slots=True)
class ScaleResult:
    """The figures of one size.

    Attributes:
        count: Vectors.
        source: Where they come from.
        figures: Name -> value; seconds, milliseconds, bytes, per second as the name says.
    """

    count: int
    source: str
    figures: Mapping[str, float]


def measure(
    documents: Matrix,
    queries: Matrix,
    *,
    source: str,
    folder: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> ScaleResult:
    """Measure one size.

    Args:
        documents: Unit vectors [n, d] that are remembered.
        queries: Unit vectors [q, d] that are asked.
        source: A label for the vectors.
        folder: Where the file is made; a temporary folder by default.
        progress: Called with what is being done.
    """
    with tempfile.TemporaryDirectory(dir=folder) as made:
        run = _Run(Path(made), documents, queries, progress)
        return ScaleResult(len(documents), source, run.measure())


class _Run:
    def __init__(
        self,
        folder: Path,
        documents: Matrix,
        queries: Matrix,
        progress: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._documents = documents
        self._queries = queries
        self._progress = progress
        self._path = folder / "memory.db"
        self._embedder = PrecomputedEmbedder(documents, queries)
        self._texts, self._asked = texts_of(documents, "t"), texts_of(queries, "q")
        self._exact = np.argsort(-(queries @ documents.T), axis=1, kind="stable")[:, :10]

    def _open(self) -> EntropicMemory:
        capacity = len(self._documents) + SINGLE_ADDS
        return EntropicMemory.open(
            self._path,
            embedder=self._embedder,
            config=MemoryConfig(rule="paper", hot_capacity=capacity),
            store=StoreConfig(sleep="manual"),
        )

    def measure(self) -> Figures:
        figures: Figures = {}
        self._progress("adding")
        memory = self._open()
        figures |= self._adding(memory)
        self._progress("building the index")
        figures["build_s"] = _seconds(lambda: self._index(memory))
        figures |= self._quality(memory)
        figures["index_bytes"] = float(memory.admin.stats().indexes["bytes"])
        memory.close()
        memory = self._reopened(figures)
        self._progress("raw FAISS HNSW")
        figures |= self._latency(memory) | self._raw(memory)
        for clock in ("ms", "cpu_ms"):
            figures[f"recall_over_raw_p50_{clock}"] = (
                figures[f"recall_p50_{clock}"] / figures[f"raw_hnsw_p50_{clock}"]
            )
        self._progress("meaning and words")
        figures |= self._by_words()
        self._progress("half of it deleted")
        figures |= self._half_deleted(memory)
        figures["file_bytes"] = float(memory.admin.stats().bytes)
        memory.close()
        if len(self._documents) <= STORE_LIMIT:
            self._progress("LangGraph's InMemoryStore")
            figures |= self._langgraph()
        return figures

    def _adding(self, memory: EntropicMemory) -> Figures:
        figures = measure_adding(memory, self._texts, self._folder)
        texts = self._texts[:MERGING_ADDS]
        with EntropicMemory.open(
            self._folder / "merging.db",
            embedder=self._embedder,
            config=MemoryConfig(hot_capacity=len(texts)),
            store=StoreConfig(sleep="manual"),
        ) as merging:
            return figures | measure_adding(merging, texts, self._folder, label="merging_")

    def _by_words(self) -> Figures:
        """Time the default recall and its parts by turns: raw HNSW and a bare lexical search.

        A memory under the default rule reads the file that the other has written.
        """
        with EntropicMemory.open(
            self._path, embedder=self._embedder, store=StoreConfig(sleep="manual")
        ) as memory:
            graph = self._graph(memory)
            words = bm25s.BM25(method="lucene")
            words.index([terms(text) for text in self._texts], show_progress=False)
            asked = [terms(text.partition(" ")[2]) for text in self._asked]

            # Each asks another question: none finds in the processor's caches what the one before
            # it has read for the same.
            def other(number: int, turns: int) -> int:
                return (number + turns * len(self._queries) // 3) % len(self._queries)

            def graph_alone(number: int) -> None:
                at = other(number, 1)
                graph.search(self._queries[at : at + 1], 5)

            def lexical(number: int) -> None:
                scores = words.get_scores(asked[other(number, 2)])
                np.argpartition(scores, -CANDIDATES)[-CANDIDATES:]

            figures: Figures = {}
            calls: dict[str, Callable[[int], object]] = {
                "default_recall": lambda n: memory.recall(self._asked[n], k=5, record=False),
                "bare_hnsw": graph_alone,
                "bare_bm25": lexical,
            }
            for name, times in _by_turns(calls, len(self._queries)).items():
                figures |= _percentiles(name, times)
        for clock in ("ms", "cpu_ms"):
            bare = figures[f"bare_hnsw_p50_{clock}"] + figures[f"bare_bm25_p50_{clock}"]
            figures[f"default_recall_over_bare_p50_{clock}"] = (
                figures[f"default_recall_p50_{clock}"] / bare
            )
        return figures

    def _latency(self, memory: EntropicMemory) -> Figures:
        def ask(number: int) -> None:
            text = self._asked[number]
            memory.recall(text, k=3, threshold=-1.0, tiers="both", record=False)

        return _percentiles("recall", _timed(ask, len(self._queries)))

    def _quality(self, memory: EntropicMemory, suffix: str = "") -> Figures:
        alive = {message.text for message in memory.messages()}
        figures = {}
        order = np.argsort(-(self._queries @ self._documents.T), axis=1, kind="stable")
        for k in (3, 10):
            hits = 0
            for number in range(len(self._queries)):
                wanted = _first(order[number], self._texts, alive, k)
                text = self._asked[number]
                found = memory.recall(text, k=k, threshold=-1.0, tiers="both", record=False)
                hits += len(wanted & {item.text for item in found})
            figures[f"recall_at_{k}{suffix}"] = hits / (k * len(self._queries))
        return figures

    def _reopened(self, figures: Figures) -> EntropicMemory:
        started = time.perf_counter()
        memory = self._open()
        memory.recall(self._asked[0], k=3, threshold=-1.0, tiers="both", record=False)
        figures["open_to_first_recall_s"] = time.perf_counter() - started
        return memory

    def _graph(self, memory: EntropicMemory) -> Any:
        """Return a bare FAISS graph of the vectors of the memory."""
        index = self._index(memory)
        graph = faiss.IndexHNSWFlat(index.dimension, 16, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = 40
        graph.add(index._vectors[: index._used])
        graph.hnsw.efSearch = search_width(graph.ntotal)
        return graph

    def _index(self, memory: EntropicMemory) -> Any:
        """Return the memory's own index, linked."""
        with memory._store.database.read() as connection:
            space = namespaces.list_spaces(connection)[0]
            opened: Any = memory._store.indexes.current(connection, space)
        opened.index.rebuild()
        return opened.index

    def _raw(self, memory: EntropicMemory) -> Figures:
        graph = self._graph(memory)
        found = [graph.search(query[None], 3)[1][0] for query in self._queries]
        hits = sum(
            len(set(row.tolist()) & set(exact[:3].tolist()))
            for row, exact in zip(found, self._exact, strict=True)
        )
        times = _timed(lambda n: graph.search(self._queries[n : n + 1], 3), len(self._queries))
        return {
            "ef_search": float(graph.hnsw.efSearch),
            "raw_hnsw_recall_at_3": hits / (3 * len(found)),
            **_percentiles("raw_hnsw", times),
        }

    def _half_deleted(self, memory: EntropicMemory) -> Figures:
        # A little less than half, so that what is measured is a graph full of tombstones and not
        # a new one.
        seconds = _seconds(lambda: memory.forget(("default",), filter={"half": 0}))
        figures = _prefixed("half_deleted", self._latency(memory))
        figures |= self._quality(memory, "_half_deleted")
        figures["tombstones"] = float(memory.admin.stats().indexes["tombstones"])
        figures["forget_half_s"] = seconds
        return figures

    def _langgraph(self) -> Figures:
        try:
            from langgraph.store.memory import InMemoryStore
        except ImportError:
            return {}

        def embed(texts: Sequence[str]) -> list[list[float]]:
            return [self._embedder.embed_query(text).tolist() for text in texts]

        store = InMemoryStore(
            index={"dims": self._embedder.dimension, "embed": embed, "fields": ["text"]}
        )
        started = time.perf_counter()
        for number in range(len(self._documents)):
            store.put(("default",), f"t{number}", {"text": f"t{number}"})
        seconds = time.perf_counter() - started
        times = _timed(
            lambda n: store.search(("default",), query=f"q{n}", limit=3),
            min(20, len(self._queries)),
        )
        return {
            "langgraph_puts_per_s": len(self._documents) / seconds,
            **_percentiles("langgraph_search", times),
        }


def _first(order: np.ndarray, texts: Sequence[str], alive: set[str], k: int) -> set[str]:
    wanted: set[str] = set()
    for number in order:
        if texts[number] in alive:
            wanted.add(texts[number])
            if len(wanted) == k:
                break
    return wanted


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


Times = list[tuple[float, float]]


def _timed(call: Callable[[int], object], count: int) -> Times:
    """Milliseconds of each call, by the clock and of this thread's CPU, after a warm-up round."""
    return _by_turns({"": call}, count)[""]


def _by_turns(calls: Mapping[str, Callable[[int], object]], count: int) -> dict[str, Times]:
    """Time several calls that take turns."""
    times: dict[str, Times] = {name: [] for name in calls}
    for timed in (False, True):
        for number in range(count):
            for name, call in calls.items():
                cpu, clock = time.thread_time(), time.perf_counter()
                call(number)
                clock, cpu = time.perf_counter() - clock, time.thread_time() - cpu
                if timed:
                    times[name].append((1000 * clock, 1000 * cpu))
    return times


def _percentiles(name: str, times: Times) -> Figures:
    clock, cpu = np.array(times).T
    return {
        f"{name}_p50_ms": float(np.percentile(clock, 50)),
        f"{name}_p99_ms": float(np.percentile(clock, 99)),
        f"{name}_p50_cpu_ms": float(np.percentile(cpu, 50)),
    }


def _prefixed(prefix: str, figures: Figures) -> Figures:
    return {f"{prefix}_{name}": value for name, value in figures.items()}


def table(results: Sequence[ScaleResult]) -> str:
    """A Markdown table: one row per figure, one column per size."""
    names = list(dict.fromkeys(name for result in results for name in result.figures))
    rows = [
        [name, *(f"{r.figures[name]:,.4g}" if name in r.figures else "-" for r in results)]
        for name in names
    ]
    return markdown_table(["figure", *(f"{r.count:,} {r.source}" for r in results)], rows)
