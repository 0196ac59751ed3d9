"""Structure that no mark tells, by its look: rows, turns, log entries, cues of subtitles, code.

Each look is given lines and either knows them, and says of which blocks they are made, or does not,
and gives None. Taking prose for code costs nothing but a coarser cut: such a block stays or goes
whole. Taking code for prose would cut it so that it says something else.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from ecs_plugins.common.text import asks
from ecs_plugins.shaping.keypaths import json_values, key_lines
from ecs_plugins.shaping.lines import (
    Block,
    Kind,
    TextLine,
    each_filled,
    filled,
    grouped,
    whole,
)

Look: TypeAlias = Callable[[Sequence[TextLine]], list[Block] | None]

_TIMING = re.compile(r"\s*+(?:\d{1,2}:)?\d{1,2}:\d{2}[.,]\d{1,3}\s*+-->")
_SENTENCE_ENDS = tuple(".!?…。！？؟।")
_PROSE_ENDS = (".", "!", "?", ",")
_CLOSING = " \t\"'”’)]*_»"
_LEAST_FIELDS = {",": 3, "\t": 2, ";": 3, "|": 3}
"""By delimiter, so many fields in each of some lines are no chance."""
_MIN_ROWS = 3

_CLOCK = r"\d{1,2}:\d{2}(?::\d{2})?(?:\s?[AaPp][Mm])?"
_DATE = r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}"
_TURN = re.compile(
    rf"""\s*+(?P<stamp>
            [(\[](?=[^\s)\]]{{1,30}}[)\]]|[^\n)\]]{{0,50}}\d)[^\n)\]]{{1,60}}[)\]][^\S\n]*+(?:-\s)?
          | (?:{_DATE},?\s)?{_CLOCK}\s(?:-\s)?
        )?
        (?:<(?P<nick>[^<>\n]{{1,40}})>\s
          |(?:\*\*|__)?
           (?P<name>[^\W\d_][^:：\n?？!.,;()*]{{0,39}}?)\s*+
           (?:\*\*|__)?(?::(?=\s|\*|_|$)|：)(?:\*\*|__)?\s*+)""",
    re.VERBOSE,
)
_NAME_LINE = re.compile(
    rf"""\s*+(?P<name>[^\W\d_][^:：\n?？!;()\[\]|*]{{0,39}}?)
        (?:\s\s|\s[—–-]\s|\s(?=[(\[]))\s*+
        [(\[]?(?P<stamp>(?:(?:{_DATE}|[^\W\d_]{{3,12}}(?:\sat)?),?\s)?{_CLOCK})[)\]]?\s*""",
    re.VERBOSE,
)
"""A line with nothing but who and when, above what is said."""
_ROLE_LIST = "user assistant system human ai bot agent customer support q a"
_ROLES = frozenset(_ROLE_LIST.split())
_MAX_NAME_WORDS = 3
_MAX_VALUE_WORDS = 3
_MIN_TURNS_EACH = 1.5
_TURN_SHARE = 0.3
_LOG_SHARE = 0.4
_LOGGED = re.compile(
    r"\W?(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\d\d:\d\d:\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)"
)

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


def ends_sentence(text: str) -> bool:
    """Whether a sentence ends with a text."""
    return text.rstrip(_CLOSING).endswith(_SENTENCE_ENDS)


def mostly_prose(texts: Sequence[str]) -> bool:
    """Whether lines mostly end as sentences do."""
    ends = [text for text in texts if text.rstrip().endswith(_PROSE_ENDS)]
    return 2 * len(ends) > len(texts)


def subtitles(lines: Sequence[TextLine]) -> list[Block] | None:
    """Cues with their times; those that share a sentence are one block."""
    times = [place for place, line in enumerate(lines) if _TIMING.match(line.text)]
    if not times:
        return None
    firsts = [_numbered(place, lines) for place in times]
    header = lines[0].text.strip()
    is_file = len(times) > 1 or firsts[0] == 0 or header == "WEBVTT"
    if not is_file:
        return None
    starts = {lines[place].start for place in firsts}
    cues: list[Block] = []
    for cue in grouped(lines, lambda line: line.start in starts):
        if cues and not _is_finished(cues[-1]):
            cues[-1] = cues[-1].longer(cue.lines)
        else:
            cues.append(cue)
    return cues


def _numbered(place: int, lines: Sequence[TextLine]) -> int:
    """Where a cue begins: with its number, if it has one, else with its time."""
    before = lines[place - 1].text.strip() if place else ""
    return place - 1 if before.isdigit() else place


def _is_finished(cue: Block) -> bool:
    """Whether what is said in a cue does not go on in the next."""
    texts = [line.text for line in filled(cue.lines)]
    is_spoken = any(_TIMING.match(text) for text in texts)
    return not is_spoken or ends_sentence(texts[-1])


def rows(lines: Sequence[TextLine]) -> list[Block] | None:
    """Rows of as many fields each, behind the first one, which is taken for their header."""
    texts = [line.text for line in filled(lines)]
    if len(texts) < _MIN_ROWS or mostly_prose(texts):
        return None
    if not any(_is_table(texts, delimiter) for delimiter in _LEAST_FIELDS):
        return None
    first, *others = each_filled(lines)
    header = Block(Kind.ROW_HEAD, first)
    return [header, *(Block(Kind.ROW, row) for row in others)]


def _is_table(texts: Sequence[str], delimiter: str) -> bool:
    """Whether each text is a row by itself, and all have as many fields."""
    try:
        table = list(csv.reader(texts, delimiter=delimiter))
    except csv.Error:
        return False
    widths = {len(fields) for fields in table}
    if len(table) != len(texts) or len(widths) != 1:
        return False
    (width,) = widths
    return width >= _LEAST_FIELDS[delimiter]


class _Head(NamedTuple):
    """How a turn begins.

    Attributes:
        name: Who speaks, casefolded.
        is_stamped: Whether it says when.
        end: Characters before what is said.
        said: What is said on the same line.
    """

    name: str
    is_stamped: bool
    end: int
    said: str


def turns(lines: Sequence[TextLine]) -> list[Block] | None:
    """What each says in a chat: behind a time and a name, or behind names that come back."""
    texts = filled(lines)
    for find in (_heads_before, _heads_above):
        heads = find(texts)
        are_few = len(heads) < _TURN_SHARE * len(texts)
        if are_few or texts[0].start not in heads:
            continue
        if _are_turns(list(heads.values())):
            return _as_turns(lines, heads)
    return None


def _heads_before(texts: Sequence[TextLine]) -> dict[int, _Head]:
    """The heads that stand on the line of what is said, by the line's beginning."""
    heads: dict[int, _Head] = {}
    for line in texts:
        match = turn_head(line.text)
        if match is not None:
            end = match.end()
            is_stamped = match["stamp"] is not None
            heads[line.start] = _Head(_name(match), is_stamped, end, line.text[end:])
    return heads


def _heads_above(texts: Sequence[TextLine]) -> dict[int, _Head]:
    """The heads that have a line of their own, with who and when, above what is said.

    A timetable has such lines without anything between.
    """
    heads: dict[int, _Head] = {}
    is_head = False
    for line in texts:
        match = _NAME_LINE.fullmatch(line.text)
        if match is None:
            is_head = False
            continue
        if is_head:
            return {}
        is_head = True
        name = match["name"].strip().casefold()
        heads[line.start] = _Head(name, True, line.end - line.start, "")
    return {} if is_head else heads


def _as_turns(lines: Sequence[TextLine], heads: Mapping[int, _Head]) -> list[Block]:
    (first_start, *later_starts) = heads
    del first_start  # blank lines before it belong to it
    begins = frozenset(later_starts)
    blocks: list[Block] = []
    for block in grouped(lines, lambda line: line.start in begins, Kind.TURN):
        (first, *_) = filled(block.lines)
        head = heads[first.start]
        blocks.append(block._replace(head=head.end))
    return blocks


def turn_head(text: str) -> re.Match[str] | None:
    """When and who, where a line begins as a turn of a chat does."""
    head = _TURN.match(text)
    if head is None or len(_name(head).split()) > _MAX_NAME_WORDS:
        return None
    return head


def _name(head: re.Match[str]) -> str:
    name: str = head["name"] or head["nick"]
    return name.strip().casefold()


def _are_turns(heads: Sequence[_Head]) -> bool:
    """Whether times stand before names, a few names come back, they are roles, or one replies."""
    stamped = sum(head.is_stamped for head in heads)
    if 2 * stamped >= len(heads):
        return True
    names = {head.name for head in heads}
    talking = sum(_is_talk(head.said) for head in heads)
    if len(names) < 2 or 2 * talking < len(heads):
        return False
    come_back = len(heads) >= _MIN_ROWS and len(names) <= len(heads) / _MIN_TURNS_EACH
    return come_back or names <= _ROLES or _one_replies(heads)


def _one_replies(heads: Sequence[_Head]) -> bool:
    """Whether another speaks behind a question."""
    for head, following in pairwise(heads):
        if asks(head.said) and following.name != head.name:
            return True
    return False


def _is_talk(text: str) -> bool:
    """Whether it is more than a value: a sentence, or several words."""
    return ends_sentence(text) or len(text.split()) > _MAX_VALUE_WORDS


def log(lines: Sequence[TextLine]) -> list[Block] | None:
    """Entries of a log, each from one time to the next."""

    def begins(line: TextLine) -> bool:
        return _LOGGED.match(line.text) is not None

    texts = filled(lines)
    entries = [line for line in texts if begins(line)]
    if len(entries) < 2 or len(entries) < _LOG_SHARE * len(texts):
        return None
    return grouped(lines, begins) if begins(texts[0]) else None


def looks_like_code(lines: Sequence[TextLine]) -> bool:
    """Whether most lines are such as programs are made of."""
    texts = [line.text for line in filled(lines)]
    signs = [text for text in texts if _is_code(text)]
    return bool(texts) and len(signs) >= _CODE_SHARE * len(texts)


def _is_code(text: str) -> bool:
    if text.rstrip().endswith(_CODE_ENDS):
        return True
    return _CODE_LINE.match(text) is not None


def code(lines: Sequence[TextLine]) -> list[Block] | None:
    """A program by what stands at its margin behind an empty line: a function, a class."""
    if len(filled(lines)) < 2 or not looks_like_code(lines):
        return None
    firsts: set[int] = set()
    for before, line in pairwise(lines):
        at_margin = not line.blank and not line.indent
        if before.blank and at_margin and not _GOES_ON.match(line.text):
            firsts.add(line.start)
    return grouped(lines, lambda line: line.start in firsts)


def keys(lines: Sequence[TextLine]) -> list[Block] | None:
    """Lines of a configuration; whole where the same keys come again, as in records."""
    paths = key_lines(lines)
    if paths is None:
        return None
    texts = [line.text for line in filled(lines)]
    if paths.are_flat and mostly_prose(texts):
        return None
    if paths.are_flat and paths.come_again:
        return [whole(lines)]
    return paths.blocks


FILES: tuple[Look, ...] = (subtitles, json_values, rows, turns, log, keys, code)
"""What a whole text may look like."""
PARAGRAPHS: tuple[Look, ...] = (rows, turns, log, keys, code)
"""What lines without a blank one between them may look like, in a text of another kind."""
