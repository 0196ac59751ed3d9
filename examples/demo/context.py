"""What every part of the demo is given, and the little that they share."""

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
    """The stage on which the parts play.

    Attributes:
        console: Where to print.
        handbook: Passages and questions of parts 1 and 3.
        chat: The conversation of part 2.
        model: The local language model.
        embedder: None if none is installed; what needs one is then left out.
        pool: How many passages the model may choose from.
        seed: Of what is drawn, and of the memory.
        results: What was measured, for ``demo.json``; each part adds its own key.
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
        """Print a sentence as it is."""
        self.console.print(text, highlight=False, markup=False)

    def progress(self, label: str, items: Sequence[T]) -> Iterable[T]:
        """The items, with a bar that says how many are left."""
        return track(items, label, console=self.console, transient=True)


def table(texts: Sequence[str], numbers: Sequence[str] = ()) -> Table:
    """An empty table: columns that fold, then columns of numbers, which do not."""
    made = Table()
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
