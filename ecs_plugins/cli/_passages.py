"""Reading passages from a file or a pipe; what cannot be used is refused, with its line.

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
    """Read the passages of a file, or of standard input where ``source`` is ``-``.

    Raises:
        InvalidInputError: Nothing there, not UTF-8, or a line that is not a passage.
    """
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
    """The text of a file, or of standard input, without a byte order mark.

    Raises:
        InvalidInputError: Nothing there, or not UTF-8.
    """
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
    records = None
    with contextlib.suppress(ValueError, RecursionError):
        records = json.loads(text)
    if isinstance(records, list):
        places = enumerate(records, start=1)
        return [_text_of(record, f"{_name(source)}, record {number}") for number, record in places]
    # Not splitlines: a JSON string may hold U+2028 as it is.
    lines = enumerate(text.split("\n"), start=1)
    return [_line(line, f"{_name(source)}, line {n}") for n, line in lines if line.strip()]


def _line(line: str, where: str) -> str:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise InvalidInputError(
            f"{where}: not JSON ({reason}); "
            'one record per line is expected, such as {"text": "..."}'
        ) from None
    return _text_of(record, where)


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
