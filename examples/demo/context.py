"""Shared inputs and helpers of the demo's parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rich.console import Console
from rich.progress import track
from rich.table import Table

from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.ranking.embedder import Embedder
from examples.demo.data import Chat
from examples.demo.handbook import Handbook

T = TypeVar("T")


@dataclass(frozen=True)
class Demo:
    """Inputs and results of the demo's parts.

    Attributes:
        console: Where to print.
        handbook: Passages and questions of parts 1 and 3.
        chat: The conversation of part 2.
        model: The local language model.
        embedder: None if none is installed; parts that need one are then skipped.
        pool: Number of passages that the model may choose from.
        seed: Seed of the drawn questions and of the memory.
        results: Figures for ``demo.json``; each part adds its own key.
    """

    console: Console
    handbook: Handbook
    chat: Chat
    model: LanguageModel
    embedder: Embedder | None
    pool: int
    seed: int
    results: dict[str, object] = field(default_factory=dict)

    def say(self, text: str) -> None:
        """Print a sentence without markup."""
        self.console.print(text, highlight=False, markup=False)

    def progress(self, label: str, items: Sequence[T]) -> Iterable[T]:
        """Return the items with a progress bar."""
        return track(items, label, console=self.console, transient=True)


def table(texts: Sequence[str], numbers: Sequence[str] = ()) -> Table:
    """Return an empty table with folding text columns and then columns of numbers."""
    made = Table()
    for name in texts:
        made.add_column(name, overflow="fold")
    for name in numbers:
        made.add_column(name, justify="right", no_wrap=True)
    return made


def shorten(text: str, width: int) -> str:
    """Return at most ``width`` characters, cut at a word."""
    text = " ".join(text.split())
    if len(text) <= width:
        return text
    return text[: width - 1].rsplit(" ", 1)[0] + "…"
