"""The blocks of a text: paragraphs, headings, items, rows, code, and what else stands together.

A text that is all of one kind, such as a CSV or a program, is told by its look
(`ecs_plugins.shaping.looks`). Everything else is read as Markdown, by markdown-it-py: fences,
indentation, tables, headings and the nesting of lists are those of CommonMark and GitHub. In a
paragraph the marks of lists that Markdown does not have, such as ``(a)`` or ``4.2``, are found
line by line.

A chunk may begin inside a fence, so that each fence that closes seems to open. It is read as if a
fence stood before it where only so a fence with a language opens code.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

from ecs_plugins.shaping.lines import Block, Kind, TextLine, filled, lines_of, whole
from ecs_plugins.shaping.looks import FILES, PARAGRAPHS, looks_like_code

_FENCE = re.compile(r" {0,3}(?:```|~~~)[`~]*+\s*+(?P<language>[^`\s]*+)")
_NUMERAL = "(?:[0-9０-９]{1,3}|[A-Za-z]|[ivxIVX]{2,5}|[一二三四五六七八九十]{1,3})"
_ITEM = re.compile(
    rf"""(?P<indent>[^\S\n]*+)
        (?:(?P<bullet>[-*+•‣⁃◦▪▫●○■□➤➢►▸✓✔✗✘·–—])(?=\s)
          |(?P<numbers>\d{{1,2}}(?:\.\d{{1,2}}){{1,3}}\.?)(?=\s)
          |(?P<opened>[(（\[]{_NUMERAL}[)）\]])(?=\s|(?<=）))
          |(?P<closed>{_NUMERAL}[).])(?=\s)
          |(?P<wide>{_NUMERAL}[．、）]|[①-⑳㈠-㈩])
        )\s*+(?=\S)""",
    re.VERBOSE,
)
_INITIAL = re.compile(r"[A-Z]\.\s[A-Z]")
_DIGITS = re.compile(r"\d+")
_LETTERS = re.compile(r"[^\W\d_]+")
_STOPS = tuple(".!?…:;,。！？：；，、)]")
_UNDERLINE = re.compile(r"(\W)\1{3,}")
_SETEXT = "---"
_MAX_HEADING = 120
"""Characters of a heading that is underlined; more are a paragraph above a rule."""
_LEAF_LIST = "paragraph_open heading_open fence code_block html_block hr table_open"
_LEAVES = frozenset(_LEAF_LIST.split())
_LISTS = ("list_item_open", "list_item_close")
_QUOTATIONS = ("blockquote_open", "blockquote_close")


class Mark(NamedTuple):
    """The mark of an item: how it looks, how far in it stands, and where the text begins."""

    style: str
    indent: int
    end: int


def blocks_of(text: str) -> list[Block]:
    """The blocks of a text; their lines are those of the text, in order."""
    lines = lines_of(text)
    if not lines:
        return []
    if not filled(lines):
        return [whole(lines)]
    if any(_FENCE.match(line.text) for line in lines):
        return _Markdown(lines).blocks()
    for look in FILES:
        blocks = look(lines)
        if blocks is not None:
            return blocks
    return _Markdown(lines).blocks()


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("table")
    # Only blocks are asked for: what stands inside a line is not read.
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


class _Markdown:
    """Lines as Markdown: what the parser says of them, and what it leaves out between."""

    def __init__(self, lines: Sequence[TextLine]) -> None:
        self._lines = lines
        self._blocks: list[Block] = []
        self._done = 0

    def blocks(self) -> list[Block]:
        """The blocks of all lines."""
        before = int(_begins_in_fence(self._lines))
        source = ["```"] * before + _source(self._lines)
        lists = 0
        quotations = 0
        for token in _parser().parse("\n".join(source)):
            if token.type in _LISTS:
                lists += token.nesting
            elif token.type in _QUOTATIONS:
                quotations += token.nesting
            elif token.type in _LEAVES and token.map is not None:
                first, last = token.map
                self._between(first - before)
                self._leaf(
                    token,
                    last - before,
                    inside=bool(lists),
                    quoted=bool(quotations),
                )
        self._between(len(self._lines))
        return _with_indented_rest(self._blocks)

    def _leaf(self, token: Token, last: int, *, inside: bool, quoted: bool) -> None:
        """Add what has no further structure, unless its lines are read already."""
        if last <= self._done:
            return
        lines = self._lines[self._done : last]
        if quoted:
            blocks = [Block(Kind.QUOTE, tuple(lines), inside=inside)]
        else:
            blocks = _blocks_of_leaf(token, lines, inside=inside)
        self._blocks += blocks
        self._done = min(last, len(self._lines))

    def _between(self, end: int) -> None:
        """Add lines that are none of Markdown's blocks, such as a definition of a link."""
        lines = self._lines[self._done : end]
        if filled(lines):
            self._blocks.append(whole(lines))
        elif self._blocks:
            self._blocks[-1] = self._blocks[-1].longer(lines)
        else:  # blank lines at the beginning belong to what follows
            return
        self._done = max(self._done, end)


def _source(lines: Sequence[TextLine]) -> list[str]:
    """Lines as Markdown reads them: without a common margin, and underlined as it underlines.

    In reStructuredText any mark may underline a heading, also those of a fence.
    """
    margin = min(line.indent for line in filled(lines))
    source: list[str] = []
    for line in lines:
        wide = line.text.expandtabs()
        source.append(wide[margin:].rstrip())
    for place, (above, below) in enumerate(pairwise(source), start=1):
        is_long_enough = 0 < len(above) <= len(below) + 1
        if is_long_enough and _UNDERLINE.fullmatch(below):
            source[place] = _SETEXT
    return source


def _begins_in_fence(lines: Sequence[TextLine]) -> bool:
    """Whether the first fence of a text closes one that was opened before it."""
    fences = [place for place, line in enumerate(lines) if _FENCE.match(line.text)]
    opening = [bool(_language(lines[place])) for place in fences]
    if any(opening):
        where_it_closes = opening[1::2]
        where_it_opens = opening[::2]
        return any(where_it_closes) and not any(where_it_opens)
    if len(fences) % 2 == 0:
        return False
    return looks_like_code(lines[: fences[0]])


def _language(line: TextLine) -> str:
    fence = _FENCE.match(line.text)
    return fence["language"] if fence else ""


def _blocks_of_leaf(token: Token, lines: Sequence[TextLine], *, inside: bool) -> list[Block]:
    if token.type == "table_open":
        return _table(lines)
    characters = sum(len(line.text) for line in lines)
    if token.type == "heading_open" and characters <= _MAX_HEADING:
        level = int(token.tag.removeprefix("h"))
        return [Block(Kind.HEADING, tuple(lines), level)]
    is_text = token.type in ("paragraph_open", "heading_open")
    if is_text or (token.type == "code_block" and not looks_like_code(lines)):
        return _paragraph(lines, inside=inside)
    return [whole(lines, inside=inside)]


def _table(lines: Sequence[TextLine]) -> list[Block]:
    head = Block(Kind.ROW_HEAD, tuple(lines[:2]))
    rows = [Block(Kind.ROW, (line,)) for line in lines[2:]]
    return [head, *rows]


def _paragraph(lines: Sequence[TextLine], *, inside: bool) -> list[Block]:
    """Items and prose, or what the lines look like."""
    (first, *_) = filled(lines)
    if mark_of(first.text) is None:
        for look in PARAGRAPHS:
            blocks = look(lines)
            if blocks is not None:
                return [block._replace(inside=inside) for block in blocks]
    return _items_and_prose(lines, inside=inside)


def _items_and_prose(lines: Sequence[TextLine], *, inside: bool) -> list[Block]:
    width = max(len(line.text) for line in lines)
    begins_item = _item_lines(lines, width)
    blocks: list[Block] = []
    for place, line in enumerate(lines):
        mark = mark_of(line.text)
        if mark is not None and place in begins_item:
            item = Block(Kind.ITEM, (line,), mark.indent, mark.end)
            blocks.append(item)
        elif not blocks or _leaves(line, blocks[-1], width):
            is_inside = inside and place == 0
            prose = Block(Kind.PROSE, (line,), inside=is_inside)
            blocks.append(prose)
        else:
            blocks[-1] = blocks[-1].longer([line])
    return blocks


def _item_lines(lines: Sequence[TextLine], width: int) -> set[int]:
    """Which lines begin an item: not those where a sentence only happens to go on so.

    The first line does, and one whose like there are several of, and one that follows the end of a
    sentence or of a list's head, or a line that was broken on purpose.
    """
    marks: dict[int, Mark] = {}
    for place, line in enumerate(lines):
        mark = mark_of(line.text)
        if mark is not None:
            marks[place] = mark
    styles = Counter(mark.style for mark in marks.values())
    begin: set[int] = set()
    for place, mark in marks.items():
        is_one_of_several = styles[mark.style] > 1
        if is_one_of_several or _begins_anew(lines, place, width):
            begin.add(place)
    return begin


def _begins_anew(lines: Sequence[TextLine], place: int, width: int) -> bool:
    """Whether the line before is none, is finished, or was broken on purpose.

    At the beginning of a text, a single capital is the initial of a name.
    """
    if place == 0:
        return _INITIAL.match(lines[0].text) is None
    before = lines[place - 1]
    if before.text.rstrip().endswith(_STOPS):
        return True
    return broken_on_purpose(before, lines[place], width)


def mark_of(text: str) -> Mark | None:
    """The mark with which a line begins as an item of a list."""
    found = _ITEM.match(text)
    if found is None:
        return None
    kind = found.lastgroup or ""
    style = found[kind]
    if kind != "bullet":
        style = _DIGITS.sub("1", style)
        style = _LETTERS.sub("a", style)
    indent = found["indent"].expandtabs()
    return Mark(style, len(indent), found.end())


def _leaves(line: TextLine, item: Block, width: int) -> bool:
    """Whether a line behind an item belongs to it no longer.

    It belongs to the item where it is indented, or where its first word would have found no room
    on the line before.
    """
    if item.kind is not Kind.ITEM or line.indent > item.depth:
        return False
    last = item.lines[-1]
    return broken_on_purpose(last, line, width)


def broken_on_purpose(line: TextLine, following: TextLine, width: int) -> bool:
    """Whether the first word of the following line would have found room on a line."""
    words = following.text.split(maxsplit=1)
    if not words:
        return False
    first = words[0]
    if first[0].islower():
        return False
    joined = f"{line.text.rstrip()} {first}"
    return len(joined) < width


def _with_indented_rest(blocks: Sequence[Block]) -> list[Block]:
    """The same, where code that an empty line parts is one block."""
    joined: list[Block] = []
    for block in blocks:
        goes_on = bool(joined) and _is_open(joined[-1])
        if goes_on and _is_rest(block):
            joined[-1] = joined[-1].longer(block.lines)
        else:
            joined.append(block)
    return joined


def _is_rest(block: Block) -> bool:
    return block.kind is Kind.WHOLE and block.lines[0].indent > 0


def _is_open(block: Block) -> bool:
    """Whether more of the same may follow: no fence has ended it."""
    return block.kind is Kind.WHOLE and not _is_fenced(block)


def _is_fenced(block: Block) -> bool:
    return _FENCE.match(block.lines[0].text) is not None
