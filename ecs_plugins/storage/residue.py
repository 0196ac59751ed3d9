"""What erased bytes are still on the pages of an SQLite file.

SQLite overwrites a cell that is deleted, but not the copy that stays behind when a tree is
balanced and the cell moves to another page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_TABLE_LEAF = 13
"""The first byte of a page that holds rows of a table."""

_FILE_HEADER = 100
"""Bytes of the file's header, in front of its first page's own."""

_PART = 16
"""Bytes of erased content that count as found."""

_LARGEST_SEARCH = 1 << 33
"""Bytes of slack times bytes of erased content that are searched."""


def has_residue(file: bytes, page_size: int, erased: Sequence[bytes]) -> bool:
    """Whether parts of what was erased stand between the cells of a page.

    Too much to be searched counts as True.
    """
    slack = b"".join(_slack(file, page_size))
    if len(slack) * sum(map(len, erased)) > _LARGEST_SEARCH:
        return True
    return any(part in slack for content in erased for part in _parts(content))


def _parts(content: bytes) -> Iterator[bytes]:
    """Pieces of erased content; what is shorter than one is a piece by itself."""
    if not content:
        return
    end = max(1, len(content) - _PART + 1)
    for start in range(0, end, _PART):
        yield content[start : start + _PART]


def _slack(file: bytes, page_size: int) -> Iterator[bytes]:
    """What is not zero between the pointers and the cells of each leaf of a table."""
    for page in range(0, len(file), page_size):
        head = page if page else _FILE_HEADER
        if file[head] != _TABLE_LEAF:
            continue
        cell_count = int.from_bytes(file[head + 3 : head + 5])
        first_cell = int.from_bytes(file[head + 5 : head + 7])
        end_of_pointers = head + 8 + 2 * cell_count
        stale = file[end_of_pointers : page + first_cell].strip(b"\0")
        if stale:
            yield stale + b"\0"
