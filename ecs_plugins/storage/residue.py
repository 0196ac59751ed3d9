"""What erased bytes are still on the pages of an SQLite file.

SQLite overwrites a cell that is deleted, but not the copy that stays behind when a tree is
balanced and the cell moves to a neighbouring page: the copy then stands between the pointers and
the cells of the page that it left. Rows move between neighbours only, so the leaves around the
place of a row are looked through, whatever the size of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

ReadPage = Callable[[int], bytes]
"""Reads the page of a number; the first one is 1."""

NEIGHBOURS = 32
"""Leaves on each side of the one in which a row stood that are looked through."""

_LEAF = 13
"""The first byte of a page that holds rows of a table."""

_INNER = 5
"""The first byte of a page that holds the pages below it."""

_FILE_HEADER = 100
"""Bytes of the file's header, in front of its first page's own."""

_PART = 16
"""Bytes of erased content that count as found."""

_WORD = 8
"""Bytes of a part that are compared as a number first."""


class _Tree(NamedTuple):
    """An inner page: its children in order, and the largest row of each but the last."""

    children: Sequence[int]
    rows: Sequence[int]

    def place(self, row: int) -> int:
        """The place of the child in which a row is, or would be."""
        for place, last in enumerate(self.rows):
            if row <= last:
                return place
        return len(self.rows)


def has_residue(
    read_page: ReadPage,
    roots: Mapping[str, int],
    rows: Mapping[str, Collection[int]],
    erased: Sequence[bytes],
) -> bool:
    """Whether parts of what was erased stand between the cells of a page.

    Args:
        read_page: Of the file, whose log is empty.
        roots: By table, the number of its first page.
        rows: By table, the numbers of the rows that held what was erased.
        erased: Texts and vectors.
    """
    leaves: set[int] = set()
    for table, numbers in rows.items():
        leaves.update(_leaves_around(read_page, roots[table], sorted(numbers)))
    slack = b"".join(_slack(read_page(number), number) for number in sorted(leaves))
    return bool(slack) and _has_part(slack, erased)


def _leaves_around(read_page: ReadPage, root: int, rows: Sequence[int]) -> set[int]:
    """The leaves of a table in which rows would be, and their neighbours."""
    leaves: set[int] = set()
    table = _Table(read_page)
    for row in rows:
        level, place = [root], 0
        while table.tree(level[place]) is not None:
            level, place = table.below(level, place, row)
        leaves.update(level[max(0, place - NEIGHBOURS) : place + NEIGHBOURS + 1])
    return leaves


class _Table:
    """The inner pages of a table, each read once."""

    def __init__(self, read_page: ReadPage) -> None:
        self._read_page = read_page
        self._trees: dict[int, _Tree | None] = {}

    def tree(self, number: int) -> _Tree | None:
        """An inner page; None if it is a leaf."""
        if number not in self._trees:
            self._trees[number] = _tree(self._read_page(number), number)
        return self._trees[number]

    def below(self, level: Sequence[int], place: int, row: int) -> tuple[list[int], int]:
        """The pages under one and its two neighbours, and the place of the one with a row."""
        children: list[int] = []
        chosen = 0
        for sibling in range(max(0, place - 1), min(len(level), place + 2)):
            tree = self.tree(level[sibling])
            assert tree is not None  # all leaves are equally deep
            if sibling == place:
                chosen = len(children) + tree.place(row)
            children += tree.children
        return children, chosen


def _tree(page: bytes, number: int) -> _Tree | None:
    """An inner page; None of a leaf."""
    head = _FILE_HEADER if number == 1 else 0
    if page[head] != _INNER:
        return None
    count = int.from_bytes(page[head + 3 : head + 5])
    children, rows = [], []
    for pointer in range(head + 12, head + 12 + 2 * count, 2):
        cell = int.from_bytes(page[pointer : pointer + 2])
        children.append(int.from_bytes(page[cell : cell + 4]))
        rows.append(_varint(page, cell + 4))
    children.append(int.from_bytes(page[head + 8 : head + 12]))
    return _Tree(children, rows)


def _varint(page: bytes, at: int) -> int:
    """A number of one to nine bytes, seven bits each, as SQLite writes it."""
    value = 0
    for byte in page[at : at + 8]:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value
    return value << 8 | page[at + 8]


def _slack(page: bytes, number: int) -> bytes:
    """What is not zero between the pointers and the cells of a leaf."""
    head = _FILE_HEADER if number == 1 else 0
    if not page or page[head] != _LEAF:
        return b""
    cell_count = int.from_bytes(page[head + 3 : head + 5])
    first_cell = int.from_bytes(page[head + 5 : head + 7]) or len(page)
    end_of_pointers = head + 8 + 2 * cell_count
    stale = page[end_of_pointers:first_cell].strip(b"\0")
    return stale + b"\0" if stale else b""


def _has_part(slack: bytes, erased: Sequence[bytes]) -> bool:
    """Whether a piece of what was erased stands in the slack."""
    parts = {part for content in erased for part in _parts(content)}
    short = [part for part in parts if len(part) < _WORD]
    if any(part in slack for part in short):
        return True
    long = [part for part in parts if len(part) >= _WORD]
    if not long:
        return False
    beginnings = np.frombuffer(b"".join(part[:_WORD] for part in long), dtype=np.uint64)
    standing = np.isin(beginnings, _words(slack))
    return any(long[place] in slack for place in np.flatnonzero(standing).tolist())


def _words(slack: bytes) -> npt.NDArray[np.uint64]:
    """The numbers that begin at each byte."""
    shifted = []
    for start in range(_WORD):
        count = (len(slack) - start) // _WORD
        if count > 0:
            shifted.append(np.frombuffer(slack, dtype=np.uint64, count=count, offset=start))
    return np.concatenate(shifted) if shifted else np.empty(0, dtype=np.uint64)


def _parts(content: bytes) -> Iterator[bytes]:
    """Pieces of erased content; what is shorter than one is a piece by itself."""
    if not content:
        return
    end = max(1, len(content) - _PART + 1)
    for start in range(0, end, _PART):
        yield content[start : start + _PART]
