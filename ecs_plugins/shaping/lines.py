"""The lines of a text, and the blocks of lines that are read together."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

_LINE = re.compile(r"[^\r\n]*+(?:\r\n?|\n)|[^\r\n]++")


class Kind(StrEnum):
    """What a block is."""

    PROSE = "prose"
    """Sentences, over any number of lines."""
    ITEM = "item"
    """Sentences behind the mark of a list."""
    HEADING = "heading"
    ROW_HEAD = "row_head"
    """What every row behind it needs: the header of a table, the first line of a CSV."""
    ROW = "row"
    KEY = "key"
    """A line of a configuration: it needs those above it that stand less deep."""
    TURN = "turn"
    """What one person says in a chat, behind the name."""
    QUOTE = "quote"
    """What somebody else said, with a mark before each line; it stays or goes whole."""
    WHOLE = "whole"
    """What stays or goes whole: code, a log entry, a cue of subtitles."""


class TextLine(NamedTuple):
    """One line: its text without the line break, and where it stands with it."""

    start: int
    end: int
    text: str

    @property
    def indent(self) -> int:
        """Columns of white space before the text."""
        wide = self.text.expandtabs()
        return len(wide) - len(wide.lstrip())

    @property
    def blank(self) -> bool:
        """Whether it holds nothing but white space."""
        return not self.text.strip()


class Block(NamedTuple):
    """Neighbouring lines that are read together.

    Attributes:
        kind: What they are.
        lines: At least one; blank ones at the end separate it from the next block.
        depth: How deep it stands, for headings, keys, items and quotations.
        head: Characters at its beginning that say who speaks or what kind of item it is.
        inside: Whether it stands in an item of a list, without a mark of its own.
        closes: Whether a key only closes what one above it opens.
    """

    kind: Kind
    lines: tuple[TextLine, ...]
    depth: int = 0
    head: int = 0
    inside: bool = False
    closes: bool = False

    @property
    def start(self) -> int:
        """Its first character."""
        return self.lines[0].start

    @property
    def end(self) -> int:
        """One past its last character."""
        return self.lines[-1].end

    def longer(self, lines: Sequence[TextLine]) -> Block:
        """The same with further lines behind it."""
        return self._replace(lines=(*self.lines, *lines))


def lines_of(text: str) -> list[TextLine]:
    """The lines of a text, with where they stand."""
    found: list[TextLine] = []
    for line in _LINE.finditer(text):
        shown = line.group().rstrip("\r\n")
        found.append(TextLine(line.start(), line.end(), shown))
    return found


def filled(lines: Sequence[TextLine]) -> list[TextLine]:
    """The lines that hold text."""
    return [line for line in lines if not line.blank]


def whole(lines: Sequence[TextLine], *, inside: bool = False) -> Block:
    """A block that stays or goes whole."""
    return Block(Kind.WHOLE, tuple(lines), inside=inside)


def grouped(
    lines: Sequence[TextLine],
    begins: Callable[[TextLine], bool],
    kind: Kind = Kind.WHOLE,
) -> list[Block]:
    """One block from each line that begins one to the next; what comes first is one, too."""
    groups: list[list[TextLine]] = []
    for line in lines:
        if not groups or begins(line):
            groups.append([])
        groups[-1].append(line)
    return [Block(kind, tuple(group)) for group in groups]


def each_filled(lines: Sequence[TextLine]) -> list[tuple[TextLine, ...]]:
    """Each line that holds text with the blank ones behind it; the first with those before it."""
    first = filled(lines)[0]

    def begins(line: TextLine) -> bool:
        return not line.blank and line != first

    return [block.lines for block in grouped(lines, begins)]
