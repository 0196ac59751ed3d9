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

from ecs_plugins.shaping.looks import (
    FILES,
    PARAGRAPHS,
    Block,
    Kind,
    Line,
    filled,
    looks_like_code,
)

_LINE = re.compile(r"[^\r\n]*+(?:\r\n?|\n)|[^\r\n]++")
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
_STOPS = (".", "!", "?", "…", ":", ";", ",", "。", "！", "？", "：", "；", "，", "、", ")", "]")
_UNDERLINE = re.compile(r"(\W)\1{3,}")
_SETEXT = "---"
_MAX_HEADING = 120
"""Characters of a heading that is underlined; more are a paragraph above a rule."""
_LEAF_LIST = "paragraph_open heading_open fence code_block html_block hr table_open"
_LEAVES = frozenset(_LEAF_LIST.split())


class Mark(NamedTuple):
    """The mark of an item: how it looks, how far in it stands, and where the text begins."""

    style: str
    indent: int
    end: int


def lines_of(text: str) -> list[Line]:
    """The lines of a text, with where they stand."""
    return [
        Line(line.start(), line.end(), line.group().rstrip("\r\n")) for line in _LINE.finditer(text)
    ]


def blocks_of(text: str) -> list[Block]:
    """The blocks of a text; their lines are those of the text, in order."""
    lines = lines_of(text)
    if not filled(lines):
        return [Block(Kind.WHOLE, tuple(lines))] if lines else []
    if not any(_FENCE.match(line.text) for line in lines):
        for look in FILES:
            blocks = look(lines)
            if blocks is not None:
                return blocks
    return _markdown(lines)


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("table")
    # Only blocks are asked for: what stands inside a line is not read.
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


def _markdown(lines: Sequence[Line]) -> list[Block]:
    source = "\n".join(_source(lines))
    before = int(_begins_in_fence(lines))
    tokens = _parser().parse("```\n" * before + source)
    blocks: list[Block] = []
    done = 0
    inside = quoted = 0
    for token in tokens:
        inside += token.nesting * (token.type.startswith("list_item"))
        quoted += token.nesting * (token.type.startswith("blockquote"))
        if token.type not in _LEAVES or token.map is None:
            continue
        first = max(done, token.map[0] - before)
        last = min(len(lines), token.map[1] - before)
        if first >= last:
            continue
        if filled(lines[done:first]):  # such as a definition of a link
            blocks.append(Block(Kind.WHOLE, tuple(lines[done:first])))
        elif blocks:
            blocks[-1] = _longer(blocks[-1], lines[done:first])
        else:
            first = done
        blocks += _leaf(token, lines[first:last], inside=bool(inside), quoted=quoted)
        done = last
    if filled(lines[done:]) or not blocks:
        blocks.append(Block(Kind.WHOLE, tuple(lines[done:])))
    else:
        blocks[-1] = _longer(blocks[-1], lines[done:])
    return _with_indented_rest(blocks)


def _source(lines: Sequence[Line]) -> list[str]:
    """Lines as Markdown reads them: without a common margin, and underlined as it underlines.

    In reStructuredText any mark may underline a heading, also those of a fence.
    """
    margin = min(line.indent for line in filled(lines))
    source = [line.text.expandtabs()[margin:].rstrip() for line in lines]
    for place, (above, line) in enumerate(pairwise(source), start=1):
        if _UNDERLINE.fullmatch(line) and above and len(above) <= len(line) + 1:
            source[place] = _SETEXT
    return source


def _longer(block: Block, lines: Sequence[Line]) -> Block:
    return block._replace(lines=(*block.lines, *lines))


def _begins_in_fence(lines: Sequence[Line]) -> bool:
    """Whether the first fence of a text closes one that was opened before it."""
    fences = [place for place, line in enumerate(lines) if _FENCE.match(line.text)]
    if not fences:
        return False
    opening = [bool(_language(lines[place])) for place in fences]
    if any(opening[1::2]) and not any(opening[::2]):
        return True
    single = len(fences) % 2 == 1 and not any(opening)
    return single and looks_like_code(lines[: fences[0]])


def _language(line: Line) -> str:
    fence = _FENCE.match(line.text)
    return fence["language"] if fence else ""


def _leaf(token: Token, lines: Sequence[Line], *, inside: bool, quoted: int) -> list[Block]:
    """The blocks of what has no further structure in Markdown."""
    if token.type == "table_open":
        return _table(lines)
    is_short = sum(len(line.text) for line in lines) <= _MAX_HEADING
    if token.type == "heading_open" and is_short:
        return [Block(Kind.HEADING, tuple(lines), int(token.tag[1:]))]
    if token.type in ("paragraph_open", "heading_open"):
        return _paragraph(lines, inside=inside, quoted=quoted)
    if token.type == "code_block" and not looks_like_code(lines):
        return _paragraph(lines, inside=inside, quoted=quoted)
    return [Block(Kind.WHOLE, tuple(lines), inside=inside)]


def _table(lines: Sequence[Line]) -> list[Block]:
    head, rows = lines[:2], lines[2:]
    return [Block(Kind.ROW_HEAD, tuple(head)), *(Block(Kind.ROW, (row,)) for row in rows)]


def _paragraph(lines: Sequence[Line], *, inside: bool, quoted: int) -> list[Block]:
    """Items and prose, or what the lines look like."""
    if quoted:
        return [Block(Kind.QUOTE, tuple(lines), inside=inside)]
    if mark_of(lines[0].text) is None:
        for look in PARAGRAPHS:
            blocks = look(lines)
            if blocks is not None:
                return [block._replace(inside=inside) for block in blocks]
    return _items_and_prose(lines, inside=inside)


def _items_and_prose(lines: Sequence[Line], *, inside: bool) -> list[Block]:
    width = max(len(line.text) for line in lines)
    begins_item = _item_lines(lines, width)
    blocks: list[Block] = []
    for place, line in enumerate(lines):
        mark = mark_of(line.text)
        if mark is not None and place in begins_item:
            blocks.append(Block(Kind.ITEM, (line,), mark.indent, mark.end))
        elif not blocks or _leaves(line, blocks[-1], width):
            blocks.append(Block(Kind.PROSE, (line,), inside=inside and not place))
        else:
            blocks[-1] = _longer(blocks[-1], [line])
    return blocks


def _item_lines(lines: Sequence[Line], width: int) -> set[int]:
    """Which lines begin an item: not those where a sentence only happens to go on so.

    The first line does, and one whose like there are several of, and one that follows the end of a
    sentence or of a list's head, or a line that was broken on purpose.
    """
    marks = {place: mark for place, line in enumerate(lines) if (mark := mark_of(line.text))}
    styles = Counter(mark.style for mark in marks.values())
    return {
        place
        for place, mark in marks.items()
        if place == 0
        or styles[mark.style] > 1
        or lines[place - 1].text.rstrip().endswith(_STOPS)
        or broken_on_purpose(lines[place - 1], lines[place], width)
    }


def mark_of(text: str) -> Mark | None:
    """The mark with which a line begins as an item of a list."""
    mark = _ITEM.match(text)
    if mark is None:
        return None
    kind = mark.lastgroup or ""
    shown = mark[kind]
    letters = "".join("1" if c.isdecimal() else "a" if c.isalpha() else c for c in shown)
    style = shown if kind == "bullet" else re.sub(r"1+|a+", lambda run: run.group()[0], letters)
    return Mark(style, len(mark["indent"].expandtabs()), mark.end())


def _leaves(line: Line, item: Block, width: int) -> bool:
    """Whether a line behind an item belongs to it no longer.

    It belongs to the item where it is indented, or where its first word would have found no room
    on the line before.
    """
    if item.kind is not Kind.ITEM:
        return False
    return line.indent <= item.depth and broken_on_purpose(item.lines[-1], line, width)


def broken_on_purpose(line: Line, following: Line, width: int) -> bool:
    """Whether the first word of the following line would have found room on a line."""
    words = following.text.split(maxsplit=1)
    if not words or following.text.lstrip()[:1].islower():
        return False
    return len(line.text.rstrip()) + 1 + len(words[0]) < width


def _with_indented_rest(blocks: Sequence[Block]) -> list[Block]:
    """The same, where code that an empty line parts is one block."""
    joined: list[Block] = []
    for block in blocks:
        is_rest = block.kind is Kind.WHOLE and block.lines[0].indent > 0
        if joined and is_rest and joined[-1].kind is Kind.WHOLE and not _is_fenced(joined[-1]):
            joined[-1] = _longer(joined[-1], block.lines)
        else:
            joined.append(block)
    return joined


def _is_fenced(block: Block) -> bool:
    return _FENCE.match(block.lines[0].text) is not None
