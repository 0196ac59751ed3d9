"""Cost of adding and sleeping compared with embedding.

All is timed in the same stretch, by turns: 100 new messages embedded as a batch and one by one,
added one by one, and the sleep phase that their number makes due, without a language model, in a
file.
Later turns find the memories of the earlier ones, as in use. The sentences are generated here.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np

from benchmarks.intervals import median_interval
from ecs_plugins.memory import EntropicMemory, MemoryConfig, StoreConfig
from ecs_plugins.memory.types import Matrix, Vector
from ecs_plugins.ranking.embedder import Embedder

MESSAGES = 100

_WHO = ("Anna", "my brother", "the new neighbour", "our landlord", "Dr. Osei", "the night nurse",
        "Tomasz", "her old teacher", "the bus driver", "my manager")  # fmt: skip
_DID = ("asked me to water", "forgot to bring back", "is looking for", "wants to sell",
        "repaired", "told me the story of", "has painted", "complained about", "is proud of",
        "would like to borrow")  # fmt: skip
_WHAT = ("the lemon tree", "a green bicycle", "the blue rowing boat", "two kitchen chairs",
         "the radio from the attic", "a box of letters", "the garden gate", "the grey cat",
         "the spare key", "a map of the harbour")  # fmt: skip
_WHEN = ("before the weekend", "when the snow melts", "on Tuesday", "since last summer",
         "because of the move", "after the concert", "for the third time",
         "although it was raining")  # fmt: skip
_REPEATED = 0.3


def sentences(count: int, seed: int) -> list[str]:
    """Plain sentences, some of which repeat an earlier one of the same seed in other words."""
    rng = np.random.default_rng(seed)
    said: list[tuple[str, str, str]] = []
    out = []
    for _ in range(count):
        if said and rng.random() < _REPEATED:
            who, did, what = said[rng.integers(len(said))]
        else:
            who, did, what = (str(rng.choice(words)) for words in (_WHO, _DID, _WHAT))
            said.append((who, did, what))
        text = f"{who} {did} {what} {rng.choice(_WHEN)}."
        out.append(text[0].upper() + text[1:])
    return out


class _Embedded:
    """Hands out vectors that were computed before, so that adding embeds nothing."""

    def __init__(self, embedder: Embedder) -> None:
        self.name = embedder.name
        self.dimension = embedder.dimension
        self._of: dict[str, Vector] = {}

    def take(self, texts: Sequence[str], vectors: Matrix) -> None:
        self._of.update(zip(texts, vectors, strict=True))

    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        return np.stack([self._of[text] for text in texts])

    def embed_query(self, text: str) -> Vector:
        return self._of[text]


def measure_sleep(
    embedder: Embedder,
    *,
    repeats: int = 20,
    folder: Path | None = None,
    config: MemoryConfig | None = None,
) -> dict[str, float]:
    """Return the cost of 100 messages: sleeping and adding, over embedding.

    Args:
        embedder: Embeds the sentences; it is warmed up first.
        repeats: Turns; at least 2.
        folder: Where the file is made; a temporary folder by default.
        config: The settings; the defaults by default.

    Returns:
        Medians in milliseconds by the clock, and the ratios of the clock times and of the CPU
        times: the median over the turns with its 95 % bootstrap interval.
    """
    embedder.embed_documents(sentences(MESSAGES, repeats))
    embedded = _Embedded(embedder)
    spent: list[tuple[_Clock, _Clock, _Clock, _Clock]] = []
    with (
        tempfile.TemporaryDirectory(dir=folder) as made,
        EntropicMemory.open(
            Path(made) / "memory.db",
            embedder=embedded,
            config=config,
            store=StoreConfig(sleep="manual"),
        ) as memory,
    ):
        for turn in range(repeats):
            texts = sentences(MESSAGES, turn)
            with _Clock() as batch:
                embedded.take(texts, embedder.embed_documents(texts))
            with _Clock() as alone:
                for text in texts:
                    embedder.embed_documents([text])
            with _Clock() as adding:
                for text in texts:
                    memory.add(text)
            with _Clock() as sleeping:
                memory.sleep()
            spent.append((sleeping, batch, adding, alone))
    wall, cpu = (
        np.array([[getattr(clock, kind) for clock in turn] for turn in spent])
        for kind in ("wall", "cpu")
    )
    names = ("sleep_ms", "embedding_ms", "add_100_ms", "embedding_one_by_one_ms")
    figures = dict(zip(names, (np.median(wall, axis=0) * 1000).tolist(), strict=True))
    for what, column in (("sleep_over_embedding", 0), ("add_over_embedding", 2)):
        for kind, table in (("", wall), ("_cpu", cpu)):
            ratios = (table[:, column] / table[:, column + 1]).tolist()
            for name, value in zip(("", "_low", "_high"), median_interval(ratios), strict=True):
                figures[f"{what}{kind}{name}"] = value
    return figures


class _Clock:
    """Seconds of a block, by the clock and of this process's CPU."""

    def __enter__(self) -> Self:
        self.wall, self.cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall = time.perf_counter() - self.wall
        self.cpu = time.process_time() - self.cpu
