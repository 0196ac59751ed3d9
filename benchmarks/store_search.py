"""Search in LangGraph stores compared with a recall: evidence found and time.

Each turn of a chat is one item. Evidence recall@5 is the share of a question's evidence among the
first five items. Times are those of one search or put, without the embedding.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from langgraph.store.base import BaseStore, PutOp

from benchmarks.bounded_chat.chats import CachedEmbedder, Chat, ChatQuestion
from ecs_plugins.langgraph import EntropicStore
from ecs_plugins.memory import EntropicMemory
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.store.messages import NewMessage
from ecs_plugins.memory.types import Floats
from ecs_plugins.ranking.lexical import BM25Ranker

K = 5
_SPACE = ("chat",)
_BATCH = 100
_APART = 2 * 86_400.0
"""Seconds between sessions, long enough that no turn replies to the session before."""

Find: TypeAlias = Callable[[str], Sequence[int]]
"""Function from a question to the positions of turns, best first."""

Way: TypeAlias = Callable[[Chat, CachedEmbedder, Path], Iterator[Find]]
"""Function that stores the turns of a chat in a file and yields a search."""


@dataclass
class MeasuredWay:
    """Way to find turns.

    Attributes:
        recalls: Evidence recall@5 of each question.
        searches: Seconds of each search.
        puts: Seconds per item, of each chat.
        sizes: Bytes on disk per item, of each chat.
    """

    recalls: list[float] = field(default_factory=list)
    searches: list[float] = field(default_factory=list)
    puts: list[float] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)

    @property
    def row(self) -> list[str]:
        """Return the cells of its table row."""
        kilobytes = statistics.mean(self.sizes) / 1000
        return [
            f"{statistics.mean(self.recalls):.3f}",
            f"{1000 * statistics.median(self.searches):.2f}",
            f"{1000 * statistics.mean(self.puts):.2f}",
            f"{kilobytes:.1f}",
        ]


def measured(chats: Iterable[Chat], embedder: CachedEmbedder) -> dict[str, MeasuredWay]:
    """Measure every way on every chat."""
    ways: dict[str, Way] = {
        "EntropicMemory.recall": _recalling,
        "EntropicStore.search": _searching,
        "BM25 + embeddings, by z-scores": _by_z_scores,
    }
    if find_spec("langgraph.store.sqlite") is not None:
        ways["SqliteStore.search"] = _searching_theirs
    results = {name: MeasuredWay() for name in ways}
    for chat in chats:
        for name, way in ways.items():
            _measure(chat, embedder, way, results[name])
    return results


def _share_met(question: ChatQuestion, found: Sequence[int]) -> float:
    """Return the share of a question's evidence among the first turns found."""
    met = set(question.evidence).intersection(found[:K])
    return len(met) / len(question.evidence)


def _measure(chat: Chat, embedder: CachedEmbedder, way: Way, result: MeasuredWay) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.db"
        started = time.perf_counter()
        with contextmanager(way)(chat, embedder, path) as find:
            result.puts.append((time.perf_counter() - started) / len(chat.turns))
            find(chat.questions[0].text)
            for question in chat.questions:
                started = time.perf_counter()
                found = find(question.text)
                result.searches.append(time.perf_counter() - started)
                result.recalls.append(_share_met(question, found))
        result.sizes.append(path.stat().st_size / len(chat.turns))


def _extensible() -> str:
    """A module for SQLite that loads extensions, which not every Python can."""
    return "pysqlite3" if find_spec("pysqlite3") is not None else "sqlite3"


@contextmanager
def _told(
    chat: Chat, embedder: CachedEmbedder, path: Path
) -> Iterator[tuple[EntropicMemory, dict[str, int]]]:
    """A memory of turns that are neither merged nor forgotten, and their positions by id."""
    count = len(chat.turns)
    config = MemoryConfig(hot_capacity=2 * count, sleep_every=2 * count, merge_threshold=1.0)
    with EntropicMemory.open(path, embedder=embedder, config=config) as memory:
        ids: list[str] = []
        drafts = [NewMessage(turn.text, at=_APART * turn.session) for turn in chat.turns]
        for start in range(0, count, _BATCH):
            ids += memory.add(drafts[start : start + _BATCH])
        yield memory, {name: position for position, name in enumerate(ids)}


def _recalling(chat: Chat, embedder: CachedEmbedder, path: Path) -> Iterator[Find]:
    """The memory's own recall."""
    with _told(chat, embedder, path) as (memory, positions):

        def find(question: str) -> list[int]:
            recalled = memory.recall(question, k=K, threshold=0.0, record=False)
            return [positions[each.provenance[0]] for each in recalled]

        yield find


def _by_z_scores(chat: Chat, embedder: CachedEmbedder, path: Path) -> Iterator[Find]:
    """The baseline: standardised BM25 and cosines, added."""
    path.touch()
    texts = [turn.text for turn in chat.turns]
    vectors = embedder.embed_documents(texts)
    bm25 = BM25Ranker()

    def find(question: str) -> list[int]:
        words = np.asarray(bm25.rank(question, texts).scores, dtype=np.float64)
        cosines: Floats = (vectors @ embedder.embed_query(question)).astype(np.float64)
        total: Floats = np.add(_standardised(words), _standardised(cosines))
        best: list[int] = np.argsort(-total, kind="stable")[:K].tolist()
        return best

    yield find


def _standardised(scores: Floats) -> Floats:
    standardised: Floats = (scores - scores.mean()) / (scores.std() or 1.0)
    return standardised


def _searching(chat: Chat, embedder: CachedEmbedder, path: Path) -> Iterator[Find]:
    with EntropicMemory.open(path, embedder=embedder) as memory:
        store = EntropicStore(memory, index={"fields": ["text"]})
        yield _filled(store, chat)


def _searching_theirs(chat: Chat, embedder: CachedEmbedder, path: Path) -> Iterator[Find]:
    """LangGraph's store in a file."""
    theirs: Any = import_module("langgraph.store.sqlite")
    sqlite: Any = import_module(_extensible())
    connection = sqlite.connect(path, check_same_thread=False, isolation_level=None)

    def embed(texts: Sequence[str]) -> list[list[float]]:
        with suppress(ValueError):  # a query alone is embedded as such
            (query,) = texts
            return [embedder.embed_query(query).tolist()]
        vectors: list[list[float]] = embedder.embed_documents(texts).tolist()
        return vectors

    index = {
        "dims": embedder.dimension,
        "embed": embed,
        "text_fields": ["text"],  # what it reads in place of LangGraph's "fields"
    }
    try:
        store = theirs.SqliteStore(connection, index=index)
        store.setup()
        yield _filled(store, chat)
    finally:
        connection.close()


def _filled(store: BaseStore, chat: Chat) -> Find:
    """Put the turns of a chat into a store."""
    puts = []
    for position, turn in enumerate(chat.turns):
        puts.append(PutOp(_SPACE, str(position), {"text": turn.text}))
    for start in range(0, len(puts), _BATCH):
        store.batch(puts[start : start + _BATCH])

    def find(question: str) -> list[int]:
        items = store.search(_SPACE, query=question, limit=K)
        return [int(item.key) for item in items]

    return find
