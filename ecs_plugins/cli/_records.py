"""JSON records of a file or a pipe; an invalid line is refused with its number."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from ecs_plugins.errors import InvalidInputError

STDIN = "-"


def read_text(source: str) -> str:
    """Return the text of a file, or of standard input, without a byte order mark."""
    try:
        data = sys.stdin.buffer.read() if source == STDIN else Path(source).read_bytes()
    except OSError as error:
        raise InvalidInputError(
            f"{source} cannot be read: {error.strerror}; name a file, or - for standard input"
        ) from error
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidInputError(
            f"{source}, line {line}: not UTF-8; convert it first, e.g. with iconv"
        ) from None


def json_records(text: str, name: str) -> Iterator[tuple[str, object]]:
    """Yield the records of a JSON list, or one record per line, each with its place."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        whole = None
    if isinstance(whole, list):
        for number, record in enumerate(whole, 1):
            yield f"{name}, record {number}", record
        return
    if whole is not None:
        yield name, whole
        return
    for number, line in enumerate(text.split("\n"), 1):  # a JSON string may hold U+2028 as it is
        if line.strip():
            place = f"{name}, line {number}"
            try:
                yield place, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InvalidInputError(
                    f"{place}: not JSON ({error}); write one record per line"
                ) from None
