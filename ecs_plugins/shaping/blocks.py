"""Blocks of a text: the lines that are read together.

A text is read as Markdown, by markdown-it-py: headings, lists, tables, code and paragraphs are
those of CommonMark and GitHub. Two formats are recognised before that: a table of delimited
values, as the csv module reads it, and a chat, by the names before its turns.

In doubt a block is coarse, because a coarse block says the same as its text. A list is one block
unless its items are sentences. A paragraph without prose, such as YAML, code or a log, is one
block, too.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

_LINE = re.compile(r"[^\r\n]*+(?:\r\n?|\n)|[^\r\n]++")
_WORD = re.compile(r"[^\W\d_]+")
_SENTENCE_ENDS = tuple(".!?…。！？؟।॥")
_CLOSING = " \t\r\n\"'”’)]*_»」』）】"
_END = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’)\]»*_]*+(?:\s|\Z)|[。！？؟।॥]")
_DELIMITERS = ",;\t"
_LEAST_ROWS = 3
_REGULAR = 0.8
"""Share of the rows of a table that have as many cells as most: a chunk may cut a row."""
_LONGEST_CELL = 60
"""Characters of the average cell where rows have two: a comma splits sentences in two as well."""
_STAMP = r"[(\[]?\d{1,4}[./:-]\d{1,2}[^\n\])]{0,30}?[)\]]?\s*(?:-\s)?|[(\[][^\n)\]]{1,40}[)\]]\s*"
_TURN = re.compile(
    rf"""\s*+(?P<stamp>{_STAMP})?
        (?:<(?P<nick>(?:v\s)?[^<>\n]{{1,40}})>\s?
          |(?:\*\*|__)?(?P<name>[^\W\d_][^:：\n?？!.,;()<>]{{0,39}}?)(?:\*\*|__)?
           (?::(?=\s|\*|_|$)|：)(?:\*\*|__)?\s*+)""",
    re.VERBOSE,
)
_STAMPED = re.compile(rf"\s*+(?:{_STAMP})")
_TURNS_EACH = 1.5
"""Turns of a speaker on average: keys of a configuration come once."""
_MARK = re.compile(
    r"\s*+(?:[(（\[]\w{1,4}[)）\]]|\w{1,2}[).．、）]|\d+(?:\.\d+)+\.?|[^\w\s#|>]\s)\s*\S"
)
_TIMING = "-->"
_LONGEST_HEADING = 120
_LONG_LIST = 1200
"""Characters from which on the items of a list are blocks, whatever they are."""
_WORDS_PER_LINE = 3.0
_CODE_SIGNS = 0.06
"""Share of a paragraph's characters that are brackets and operators, from which on it is code."""
_CODE = re.compile(r"[{}<>=;|\\#$&@~^\[\]_/]|\(\)|::|:$", re.MULTILINE)


class Kind(StrEnum):
    """Kinds of blocks."""

    PROSE = "prose"
    """Sentences, over any number of lines."""
    HEADING = "heading"
    ITEM = "item"
    """An item of a list; it needs the sentence before the list."""
    ROW_HEAD = "row_head"
    """Header of a table; every row needs it."""
    ROW = "row"
    TURN = "turn"
    """One turn of a chat, after the name of its speaker."""
    WHOLE = "whole"
    """A block that is kept or dropped whole: code, a list, a quotation, a cue of subtitles."""


class TextLine(NamedTuple):
    """A line: its span with the line break, and its text without."""

    start: int
    end: int
    text: str

    @property
    def blank(self) -> bool:
        """True if the line holds only white space."""
        return not self.text.strip()


class Block(NamedTuple):
    """Neighbouring lines that are read together.

    Attributes:
        kind: Their kind.
        lines: At least one; blank ones at the end separate the block from the next.
        depth: Level of a heading.
        head: Characters at the beginning that name the speaker of a turn.
    """

    kind: Kind
    lines: tuple[TextLine, ...]
    depth: int = 0
    head: int = 0

    @property
    def start(self) -> int:
        """First character."""
        return self.lines[0].start

    @property
    def end(self) -> int:
        """Return one past the last character."""
        return self.lines[-1].end

    def extended(self, lines: Sequence[TextLine]) -> Block:
        """Return the block with further lines at its end."""
        return self._replace(lines=(*self.lines, *lines))


def ends_sentence(text: str) -> bool:
    """Return True if a sentence ends with the text."""
    return text.rstrip(_CLOSING).endswith(_SENTENCE_ENDS)


def filled(lines: Sequence[TextLine]) -> list[TextLine]:
    """Return the lines that hold text."""
    return [line for line in lines if not line.blank]


def speaker_of(line: str) -> str:
    """Return who speaks in a line, casefolded; empty if it does not begin as a turn."""
    head = _TURN.match(line)
    return (head["name"] or head["nick"]).strip().casefold() if head else ""


def begins_item(block: Block) -> bool:
    """Return True if a block begins with the mark of an item, such as ``(a)`` or ``4.2``."""
    return _MARK.match(filled(block.lines)[0].text) is not None if filled(block.lines) else False


def blocks_of(text: str, *, whole_lists: bool = True) -> list[Block]:
    """Return the blocks of a text; their lines are those of the text, in order.

    Without ``whole_lists`` every item of a list is a block.
    """
    lines = [
        TextLine(match.start(), match.end(), match.group().rstrip("\r\n"))
        for match in _LINE.finditer(text)
    ]
    if not filled(lines):
        return [Block(Kind.WHOLE, tuple(lines))] if lines else []
    if any(_TIMING in line.text for line in lines):  # subtitles: sentences go on from cue to cue
        return [Block(Kind.WHOLE, tuple(lines))]
    return _rows(lines) or _turns(lines) or _Markdown(lines, whole_lists=whole_lists).blocks()


def _rows(lines: Sequence[TextLine]) -> list[Block] | None:
    """Return the rows of delimited values, after the first regular one as their header."""
    for delimiter in _DELIMITERS:
        if sum(delimiter in line.text for line in lines) < _LEAST_ROWS:
            continue
        rows = _table(lines, delimiter)
        if rows is not None:
            return rows
    return None


def _table(lines: Sequence[TextLine], delimiter: str) -> list[Block] | None:
    reader = csv.reader([f"{line.text}\n" for line in lines], delimiter=delimiter)
    try:
        rows = [(reader.line_num, cells) for cells in reader]
    except csv.Error:
        return None
    width = _width([cells for _, cells in rows if cells])
    if not width or (width == 2 and _is_prose([line.text for line in filled(lines)])):
        return None
    blocks: list[Block] = []
    has_head = False
    first = 0
    for end, cells in rows:
        part = lines[first:end]
        first = end
        if not cells and blocks:
            blocks[-1] = blocks[-1].extended(part)
            continue
        is_head = not has_head and len(cells) == width
        has_head = has_head or is_head
        blocks.append(Block(Kind.ROW_HEAD if is_head else Kind.ROW, tuple(part)))
    return blocks


def _width(rows: Sequence[Sequence[str]]) -> int:
    """Return the number of cells that nearly all rows have; 0 if they are no table."""
    if len(rows) < _LEAST_ROWS:
        return 0
    ((width, regular),) = Counter(map(len, rows)).most_common(1)
    characters = sum(len(cell) for cells in rows for cell in cells)
    is_short = characters <= 2 * _LONGEST_CELL * len(rows)
    is_table = width > 2 or (width == 2 and is_short)
    return width if is_table and regular >= max(_LEAST_ROWS, _REGULAR * len(rows)) else 0


def _turns(lines: Sequence[TextLine]) -> list[Block] | None:
    """Return the turns of a chat: lines with times, or a few speakers that come back."""
    texts = filled(lines)
    heads = {line.start: match for line in texts if (match := _TURN.match(line.text))}
    speakers = {speaker_of(match.string) for match in heads.values()}
    is_stamped = 2 * sum(match["stamp"] is not None for match in heads.values()) > len(heads)
    talk = sum(_is_talk(match.string[match.end() :]) for match in heads.values())
    comes_back = 1 < len(speakers) <= len(heads) / _TURNS_EACH
    is_chat = is_stamped or (comes_back and 2 * talk >= len(heads))
    if not is_chat or 3 * len(heads) < len(texts):
        return None
    blocks: list[Block] = []
    for line in lines:
        match = heads.get(line.start)
        is_notice = is_stamped and match is None and _STAMPED.match(line.text) is not None
        if match is not None:
            blocks.append(Block(Kind.TURN, (line,), head=match.end()))
        elif not blocks or is_notice:
            blocks.append(Block(Kind.WHOLE, (line,)))
        else:
            blocks[-1] = blocks[-1].extended([line])
    return blocks


def _is_talk(text: str) -> bool:
    """Return True if a text is more than the value of a key."""
    return ends_sentence(text) or len(text.split()) > _WORDS_PER_LINE


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("table")
    # Only blocks are needed: the text inside a line is not parsed.
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


class _Markdown:
    """Parser of Markdown lines into its outermost blocks and the lines between them."""

    def __init__(self, lines: Sequence[TextLine], *, whole_lists: bool) -> None:
        self._lines = lines
        self._whole_lists = whole_lists
        self._blocks: list[Block] = []
        self._done = 0

    def blocks(self) -> list[Block]:
        """Return the blocks of all lines."""
        tokens = _parser().parse("\n".join(_source(self._lines)))
        starts = [
            token.map[0]
            for token in reversed(tokens)
            if token.type == "list_item_open" and token.level == 1 and token.map
        ]
        for token in tokens:
            if token.level or token.map is None or token.map[1] <= self._done:
                continue
            self._add_between(token.map[0])
            last = min(token.map[1], len(self._lines))
            items: list[int] = []
            while starts and starts[-1] < last:
                items.append(starts.pop() - self._done)
            self._blocks += self._blocks_of(token, items, self._lines[self._done : last])
            self._done = last
        self._add_between(len(self._lines))
        return list(_joined(self._blocks)) if self._whole_lists else self._blocks

    def _add_between(self, end: int) -> None:
        """Add lines that are none of Markdown's blocks: blank ones, definitions of links."""
        lines = tuple(self._lines[self._done : end])
        if filled(lines):
            self._blocks.append(Block(Kind.WHOLE, lines))
        elif self._blocks:
            self._blocks[-1] = self._blocks[-1].extended(lines)
        else:  # blank lines at the beginning belong to the block after them
            return
        self._done = max(self._done, end)

    def _blocks_of(
        self,
        token: Token,
        items: Sequence[int],
        lines: Sequence[TextLine],
    ) -> list[Block]:
        texts = [line.text for line in filled(lines)]
        size = sum(map(len, texts))
        if token.type == "heading_open" and size <= _LONGEST_HEADING:
            return [Block(Kind.HEADING, tuple(lines), int(token.tag.removeprefix("h")))]
        if token.type == "table_open":
            rows = [Block(Kind.ROW, (line,)) for line in lines[2:]]
            return [Block(Kind.ROW_HEAD, tuple(lines[:2])), *rows]
        if token.type in ("bullet_list_open", "ordered_list_open"):
            places = [0, *items[1:], len(lines)]
            parts = [Block(Kind.ITEM, tuple(lines[at:end])) for at, end in pairwise(places)]
            is_ordered = token.type == "ordered_list_open"
            by_item = all(ends_sentence(_text(part.lines)) for part in parts) and not is_ordered
            is_short = self._whole_lists and size <= _LONG_LIST
            return [Block(Kind.WHOLE, tuple(lines))] if is_short and not by_item else parts
        if token.type in ("paragraph_open", "heading_open", "code_block"):
            chat = _turns(lines)
            if chat is not None:
                return chat
            has_list = sum(_MARK.match(text) is not None for text in texts) > 1
            is_prose = not self._whole_lists or (_is_prose(texts) and not has_list)
            return [Block(Kind.PROSE if is_prose else Kind.WHOLE, tuple(lines))]
        return [Block(Kind.WHOLE, tuple(lines))]


def _text(lines: Sequence[TextLine]) -> str:
    return "\n".join(line.text for line in lines)


def _source(lines: Sequence[TextLine]) -> list[str]:
    """Return lines as Markdown reads them: without a common margin."""
    wide = [line.text.expandtabs() for line in lines]
    margin = min(len(text) - len(text.lstrip()) for text in wide if text.strip())
    return [text[margin:].rstrip() for text in wide]


def _is_prose(texts: Sequence[str]) -> bool:
    """Return True if lines are made of sentences: words in rows, few signs, and an end."""
    text = "\n".join(texts)
    words = sum(1 + len(word) // 8 for word in _WORD.findall(text))
    signs = len(_CODE.findall(text))
    if signs > _CODE_SIGNS * len(text) or not words:
        return False
    return _END.search(text) is not None and (
        len(texts) == 1 or words >= _WORDS_PER_LINE * len(texts)
    )


def _joined(blocks: Sequence[Block]) -> Iterator[Block]:
    """Yield the blocks; items of a list that share a sentence are one."""
    waiting: list[TextLine] = []
    for block in blocks:
        is_item = block.kind is not Kind.ITEM and begins_item(block)
        if waiting and not is_item:
            yield Block(Kind.WHOLE, tuple(waiting))
            waiting = []
        if is_item and (waiting or not ends_sentence(_text(block.lines))):
            waiting += block.lines
        else:
            yield block
    if waiting:
        yield Block(Kind.WHOLE, tuple(waiting))
