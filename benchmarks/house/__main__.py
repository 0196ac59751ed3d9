"""``make house``: measures beside their limits, sizes, and whatever breaks a rule."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

from benchmarks.house.figures import figures, needless_exceptions, too_complex
from benchmarks.house.imports import House
from benchmarks.house.limits import AIMS, LIMITS, STAYS, STAYS_AIMED_AT
from benchmarks.house.source import (
    PACKAGE,
    SourceFile,
    density,
    lines_beside_python,
    longest,
    read_folder,
)
from benchmarks.house.stays import measured


def main() -> None:
    """Print everything; ``--draw`` the drawing of the docs alone."""
    house = House()
    if "--draw" in sys.argv:
        print(house.drawing(), end="")  # noqa: T201
        return
    console = Console()
    console.print(_limits(house))
    console.print(_stays())
    console.print(_sizes())
    for title, lines in _breaches(house).items():
        for line in lines:
            console.print(f"[red]{title}:[/] {line}")


def _limits(house: House) -> Table:
    table = Table("", "today", "at most", "aim", title="The house")
    for name, value in figures(house).items():
        limit = LIMITS[name]
        aim = AIMS.get(name, limit)
        table.add_row(name, _coloured(value, limit), f"{limit:,}", f"{aim:,}")
    return table


def _stays() -> Table:
    table = Table("one call of", "changes file", "at most", "aim")
    for name, count in measured().items():
        limit = STAYS[name]
        aim = STAYS_AIMED_AT[name]
        table.add_row(name, _coloured(count, limit), str(limit), str(aim))
    return table


def _coloured(value: float, most: float) -> str:
    colour = "red" if value > most else "green"
    return f"[{colour}]{value:,}[/]"


def _sizes() -> Table:
    table = Table("folder", "lines", "of code", "files", "tokens per line", "lines of the longest")
    files = read_folder(PACKAGE)
    rooms: dict[str, list[SourceFile]] = {}
    for file in files:
        room = file.path.split("/")[1]
        rooms.setdefault("(root)" if room.endswith(".py") else room, []).append(file)
    for room in sorted(rooms):
        table.add_row(*_size(room, rooms[room]))
    table.add_section()
    for name in (PACKAGE, "tests", "benchmarks", "examples"):
        table.add_row(*_size(name, read_folder(name)))
    table.add_section()
    for kind, lines in lines_beside_python().items():
        table.add_row(f"{PACKAGE}, {kind}", f"{lines:,}")
    return table


def _size(name: str, files: list[SourceFile]) -> tuple[str, ...]:
    lines = sum(file.lines for file in files)
    code = sum(file.code for file in files)
    return (
        name,
        f"{lines:,}",
        f"{code:,}",
        str(len(files)),
        f"{density(files):.2f}",
        str(longest(files).lines),
    )


def _breaches(house: House) -> dict[str, list[str]]:
    return {
        "circle": [", ".join(circle) for circle in house.circles()],
        "arrow": house.wrong_arrows(),
        "at the root": house.strangers(),
        "several classes are called": house.namesakes(),
        "too complex": [f"{name} ({number})" for name, number in too_complex().items()],
        "no exception any more": needless_exceptions(),
    }


if __name__ == "__main__":
    main()
