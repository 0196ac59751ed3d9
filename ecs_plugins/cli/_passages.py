"""Passages from a file or a pipe; an invalid line is refused with its number.

They are JSON records (one per line, or one list of them), or plain text: a passage per paragraph
where there are blank lines, else per line. The file's name decides, and where that says nothing
the first character.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from pathlib import Path

from ecs_plugins.errors import InvalidInputError

STDIN = "-"
TEXT_KEYS = ("text", "page_content", "content")
"""Where a record's passage is looked for; the first key that it has."""

_JSON = re.compile(r'\s*+(\{|\[\s*+[{"])')
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")


def read_passages(source: str) -> list[str]:
    """Return the passages of a file, or of standard input where ``source`` is ``-``."""
    text = read_text(source)
    suffix = Path(source).suffix.lower() if source != STDIN else ""
    if suffix in (".csv", ".tsv"):
        # As lines, its header and its other columns would be scored as text.
        raise InvalidInputError(f'{source}: tables are not read; write {{"text": "..."}} records')
    if suffix in (".jsonl", ".ndjson", ".json") or (not suffix and _JSON.match(text)):
        passages = _from_json(source, text)
    else:
        parts = _BLANK_LINE.split(text.strip())
        parts = parts if len(parts) > 1 else text.splitlines()
        passages = [part.strip() for part in parts if part.strip()]
    if not passages:
        raise InvalidInputError(f"{_name(source)} holds no passages; give it at least one")
    return passages


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
            f"{_name(source)}, line {line}: not UTF-8; convert it first, e.g. with iconv"
        ) from None


def _from_json(source: str, text: str) -> list[str]:
    name = _name(source)
    records = None
    with contextlib.suppress(ValueError, RecursionError):
        records = json.loads(text)
    if isinstance(records, list):
        return [_text_of(each, f"{name}, record {n}") for n, each in enumerate(records, 1)]
    found = []
    for number, line in enumerate(text.split("\n"), 1):  # a JSON string may hold U+2028 as it is
        if line.strip():
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InvalidInputError(
                    f"{name}, line {number}: not JSON ({getattr(error, 'msg', error)}); "
                    'one record per line is expected, such as {"text": "..."}'
                ) from None
            found.append(_text_of(record, f"{name}, line {number}"))
    return found


def _text_of(record: object, where: str) -> str:
    if isinstance(record, str):
        found: object = record
    elif isinstance(record, dict):
        found = next((record[key] for key in TEXT_KEYS if key in record), None)
    else:
        raise InvalidInputError(
            f'{where}: a record must be an object with "text" or a string, '
            f"got {type(record).__name__}"
        )
    if not isinstance(found, str):
        raise InvalidInputError(f'{where}: the record has no "text" that is a string')
    try:
        found.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(f"{where}: the text holds half of a surrogate pair") from None
    return found


def _name(source: str) -> str:
    return "standard input" if source == STDIN else source
