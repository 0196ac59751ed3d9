"""What every part of the demo is given, and the little that they share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from examples.demo.data import ExampleData

if TYPE_CHECKING:
    from ecs_plugins.lm.base import LanguageModel
    from ecs_plugins.ranking.embedder import Embedder


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
        results: What was measured, for ``demo.json``; each part adds its own key.
    """

    console: Console
    data: ExampleData
    model: LanguageModel
    embedder: Embedder | None
    out: Path
    limit: int
    results: dict[str, object] = field(default_factory=dict)

    @contextmanager
    def progress(self, label: str, total: int) -> Iterator[Progress]:
        """A bar with time left; advance its only task, 0."""
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("spent"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console, transient=True) as bar:
            bar.add_task(label, total=total)
            yield bar


def shorten(text: str, width: int) -> str:
    """At most ``width`` characters, cut at a word."""
    text = " ".join(text.split())
    if len(text) <= width:
        return text
    return text[: width - 1].rsplit(" ", 1)[0] + "…"
