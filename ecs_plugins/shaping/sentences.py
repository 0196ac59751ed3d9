"""Inside a kept passage: its sentences, what each needs to be understood, and which of them stay.

A passage falls into pieces that are kept or dropped whole: sentences, list items, table rows, code
blocks. Some pieces say nothing by themselves and stay wherever a piece stays that needs them:
the title and the last heading, the head of a list, the header rows of a table, the name before a
turn, and the sentence before one that begins with a pronoun. Text is only left out, never
rewritten, and what is left out can be restored.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ecs_plugins.common.text import sentence_spans

KEPT_SHARE = 0.4
"""Share of the characters of the kept passages that their best sentences may take, with what these
need to be understood."""

Span = tuple[int, int]
"""First character, and one past the last."""

_PRONOUN_LIST = """
he she it they this that these those his her its their him them such both either neither
er sie es dies dieser diese dieses ihr sein il elle ils elles ce cela cette ces él ella ello
ellos ellas esto este esta estos estas
"""
_PRONOUNS = frozenset(_PRONOUN_LIST.split())
_FIRST_WORD = re.compile(r"\W*(\w+)")
_FENCE = re.compile(r"\s*(```|~~~)")
_HEADING = re.compile(r"#{1,6}\s")
_ITEM = re.compile(r"(\s*)(?:[-*•+‣]|\d{1,3}[.)])\s+\S")
_RULE = re.compile(r"[\s:|-]+$")
_HEAD = re.compile(r"\s*(?:[(\[][^\n]{1,60}?[)\]]\s*)?[^\W\d_][^:：\n.?？؟!]{0,39}[:：]\s+(?=\S)")
# A first line of about 100 characters at most, without a mark behind its last word that ends a
# sentence or announces something.
_TITLE = re.compile(r"[^\n]{0,98}\w[^\w.!?…。！？:：]*+")


class Piece(NamedTuple):
    """What is kept or dropped whole, with the white space behind it.

    It ``needs`` the pieces at these places to be understood. What is not ``said``, such as a title
    or a header row, only stays with what it heads.
    """

    start: int
    end: int
    needs: tuple[int, ...] = ()
    said: bool = True


def pieces_of(text: str) -> list[Piece]:
    """The pieces of a passage; they partition it."""
    outline = _Outline()
    for start, end in _blocks(text):
        outline.read(text[start:end], start, last=end == len(text))
    return outline.pieces


class _Outline:
    """The pieces so far, and which of them the next line may need."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self._title: tuple[int, ...] = ()
        self._heading: tuple[int, ...] = ()
        self._before: tuple[int, ...] = ()  # the sentence before, in the same paragraph
        self._list_head: tuple[int, ...] = ()
        self._items: list[tuple[int, int]] = []  # indentation and place of the open items
        self._rows: list[int] = []  # of the open table
        self._header: tuple[int, ...] = ()  # of the open table
        self._announced = False  # whether the piece before ends in a colon

    def read(self, line: str, start: int, *, last: bool) -> None:
        if line.lstrip().startswith("|") or (self._rows and "|" in line):
            self._row(line, start)
            return
        self._rows, self._header = [], ()
        if _FENCE.match(line):
            self._add(line, start, self._before)
        elif item := _ITEM.match(line):
            self._item(line, start, len(item[1].expandtabs()))
        elif not line.strip():
            self._before = self._before if self._announced else ()
            self.pieces.append(Piece(start, start + len(line), said=False))
        elif self._items and line[0].isspace():
            self._add(line, start, (*self._list_head, *(place for _, place in self._items)))
        else:
            self._items = []
            self._prose(line, start, last=last)

    def _add(
        self, line: str, start: int, needs: Iterable[int] = (), *, said: bool = True
    ) -> tuple[int]:
        needed = tuple(dict.fromkeys((*self._title, *self._heading, *needs)))
        self.pieces.append(Piece(start, start + len(line), needed, said))
        self._announced = line.rstrip().endswith((":", "："))
        return (len(self.pieces) - 1,)

    def _row(self, line: str, start: int) -> None:
        if len(self._rows) == 1 and "-" in line and _RULE.match(line):
            (head,) = self._rows
            self.pieces[head] = self.pieces[head]._replace(said=False)
            self._header = (head, *self._add(line, start, said=False))
        else:
            self._rows += self._add(line, start, self._header)

    def _item(self, line: str, start: int, depth: int) -> None:
        if not self._items:
            self._list_head = self._before
        self._items = [(indent, place) for indent, place in self._items if indent < depth]
        parents = (place for _, place in self._items)
        (place,) = self._add(line, start, (*self._list_head, *parents))
        self._items.append((depth, place))

    def _prose(self, line: str, start: int, *, last: bool) -> None:
        if _HEADING.match(line):
            self._heading = self._before = ()
            self._heading = self._add(line, start, said=False)
            return
        if not self.pieces and not last and _TITLE.fullmatch(line):
            self._title = self._add(line, start, said=False)
            return
        named: tuple[int, ...] = ()
        if head := _HEAD.match(line):
            named = self._add(head.group(), start, said=False)
            start, line = start + head.end(), line[head.end() :]
            self._before = ()
        for begin, end in sentence_spans(line):
            word = _FIRST_WORD.match(line, begin, end)
            leans = word is not None and word[1].casefold() in _PRONOUNS
            needs = (*named, *self._before) if leans else named
            self._before = self._add(line[begin:end], start + begin, needs)


def _blocks(text: str) -> list[Span]:
    """Lines with their end; a fenced code block is one."""
    blocks: list[Span] = []
    fence = ""
    at = 0
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if fence:
            blocks[-1] = (blocks[-1][0], at + len(line))
            if mark and mark[1] == fence:
                fence = ""
        else:
            blocks.append((at, at + len(line)))
            fence = mark[1] if mark else ""
        at += len(line)
    return blocks


def with_needs(pieces: Sequence[Piece], chosen: Iterable[int]) -> list[int]:
    """The chosen places and those that they need, in reading order."""
    return sorted({place for one in chosen for place in (one, *pieces[one].needs)})


def best_pieces(
    passages: Sequence[Sequence[Piece]],
    scores: Sequence[Sequence[float | None]],
    share: float = KEPT_SHARE,
) -> list[list[int]]:
    """The places that stay, of every passage: the best that fit the share of all characters.

    The best of all stays in any case, and so does what has no score.
    """
    ranked = sorted(
        (-math.inf if score is None else -score, number, place)
        for number, found in enumerate(scores)
        for place, score in enumerate(found)
        if passages[number][place].said
    )
    left = share * sum(piece.end - piece.start for pieces in passages for piece in pieces)
    kept: list[set[int]] = [set() for _ in passages]
    for worse, number, place in ranked:
        pieces = passages[number]
        new = {*with_needs(pieces, [place])} - kept[number]
        size = sum(pieces[p].end - pieces[p].start for p in new)
        if size <= left or worse == -math.inf or not any(kept):
            kept[number] |= new
            left -= size
    return [sorted(stay) for stay in kept]


def join_spans(spans: Iterable[Span], text: str) -> str:
    """What stays of a text, in reading order; all of it is the text itself.

    A gap becomes one new line where the source has one there, else one space where it has white
    space.
    """
    runs: list[Span] = []
    for start, end in sorted(set(spans)):
        if runs and runs[-1][1] == start:
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((start, end))
    if runs == [(0, len(text))]:
        return text
    kept = ""
    for number, (start, end) in enumerate(runs):
        piece = text[start:end].rstrip().lstrip("\r\n")
        if number:
            gap = text[runs[number - 1][0] + len(text[slice(*runs[number - 1])].rstrip()) : start]
            kept += "\n" if "\n" in gap else " " if re.search(r"\s", gap) else ""
        kept += piece
    return kept


def gaps(spans: Iterable[Span], text: str) -> list[str]:
    """What `join_spans` leaves out, without white space around it; blank gaps do not count."""
    ends = [0]
    found: list[str] = []
    for start, end in (*sorted(spans), (len(text), len(text))):
        found.append(text[ends[-1] : start].strip())
        ends.append(end)
    return [gap for gap in found if gap]


def by_handle(texts: Iterable[str]) -> dict[str, str]:
    """Dropped texts by their id, which is the same for the same text everywhere."""
    return {
        hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]: text
        for text in texts
    }


def prune(
    texts: Sequence[str],
    score: Callable[[Sequence[str]], Sequence[float | None]],
    standing: Sequence[float],
    share: float = KEPT_SHARE,
) -> list[tuple[Span, ...] | None]:
    """What stays of each text, as spans, which may be none; None where all of it stays.

    ``score`` is given every piece with what it needs, all at once, and is None where it cannot;
    what each text is worth, its ``standing``, is added.
    """
    passages = [pieces_of(text) for text in texts]
    asked = [
        (number, place)
        for number, pieces in enumerate(passages)
        for place, piece in enumerate(pieces)
        if piece.said and texts[number][piece.start : piece.end].strip()
    ]
    read = [
        join_spans(
            [passages[number][p][:2] for p in with_needs(passages[number], [place])], texts[number]
        )
        for number, place in asked
    ]
    scores: list[list[float | None]] = [[None] * len(pieces) for pieces in passages]
    if len(asked) > len(texts):  # else each text is one sentence
        for (number, place), found in zip(asked, score(read), strict=True):
            scores[number][place] = None if found is None else found + standing[number]
    return [
        None if len(stay) == len(pieces) else tuple(pieces[place][:2] for place in stay)
        for pieces, stay in zip(passages, best_pieces(passages, scores, share), strict=True)
    ]
