"""Structure that no mark tells, by its look: rows, key paths, turns, log lines, cues, code.

Each look is given lines and either knows them, and says of which blocks they are made, or does not,
and gives None. Taking prose for code costs nothing but a coarser cut: such a block stays or goes
whole. Taking code for prose would cut it so that it says something else.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple, TypeAlias


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


class Line(NamedTuple):
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
    lines: tuple[Line, ...]
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


Look: TypeAlias = Callable[[Sequence[Line]], list[Block] | None]

_TIMING = re.compile(r"\s*+(?:\d{1,2}:)?\d{1,2}:\d{2}[.,]\d{1,3}\s*+-->")
_SENTENCE_ENDS = tuple(".!?…。！？؟।")
_CLOSING = " 	\"'”’)]*_»"
_DELIMITERS = (",", "\t", ";", "|")
_MIN_ROWS = 3

_CLOCK = r"\d{1,2}:\d{2}(?::\d{2})?(?:\s?[AaPp][Mm])?"
_DATE = r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}"
_TURN = re.compile(
    rf"""\s*+(?P<stamp>
            [(\[](?=[^\s)\]]{{1,30}}[)\]]|[^\n)\]]{{0,50}}\d)[^\n)\]]{{1,60}}[)\]][^\S\n]*+(?:-\s)?
          | (?:{_DATE},?\s)?{_CLOCK}\s(?:-\s)?
        )?
        (?:<(?P<nick>[^<>\n]{{1,40}})>\s
          |(?P<name>[^\W\d_][^:：\n?？!.,;()]{{0,39}}?)\s*+(?::(?=\s|$)|：)\s*+)""",
    re.VERBOSE,
)
_ROLE_LIST = "user assistant system human ai bot agent customer support q a"
_ROLES = frozenset(_ROLE_LIST.split())
_MAX_NAME_WORDS = 3
_MAX_VALUE_WORDS = 3
_LOGGED = re.compile(
    r"\W?(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\d\d:\d\d:\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)"
)

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

_CODE_LINE = re.compile(
    r"""[^\S\n]*+(?:
        (?:async\s)?(?:def|class|func|fn|function|interface|struct|enum|impl|module|namespace)\s\w
      | (?:import|from|package|using|include|require|export|return|let|const|var|val|elif|throw)\s
            (?:[\w.*{"'(\[@$]|$)[^.\n]{0,200}(?:;|$|\.\w)
      | (?:public|private|protected|static|final|void|int|bool|string)\s\w+
      | (?:if|for|while|switch|try|else|except|catch|with|elif|match|case|do)\b[^.\n]{0,200}[:{]\s*$
      | (?:return|break|continue|pass|end|fi|done|esac|yield|raise)\b[^.\n]{0,80}$
      | [\w.\[\]"'$*&>-]{1,60}(?:\s?:\s?[\w\[\], .|]{1,40})?\s*+(?:=|\+=|-=|:=|<-|=>)\s*+\S
      | [\w.$:>-]{1,80}\([^\n]{0,300}\)[^\w\n]{0,4}$
      | (?://|/\*|\*/|\#!|\#include|\#define|>>>\s|\$\s|@\w+[(\n]|--\s)
      | </?[A-Za-z!?][^>\n]{0,200}>?
      | [)\]}]{1,4}[;,)]{0,3}\s*$
      | (?:SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|FROM|WHERE|JOIN|GROUP\sBY|ORDER\sBY)\s
      | (?:pip|npm|git|docker|curl|cd|sudo|apt|apt-get|make|python3?|kubectl|cargo|brew|export)\s\S
      )""",
    re.VERBOSE,
)
_CODE_ENDS = ("{", "}", ";", "):", "\\")
_CODE_SHARE = 0.5
_GOES_ON = re.compile(r"[)\]}]|(?:else|elif|except|finally|catch|end|fi|done|esac)\b")


def filled(lines: Sequence[Line]) -> list[Line]:
    """The lines that hold text."""
    return [line for line in lines if not line.blank]


def grouped(
    lines: Sequence[Line], begins: Callable[[Line], bool], kind: Kind = Kind.WHOLE
) -> list[Block]:
    """One block from each line that begins one to the next; what comes first is one, too."""
    groups: list[list[Line]] = []
    for line in lines:
        if not groups or begins(line):
            groups.append([])
        groups[-1].append(line)
    return [Block(kind, tuple(group)) for group in groups]


def subtitles(lines: Sequence[Line]) -> list[Block] | None:
    """Cues with their times; those that share a sentence are one block."""
    times = [place for place, line in enumerate(lines) if _TIMING.match(line.text)]
    if not times:
        return None
    firsts = {place - 1 if place and lines[place - 1].text.strip().isdigit() else place
              for place in times}  # fmt: skip
    if min(firsts) > 0 and len(times) < 2 and lines[0].text.strip() != "WEBVTT":
        return None
    cues = [Block(Kind.WHOLE, tuple(lines[: min(firsts)]))] if min(firsts) else []
    ended = True
    for start, end in pairwise([*sorted(firsts), len(lines)]):
        cue = tuple(lines[start:end])
        if ended:
            cues.append(Block(Kind.WHOLE, cue))
        else:
            cues[-1] = Block(Kind.WHOLE, cues[-1].lines + cue)
        text = filled(cue)[-1].text
        ended = text.rstrip(_CLOSING).endswith(_SENTENCE_ENDS)
    return cues


def rows(lines: Sequence[Line]) -> list[Block] | None:
    """Rows of as many fields each, behind the first one, which is taken for their header."""
    texts = [line.text for line in filled(lines)]
    if len(texts) < _MIN_ROWS:
        return None
    for delimiter in _DELIMITERS:
        table = _fields(texts, delimiter)
        widths = {len(fields) for fields in table}
        if len(table) < _MIN_ROWS or len(widths) != 1:
            continue
        if widths.pop() > (1 if delimiter == "\t" else 2) and not _is_prose(texts):
            first, *others = _with_blank_lines(lines)
            return [Block(Kind.ROW_HEAD, first), *(Block(Kind.ROW, row) for row in others)]
    return None


def _fields(texts: Sequence[str], delimiter: str) -> list[list[str]]:
    """The fields of each text; none where a text is no row by itself."""
    try:
        table = list(csv.reader(texts, delimiter=delimiter))
    except csv.Error:
        return []
    return table if len(table) == len(texts) else []


def _is_prose(texts: Sequence[str]) -> bool:
    """Whether lines mostly end as sentences do."""
    ends = sum(text.rstrip().endswith((".", "!", "?", ",")) for text in texts)
    return 2 * ends > len(texts)


def _with_blank_lines(lines: Sequence[Line]) -> list[tuple[Line, ...]]:
    """Each line with the blank ones behind it; those in front belong to the first."""
    groups: list[list[Line]] = []
    waiting: list[Line] = []
    for line in lines:
        if line.blank and groups:
            groups[-1].append(line)
        elif line.blank:
            waiting.append(line)
        else:
            groups.append([*waiting, line])
            waiting = []
    return [tuple(group) for group in groups]


def turns(lines: Sequence[Line]) -> list[Block] | None:
    """What each says in a chat: behind a time and a name, or behind names that come back."""
    heads = {line.start: head for line in lines if (head := turn_head(line.text)) is not None}
    texts = filled(lines)
    if not heads or texts[0].start not in heads or len(heads) < 0.3 * len(texts):
        return None
    if not _are_turns(list(heads.values())):
        return None
    blocks = grouped(lines, lambda line: line.start in heads, Kind.TURN)
    return [block._replace(head=heads[_first_text(block).start].end()) for block in blocks]


def _are_turns(heads: Sequence[re.Match[str]]) -> bool:
    """Whether times stand before names, or a few names come back, or they are roles."""
    stamped = sum(head["stamp"] is not None for head in heads)
    if 2 * stamped >= len(heads):
        return True
    names = {(head["name"] or head["nick"]).strip().casefold() for head in heads}
    talking = sum(_is_talk(head.string[head.end() :]) for head in heads)
    if len(names) < 2 or 2 * talking < len(heads):
        return False
    come_back = len(heads) >= _MIN_ROWS and len(names) <= len(heads) / 1.5
    return come_back or names <= _ROLES


def _is_talk(text: str) -> bool:
    """Whether it is more than a value: a sentence, or several words."""
    return text.rstrip(_CLOSING).endswith(_SENTENCE_ENDS) or len(text.split()) > _MAX_VALUE_WORDS


def turn_head(text: str) -> re.Match[str] | None:
    """When and who, where a line begins as a turn of a chat does."""
    head = _TURN.match(text)
    if head is None:
        return None
    name = head["name"] or head["nick"]
    return head if len(name.split()) <= _MAX_NAME_WORDS else None


def _first_text(block: Block) -> Line:
    return filled(block.lines)[0]


def log(lines: Sequence[Line]) -> list[Block] | None:
    """Entries of a log, each from one time to the next."""
    texts = filled(lines)
    stamped = [line for line in texts if _LOGGED.match(line.text)]
    if len(stamped) < 2 or len(stamped) < 0.4 * len(texts) or stamped[0] != texts[0]:
        return None
    return grouped(lines, lambda line: _LOGGED.match(line.text) is not None)


def keys(lines: Sequence[Line]) -> list[Block] | None:
    """Lines of a configuration, each as deep as it is indented; a remark belongs to the next."""
    texts = [line for line in filled(lines) if not _REMARK.match(line.text)]
    if len(texts) < _MIN_ROWS:
        return None
    named = [match for line in texts if (match := _KEY.match(line.text))]
    sections = sum(_SECTION.match(line.text) is not None for line in texts)
    if len(named) + sections < _MOSTLY_KEYS * len(texts) or not named:
        return None
    nested = any(
        later.indent > line.indent or _DASHED.match(later.text)
        for line, later in pairwise(texts)
        if line.text.rstrip().endswith(":")
    )
    if nested or sections:
        return _key_lines(lines)
    distinct = {match["key"] for match in named}
    flat = len(distinct) == len(texts) and len({line.indent for line in texts}) == 1
    if flat and not _is_prose([line.text for line in texts]):
        return _key_lines(lines)
    return None if _is_prose([line.text for line in texts]) else [Block(Kind.WHOLE, tuple(lines))]


def _key_lines(lines: Sequence[Line]) -> list[Block]:
    blocks: list[Block] = []
    waiting: list[Line] = []
    for line in lines:
        text_before = blocks and not waiting
        if line.blank and text_before:
            blocks[-1] = blocks[-1]._replace(lines=(*blocks[-1].lines, line))
        elif line.blank or _REMARK.match(line.text):
            waiting.append(line)
        elif text_before and not _starts_key(line) and line.indent > _indent_of(blocks[-1]):
            # A value that goes on, such as a text over several lines.
            blocks[-1] = blocks[-1]._replace(lines=(*blocks[-1].lines, line))
        else:
            blocks.append(Block(Kind.KEY, (*waiting, line), _key_depth(line)))
            waiting = []
    if waiting:
        blocks.append(Block(Kind.WHOLE, tuple(waiting)))
    return blocks


def _starts_key(line: Line) -> bool:
    return bool(_KEY.match(line.text) or _DASHED.match(line.text) or _SECTION.match(line.text))


def _indent_of(block: Block) -> int:
    return block.lines[-1].indent if block.lines else 0


def _key_depth(line: Line) -> int:
    """Deeper than all above it that it belongs to; a dash is half a step deeper than its key."""
    if _SECTION.match(line.text):
        return 0
    return 2 * line.indent + (2 if _DASHED.match(line.text) else 1)


def json_lines(lines: Sequence[Line]) -> list[Block] | None:
    """A JSON value by its keys, with what opens and closes them; or one value a line."""
    texts = filled(lines)
    if not texts or not texts[0].text.lstrip().startswith(("{", "[")):
        return None
    if len(texts) > 1 and all(_is_json(line.text) for line in texts):
        return [Block(Kind.WHOLE, group) for group in _with_blank_lines(lines)]
    if not _is_json("\n".join(line.text for line in texts)):
        return None
    blocks: list[Block] = []
    depth = 0
    for group in _with_blank_lines(lines):
        text = " ".join(line.text for line in group).strip()
        closes = text.startswith(("}", "]"))
        opens = text.endswith(("{", "["))
        depth -= closes
        blocks.append(Block(Kind.KEY, group, depth, closes=closes))
        depth += opens
    return blocks


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def looks_like_code(lines: Sequence[Line]) -> bool:
    """Whether most lines are such as programs are made of."""
    texts = [line.text for line in filled(lines)]
    signs = sum(_is_code(text) for text in texts)
    return bool(texts) and signs >= _CODE_SHARE * len(texts)


def _is_code(text: str) -> bool:
    return bool(_CODE_LINE.match(text) or text.rstrip().endswith(_CODE_ENDS))


def code(lines: Sequence[Line]) -> list[Block] | None:
    """A program by what stands at its margin behind an empty line: a function, a class."""
    if len(filled(lines)) < 2 or not looks_like_code(lines):
        return None
    firsts = {
        line.start
        for before, line in pairwise(lines)
        if before.blank and not line.blank and not line.indent and not _GOES_ON.match(line.text)
    }
    return grouped(lines, lambda line: line.start in firsts)


FILES: tuple[Look, ...] = (subtitles, json_lines, rows, turns, log, keys, code)
"""What a whole text may look like."""
PARAGRAPHS: tuple[Look, ...] = (rows, turns, log, keys, code)
"""What lines without a blank one between them may look like, in a text of another kind."""
