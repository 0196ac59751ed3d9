"""What every part of the demo is given, and the little that they share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.ranking.embedder import Embedder
from examples.demo.data import ExampleData

T = TypeVar("T")


@dataclass(frozen=True)
class Demo:
    """The stage on which the parts play.

    Attributes:
        console: Where to print.
        data: The example data.
        model: The local language model.
        embedder: None if none is installed; what needs one is then left out.
        out: Folder for figures and tables; exists.
        limit: How many questions to take.
        pool: How many turns the model may choose from.
        results: What was measured, for ``demo.json``; each part adds its own key.
    """

    console: Console
    data: ExampleData
    model: LanguageModel
    embedder: Embedder | None
    out: Path
    limit: int
    pool: int
    results: dict[str, object] = field(default_factory=dict)

    def say(self, text: str) -> None:
        """Print a sentence as it is."""
        self.console.print(text, highlight=False, markup=False)

    def progress(self, label: str, items: Sequence[T]) -> Iterable[T]:
        """The items, with a bar that says how many are left."""
        return track(items, label, console=self.console, transient=True)


class RememberingEmbedder:
    """An embedder that computes each document once, as a vector store would."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: dict[str, NDArray[np.float32]] = {}
        self.name = embedder.name
        self.dimension = embedder.dimension

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Shape ``[n, dimension]``."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known.update(zip(new, self._embedder.embed_documents(new), strict=True))
        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        return np.stack([self._known[text] for text in texts])

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Shape ``[dimension]``."""
        return self._embedder.embed_query(text)


def table(
    title: str, texts: Sequence[str], numbers: Sequence[str] = (), caption: str = ""
) -> Table:
    """An empty table: columns that fold, then columns of numbers, which do not."""
    made = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for name in texts:
        made.add_column(name, overflow="fold")
    for name in numbers:
        made.add_column(name, justify="right", no_wrap=True)
    return made


def shorten(text: str, width: int) -> str:
    """At most ``width`` characters, cut at a word."""
    text = " ".join(text.split())
    if len(text) <= width:
        return text
    return text[: width - 1].rsplit(" ", 1)[0] + "…"
