"""``python -m benchmarks passes``: how much of the package one operation goes through."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Annotated

import typer

import ecs_plugins

PACKAGE = Path(ecs_plugins.__file__).parent
TARGETS = {"add": 10, "recall": 10, "shape": 14}
"""Files of the package that an operation may pass."""

_TURNS = (
    "Nadia: The allotment is ours from May on.",
    "Owen: I sold the red bicycle to Petra.",
    "Petra: The tide mill opens at ten on Sundays.",
    "Nadia: My sister moved to Turku last winter.",
    "Owen: The allotment gate has a new code, 4711.",
    "Petra: I am allergic to walnuts.",
    "Nadia: We met at the harbour in June.",
    "Owen: The boat needs a coat of paint.",
)
_QUESTION = "What is the code of the allotment's gate?"


@dataclass(frozen=True, slots=True)
class Passed:
    """What ran below the package: file -> names of its functions."""

    files: dict[str, list[str]]

    @property
    def functions(self) -> int:
        """How many different functions ran."""
        return sum(map(len, self.files.values()))


def passes(
    model: Annotated[
        bool, typer.Option(help="Shape with the bundled model, not with the fake one.")
    ] = False,
    functions: Annotated[bool, typer.Option(help="Also name the functions.")] = False,
    out: Annotated[Path | None, typer.Option(help="JSON file; printed only without it.")] = None,
) -> None:
    """Files and functions that one add, one recall and one shape pass, with a fake embedder."""
    measured = measure(with_model=model)
    for name, passed in measured.items():
        typer.echo(
            f"{name}: {len(passed.files)} files (at most {TARGETS[name]}), "
            f"{passed.functions} functions"
        )
        for file, names in passed.files.items():
            listed = ": " + ", ".join(names) if functions else ""
            typer.echo(f"  {file} ({len(names)}){listed}")
    if out is not None:
        found = {name: passed.files for name, passed in measured.items()}
        out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        typer.echo(f"wrote {out}")


def measure(*, with_model: bool = False) -> dict[str, Passed]:
    """Every operation on real objects, each done once before it is watched.

    Args:
        with_model: Load the bundled model for ``shape``; else a fake one scores.

    Returns:
        ``add``, ``recall`` and ``shape``.
    """
    from ecs_plugins.lm import FakeLanguageModel, LocalLM
    from ecs_plugins.memory import EntropicMemory
    from ecs_plugins.ranking.embedder import FakeEmbedder
    from ecs_plugins.shaping import ContextShaper

    lm = LocalLM.bundled() if with_model else FakeLanguageModel()
    shaper = ContextShaper(lm, embedder=FakeEmbedder())
    shaper.shape(_QUESTION, _TURNS)
    shaped = watch(lambda: shaper.shape(_QUESTION[:-1], _TURNS))
    with (
        tempfile.TemporaryDirectory() as folder,
        EntropicMemory.open(Path(folder) / "memory.db", embedder=FakeEmbedder()) as memory,
    ):
        for turn in _TURNS:
            memory.add(turn)
        memory.recall(_QUESTION)
        added = watch(lambda: memory.add("Petra: The ferry leaves at noon."))
        recalled = watch(lambda: memory.recall("When does the ferry leave?"))
    return {"add": added, "recall": recalled, "shape": shaped}


def watch(operation: Callable[[], object]) -> Passed:
    """Run an operation and say which functions of the package ran, in all threads."""
    seen: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            seen.add(frame.f_code)

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        operation()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    files: dict[str, set[str]] = {}
    for code in seen:
        path = Path(code.co_filename)
        if path.is_relative_to(PACKAGE) and not code.co_name.startswith("<"):
            files.setdefault(str(path.relative_to(PACKAGE)), set()).add(code.co_qualname)
    return Passed({file: sorted(names) for file, names in sorted(files.items())})
