"""``make mutants``: which small faults the tests of a room let pass.

A seeded sample of places in the rooms whose faults lose data, money or meaning; in each, one fault
at a time is made in a copy of the checkout, and the room's own tests run. A mutant that no test
fails for has survived.

cosmic-ray makes the faults. It changes one token of the source on disk and runs any command, so
that code outside functions is mutated too and nothing else differs from what ships; tools that
wrap every function change what tests see of signatures and stacks. Nobody evaluates an annotation
in this package, so faults in annotations are left out.
"""

from __future__ import annotations

import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from benchmarks.house.source import ROOT

if TYPE_CHECKING:
    from cosmic_ray.work_item import WorkItem

TIMEOUT = 600.0
"""Seconds after which the tests of a mutant are taken for endless, which kills it."""

QUICK = "not model and not slow and not gpu"
REST = "(model or slow) and not gpu"

_UNEVALUATED = ("annotation", "returns")


@dataclass(frozen=True, slots=True)
class Room:
    """Files to mutate, and the tests that ought to notice.

    Attributes:
        name: What the table calls it.
        files: Files and folders of the package.
        tests: Their folder of tests.
    """

    name: str
    files: Sequence[str]
    tests: str


ROOMS = (
    Room("memory/store", ("ecs_plugins/memory/store",), "tests/unit/memory"),
    Room("memory/contest", ("ecs_plugins/memory/contest.py",), "tests/unit/memory"),
    Room("memory/supersession", ("ecs_plugins/memory/supersession.py",), "tests/unit/memory"),
    Room("frontier/rental", ("ecs_plugins/frontier/rental.py",), "tests/unit/frontier"),
    Room("frontier/reuse", ("ecs_plugins/frontier/reuse.py",), "tests/unit/frontier"),
    Room("shaping/acceptance", ("ecs_plugins/shaping/acceptance.py",), "tests/unit/shaping"),
    Room("shaping/sentences", ("ecs_plugins/shaping/sentences.py",), "tests/unit/shaping"),
    Room("lm/scoring/planner", ("ecs_plugins/lm/scoring/planner.py",), "tests/unit/lm"),
    Room("lm/scoring/prefix", ("ecs_plugins/lm/scoring/prefix.py",), "tests/unit/lm"),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one mutant.

    Attributes:
        room: Name of its room.
        place: ``file:line``.
        operator: The kind of fault, by cosmic-ray's name.
        survived: Whether every test passed.
        difference: The changed lines.
    """

    room: str
    place: str
    operator: str
    survived: bool
    difference: str


def draw(rooms: Sequence[Room], count: int, seed: int) -> list[tuple[Room, WorkItem]]:
    """Draw places among all rooms together, and one fault for each.

    Paths are relative to the working directory.
    """
    places: dict[tuple[str, tuple[int, int]], list[WorkItem]] = {}
    room_of: dict[str, Room] = {}
    for room in rooms:
        for item in _possible(room):
            fault = item.mutations[0]
            path = str(fault.module_path)
            room_of[path] = room
            places.setdefault((path, fault.start_pos), []).append(item)
    rng = random.Random(seed)
    chosen = rng.sample(sorted(places), min(count, len(places)))
    drawn = [rng.choice(sorted(places[place], key=_description)) for place in chosen]
    return [(room_of[place[0]], item) for place, item in zip(chosen, drawn, strict=True)]


def _description(item: WorkItem) -> tuple[str, int]:
    fault = item.mutations[0]
    return fault.operator_name, fault.occurrence


def _possible(room: Room) -> Iterator[WorkItem]:
    from cosmic_ray.commands import init
    from cosmic_ray.work_db import use_db

    files = [file for name in room.files for file in _python_files(Path(name))]
    unevaluated = {str(file): _annotation_spans(file) for file in files}
    with tempfile.TemporaryDirectory() as folder, use_db(Path(folder) / "items.sqlite") as items:
        init(files, items, {})
        for item in items.work_items:
            fault = item.mutations[0]
            spans = unevaluated[str(fault.module_path)]
            if not any(start <= fault.start_pos < end for start, end in spans):
                yield item


def _python_files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _annotation_spans(file: Path) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where annotations begin and end, as (line, column)."""
    spans = []
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        for name in _UNEVALUATED:
            annotation = getattr(node, name, None)
            if isinstance(annotation, ast.expr):
                start = (annotation.lineno, annotation.col_offset)
                end = (annotation.end_lineno or 0, annotation.end_col_offset or 0)
                spans.append((start, end))
    return spans


def judge(room: Room, item: WorkItem) -> Verdict:
    """Make one fault in the working directory, run the room's tests, take the fault back."""
    from cosmic_ray.mutating import mutate_and_test
    from cosmic_ray.work_item import TestOutcome

    fault = item.mutations[0]
    survived = False
    difference = ""
    for marks in (QUICK, REST):
        result = mutate_and_test(item.mutations, _command(room, marks), TIMEOUT)
        survived = result.test_outcome == TestOutcome.SURVIVED
        difference = _changed_lines(result.diff or "")
        if not survived:
            break
    place = f"{fault.module_path}:{fault.start_pos[0]}"
    return Verdict(room.name, place, fault.operator_name, survived, difference)


def _command(room: Room, marks: str) -> str:
    # Exit code 5 says that no test has these marks, which is no failure.
    code = (
        "import sys, pytest; "
        f"code = pytest.main(['-q', '-x', '-p', 'no:cacheprovider', '-m', '{marks}', "
        f"'{room.tests}']); "
        "sys.exit(0 if code == 5 else code)"
    )
    return f'{sys.executable} -c "{code}"'


def _changed_lines(difference: str) -> str:
    lines = difference.splitlines()
    changed = [line for line in lines if line.startswith(("+", "-"))]
    return "\n".join(line for line in changed if not line.startswith(("+++", "---")))


@contextmanager
def copy_of_the_checkout() -> Iterator[Path]:
    """A directory with what git tracks; faults are made there."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        for name in filter(None, listed.stdout.split("\0")):
            target = Path(folder) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
        yield Path(folder)


def report(verdicts: Sequence[Verdict], console: Console) -> None:
    """Print the share that was killed, by room, and every survivor."""
    table = Table("room", "mutants", "killed", "share")
    for name in dict.fromkeys(verdict.room for verdict in verdicts):
        table.add_row(name, *_share([each for each in verdicts if each.room == name]))
    table.add_section()
    table.add_row("all", *_share(verdicts))
    console.print(table)
    for verdict in verdicts:
        if verdict.survived:
            console.print(f"[red]survived[/] {verdict.place} {verdict.operator}")
            console.print(verdict.difference, markup=False, highlight=False)


def _share(verdicts: Sequence[Verdict]) -> tuple[str, str, str]:
    killed = sum(not verdict.survived for verdict in verdicts)
    return str(len(verdicts)), str(killed), f"{killed / len(verdicts):.0%}"


def main(
    count: Annotated[int, typer.Option(help="How many mutants to draw.")] = 200,
    seed: Annotated[int, typer.Option(help="Of the draw.")] = 0,
    room: Annotated[list[str] | None, typer.Option(help="A room; all without.")] = None,
    out: Annotated[Path, typer.Option(help="Verdicts, a line each; a second run goes on.")] = Path(
        "out/mutants.jsonl"
    ),
) -> None:
    """Draw mutants, run the tests of their rooms, and print which survived."""
    chosen = [each for each in ROOMS if not room or each.name in room]
    out = out.absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    lines = out.read_text("utf-8").splitlines() if out.exists() else []
    verdicts = [Verdict(**json.loads(line)) for line in lines]
    with copy_of_the_checkout() as folder, out.open("a", encoding="utf-8") as stream:
        os.chdir(folder)
        os.environ["PYTHONPATH"] = str(folder)
        drawn = draw(chosen, count, seed)
        for room_, item in tqdm(drawn[len(verdicts) :], initial=len(verdicts), total=len(drawn)):
            verdict = judge(room_, item)
            verdicts.append(verdict)
            print(json.dumps(asdict(verdict)), file=stream, flush=True)
    report(verdicts, Console())


if __name__ == "__main__":
    typer.run(main)
