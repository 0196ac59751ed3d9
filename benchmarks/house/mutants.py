"""``make mutants``: which small faults the tests of a room let pass.

A seeded sample of places in the rooms whose faults lose data, money or meaning; in each, one fault
at a time is made in a copy of the checkout, and of the room's own tests those run that execute the
statement, the quickest first. A mutant that no test fails for has survived.

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
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from difflib import unified_diff
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from benchmarks.house.covering import Covering, import_libraries, record
from benchmarks.house.source import ROOT

if TYPE_CHECKING:
    from cosmic_ray.work_item import WorkItem

QUICK = "not model and not slow and not gpu"
REST = "(model or slow) and not gpu"

PATIENCE = 60.0
"""Seconds of a processor that tests may take beyond five times what they took without a fault.

Then they are taken for endless, which kills the mutant.
"""

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
    """Draw places among all rooms together, and one fault for each, of those that compile.

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
    drawn: list[tuple[Room, WorkItem]] = []
    for place in rng.sample(sorted(places), len(places)):
        if len(drawn) == count:
            break
        item = rng.choice(sorted(places[place], key=_description))
        if _compiles(item):
            drawn.append((room_of[place[0]], item))
    return drawn


def _compiles(item: WorkItem) -> bool:
    """Whether it is Python: a bare ``*`` in a signature becomes another operator, which is not."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    fault = item.mutations[0]
    operator = get_operator(fault.operator_name)(**fault.operator_args)
    code = fault.module_path.read_text("utf-8")
    try:
        ast.parse(mutate_code(code, operator, fault.occurrence))
    except SyntaxError:
        return False
    return True


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


def judge(room: Room, item: WorkItem, covering: Callable[[Room, str], Covering]) -> Verdict:
    """Make one fault in the working directory, run what executes it, take the fault back.

    Args:
        room: Where it is.
        item: The fault.
        covering: What the tests of a room that have some marks execute.
    """
    from cosmic_ray.mutating import use_mutation
    from cosmic_ray.plugins import get_operator

    fault = item.mutations[0]
    line = fault.start_pos[0]
    operator = get_operator(fault.operator_name)(**fault.operator_args)
    killed = False
    for marks in (QUICK, REST):
        covered = covering(room, marks)
        tests = covered.tests_of(str(fault.module_path), line)
        with use_mutation(fault.module_path, operator, fault.occurrence) as (before, after):
            killed = covered.one_fails(tests, PATIENCE)
        if killed:
            break
    place = f"{fault.module_path}:{line}"
    difference = "\n".join(unified_diff(before.splitlines(), after.splitlines(), lineterm=""))
    return Verdict(room.name, place, fault.operator_name, not killed, _changed_lines(difference))


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
    again: Annotated[bool, typer.Option(help="Judge those anew that have survived.")] = False,
) -> None:
    """Draw mutants, run the tests that execute them, and print which survived."""
    chosen = [each for each in ROOMS if not room or each.name in room]
    out = out.absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    verdicts = _read(out)
    import_libraries()
    with copy_of_the_checkout() as folder:
        os.chdir(folder)
        os.environ["PYTHONPATH"] = str(folder)
        drawn = draw(chosen, count, seed)
        covering = _recorder(chosen, out)
        places = list(range(len(verdicts), len(drawn)))
        if again:
            for room_, marks in product(chosen, (QUICK, REST)):
                _kept(room_, marks, out).unlink(missing_ok=True)
            places = [place for place, verdict in enumerate(verdicts) if verdict.survived]
        for place in tqdm(places):
            room_, item = drawn[place]
            verdicts[place : place + 1] = [judge(room_, item, covering)]
            _write(verdicts, out)
    report(verdicts, Console())


def _recorder(rooms: Sequence[Room], out: Path) -> Callable[[Room, str], Covering]:
    """Records what tests execute, once for all rooms that have the same ones."""

    def covering(room: Room, marks: str) -> Covering:
        neighbours = [each for each in rooms if each.tests == room.tests]
        names = [name for each in neighbours for name in each.files]
        files = [str(file) for name in names for file in _python_files(Path(name))]
        return record(room.tests, marks, files, _kept(room, marks, out))

    return covering


def _kept(room: Room, marks: str, out: Path) -> Path:
    speed = "quick" if marks == QUICK else "rest"
    return out.with_suffix(f".{Path(room.tests).name}.{speed}.json")


def _read(out: Path) -> list[Verdict]:
    lines = out.read_text("utf-8").splitlines() if out.exists() else []
    return [Verdict(**json.loads(line)) for line in lines]


def _write(verdicts: Sequence[Verdict], out: Path) -> None:
    lines = [json.dumps(asdict(verdict)) + "\n" for verdict in verdicts]
    out.write_text("".join(lines), "utf-8")


if __name__ == "__main__":
    typer.run(main)
