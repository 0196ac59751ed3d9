"""Configurations by the paths of their keys: YAML by its indentation, INI by sections, JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from ecs_plugins.shaping.lines import Block, Kind, TextLine, each_filled, filled, whole

_MIN_KEYS = 3
_KEY = re.compile(
    r"""[^\S\n]*+(?P<dash>-[^\S\n]++)?
        (?P<key>"[^"\n]{1,60}"|'[^'\n]{1,60}'|[\w$@/<][\w./$@<>() -]{0,60}?)\s?
        (?::(?=\s|$)|=(?!=))""",
    re.VERBOSE,
)
_DASHED = re.compile(r"[^\S\n]*+-(?:\s|$)")
_SECTION = re.compile(r"\[\[?[^\]\n]{1,80}\]\]?\s*$")
_REMARK = re.compile(r"[^\S\n]*+[#;]")
_MOSTLY_KEYS = 0.7


class KeyLines(NamedTuple):
    """Lines of a configuration.

    Attributes:
        blocks: Each as deep as it is indented; a remark belongs to the next.
        are_flat: Whether no key stands below another one.
        come_again: Whether a key is there twice, or stands further in than another one.
    """

    blocks: list[Block]
    are_flat: bool
    come_again: bool


def key_lines(lines: Sequence[TextLine]) -> KeyLines | None:
    """The keys of some lines; None where most of them have none."""
    texts = [line for line in filled(lines) if not _REMARK.match(line.text)]
    names = _names(texts)
    sections = [line for line in texts if _SECTION.match(line.text)]
    if len(texts) < _MIN_KEYS or not names:
        return None
    if len(names) + len(sections) < _MOSTLY_KEYS * len(texts):
        return None
    are_flat = not sections and not _are_nested(texts)
    indents = {line.indent for line in texts}
    are_repeated = len(set(names)) < len(texts)
    come_again = are_repeated or len(indents) > 1
    blocks = _as_blocks(lines)
    return KeyLines(blocks, are_flat, come_again)


def _names(lines: Sequence[TextLine]) -> list[str]:
    """The names of the keys that lines begin with."""
    found = [_KEY.match(line.text) for line in lines]
    return [match["key"] for match in found if match]


def _are_nested(lines: Sequence[TextLine]) -> bool:
    """Whether a line stands below a key that has no value on its own line."""
    for line, below in pairwise(lines):
        if not line.text.rstrip().endswith(":"):
            continue
        is_dashed = _DASHED.match(below.text) is not None
        if is_dashed or below.indent > line.indent:
            return True
    return False


def _as_blocks(lines: Sequence[TextLine]) -> list[Block]:
    blocks: list[Block] = []
    waiting: list[TextLine] = []
    for line in lines:
        if blocks and not waiting and _goes_on(blocks[-1], line):
            blocks[-1] = blocks[-1].longer([line])
        elif line.blank or _REMARK.match(line.text):
            waiting.append(line)
        else:
            key = (*waiting, line)
            depth = _depth(line)
            blocks.append(Block(Kind.KEY, key, depth))
            waiting = []
    if waiting:
        blocks.append(whole(waiting))
    return blocks


def _goes_on(key: Block, line: TextLine) -> bool:
    """Whether a line belongs to the key before it: a blank one, or more of a long value."""
    if line.blank:
        return True
    beginnings = (_KEY, _DASHED, _SECTION, _REMARK)
    if any(beginning.match(line.text) for beginning in beginnings):
        return False
    last = key.lines[-1]
    return line.indent > last.indent


def _depth(line: TextLine) -> int:
    """Deeper than all above it that it belongs to; a dash is half a step deeper than its key."""
    if _SECTION.match(line.text):
        return 0
    if _DASHED.match(line.text):
        return 2 * line.indent + 2
    return 2 * line.indent + 1


def json_values(lines: Sequence[TextLine]) -> list[Block] | None:
    """A JSON value by its keys, with what opens and closes them; or one value a line."""
    texts = [line.text for line in filled(lines)]
    if not texts[0].lstrip().startswith(("{", "[")):
        return None
    if len(texts) > 1 and all(map(_is_json, texts)):
        return [whole(value) for value in each_filled(lines)]
    if not _is_json("\n".join(texts)):
        return None
    blocks: list[Block] = []
    depth = 0
    for key in each_filled(lines):
        text = "".join(line.text for line in key).strip()
        closes = text.startswith(("}", "]"))
        if closes:
            depth -= 1
        blocks.append(Block(Kind.KEY, key, depth, closes=closes))
        if text.endswith(("{", "[")):
            depth += 1
    return blocks


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
