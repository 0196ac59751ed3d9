"""Part 2: a memory across sessions that holds a fifth of a chat.

Every day of the chat is a session: the file is opened, the turns are added, and it is closed. The
questions are asked in a last session. Stores of the same size by simple rules are searched by the
same embeddings.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from ecs_plugins.memory import EntropicMemory, MemoryConfig, StoreConfig
from ecs_plugins.memory.prior import worth
from ecs_plugins.ranking.embedder import Embedder
from ecs_plugins.ranking.registry import make_ranker
from examples.demo.corpus import ChatQuestion, Corpus

HOT, COLD = 5, 12
RECALLED = 3
SIZES = {
    "Entropic Memory": MemoryConfig(hot_capacity=HOT, cold_capacity=COLD, sleep_every=5),
    "Entropic Memory at its default size": MemoryConfig(),
}


@dataclass(frozen=True, slots=True)
class Store:
    """What a store of `HOT` + `COLD` items kept, and what it found.

    Attributes:
        name: Of the rule.
        texts: Kept texts.
        kept: Number of questions whose answer is kept.
        found: Number whose answer is among the first recollections.
    """

    name: str
    texts: tuple[str, ...]
    kept: int
    found: int


@dataclass(frozen=True, slots=True)
class Recalled:
    """One recall of the last session."""

    question: str
    text: str
    right: bool


def compare(corpus: Corpus, embedder: Embedder, seed: int) -> tuple[list[Store], list[Recalled]]:
    """Return the memory next to simple rules, and what it recalled first."""
    turns = [turn.said for turn in corpus.chat]
    asked = corpus.chat_questions
    stores = []
    for name, config in SIZES.items():
        kept, recalls = _live(corpus, embedder, config, seed)
        stores.append(_measured(name, kept, asked, recalls))
    first = [
        Recalled(each.question, texts[0] if texts else "", any(map(each.answered_by, texts[:1])))
        for each, texts in zip(asked, recalls, strict=True)
    ]
    size = HOT + COLD
    rules = {
        "the newest turns": turns[-size:],
        "the longest turns": sorted(turns, key=len)[-size:],
        "the turns that the prior ranks highest": sorted(turns, key=worth)[-size:],
        "always everything": turns,
    }
    for name, texts in rules.items():
        ranker = make_ranker("dense", embedder)
        found = []
        for each in asked:
            best = ranker.rank(each.question, texts).top(RECALLED)
            found.append([texts[index] for index in best])
        stores.append(_measured(name, texts, asked, found))
    return stores, first


def _live(
    corpus: Corpus, embedder: Embedder, config: MemoryConfig, seed: int
) -> tuple[list[str], list[list[str]]]:
    """Return the texts that a memory holds after all sessions, and those that it recalls."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "memory.db"
        how: dict[str, Any] = {"config": config, "store": StoreConfig(seed=seed)}
        for date, day in groupby(corpus.chat, attrgetter("date")):
            with EntropicMemory.open(file, embedder=embedder, **how) as memory:
                for turn in day:
                    memory.add(turn.said, at=f"{date}T18:00:00+00:00")
        with EntropicMemory.open(file, embedder=embedder, **how) as memory:
            every = memory.recall("everything", k=100, threshold=0.0, record=False)
            recalls = []
            for each in corpus.chat_questions:
                found = memory.recall(each.question, k=RECALLED, threshold=0.0, record=False)
                recalls.append([item.text for item in found])
    return [item.text for item in every], recalls


def _measured(
    name: str,
    texts: Sequence[str],
    asked: Sequence[ChatQuestion],
    found: Sequence[Sequence[str]],
) -> Store:
    kept = sum(any(map(each.answered_by, texts)) for each in asked)
    pairs = zip(asked, found, strict=True)
    right = sum(any(map(each.answered_by, best)) for each, best in pairs)
    return Store(name, tuple(texts), kept, right)
