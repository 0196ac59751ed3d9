"""Inside a kept passage: its sentences, what each needs to be understood, and which of them stay.

A passage falls into pieces that are kept or dropped whole: sentences, list items, table rows, code
blocks. Some pieces say nothing by themselves and stay wherever a piece stays that needs them:
the title and the last heading, the head of a list, the header rows of a table, the name before a
turn, and the sentence before one that begins with a pronoun. Text is only left out, never
rewritten, and what is left out can be restored.

The first sentence behind a title is the lead. It stays where a sentence of its passage stays, and
comes sooner where the question or a sentence that stays elsewhere names that title, or the sentence
shares a rare name with it: a second hop need not have a word of the question.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from ecs_plugins.common.text import WORD, names_and_numbers, sentence_spans, terms
from ecs_plugins.shaping.signals.fused import LINKED

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
_QUALIFIER = re.compile(r"\([^()\n]*\)\s*\Z")  # as in "Mercury (planet)"


class Piece(NamedTuple):
    """What is kept or dropped whole, with the white space behind it.

    It ``needs`` the pieces at these places to be understood. What is not ``said``, such as a title
    or a header row, only stays with what it heads. The ``lead`` follows the title.
    """

    start: int
    end: int
    needs: tuple[int, ...] = ()
    said: bool = True
    lead: tuple[int, ...] = ()


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
        self._lead: tuple[int, ...] = ()
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
        self.pieces.append(Piece(start, start + len(line), needed, said, self._lead))
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
            if self._title and not self._lead:
                self._lead = (len(self.pieces),)
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
    ends = [0, *(end for span in sorted(spans) for end in span), len(text)]
    pairs = zip(ends[::2], ends[1::2], strict=True)
    return [gap for start, end in pairs if (gap := text[start:end].strip())]


def by_handle(texts: Iterable[str]) -> dict[str, str]:
    """Dropped texts by their id, which is the same for the same text everywhere."""
    return {
        hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]: text
        for text in texts
    }


def prune(
    query: str,
    texts: Sequence[str],
    score: Callable[[Sequence[str]], Sequence[float | None]],
    standing: Sequence[float],
    share: float = KEPT_SHARE,
) -> list[tuple[Span, ...] | None]:
    """What stays of each text, as spans, which may be none; None where all of it stays.

    The best pieces stay that fit the share of all characters. ``score`` is given every piece with
    what it needs, all at once, and is None where it cannot, which then stays; what each text is
    worth, its ``standing``, is added.
    """
    passages = [pieces_of(text) for text in texts]
    asked = [
        (n, p) for n, each in enumerate(passages) for p, piece in enumerate(each) if piece.said
    ]
    read = [
        join_spans([passages[n][p][:2] for p in with_needs(passages[n], [place])], texts[n])
        for n, place in asked
    ]
    # Where each text is one sentence, there is nothing to choose.
    found = score(read) if len(asked) > len(texts) else [None] * len(asked)
    worth = {
        (n, place): math.inf if each is None else each + standing[n]
        for (n, place), each in zip(asked, found, strict=True)
    }
    return [
        None if len(stay) == len(pieces) else tuple(pieces[place][:2] for place in sorted(stay))
        for pieces, stay in zip(passages, _best(query, texts, passages, worth, share), strict=True)
    ]


def _best(
    query: str,
    texts: Sequence[str],
    passages: Sequence[Sequence[Piece]],
    worth: Mapping[tuple[int, int], float],
    share: float,
) -> list[set[int]]:
    """The places that stay, of every passage; the best of all stays in any case."""
    titles = _titles(query, texts, passages)
    unnamed = dict(titles)
    waiting = [(-each, *at) for at, each in worth.items()]
    heapify(waiting)

    def name(said: str) -> None:
        words, names = _words(said), {*names_and_numbers(said)}
        for number in [n for n, (title, few) in unnamed.items() if title in words or few & names]:
            del unnamed[number]
            (place,) = passages[number][-1].lead
            heappush(waiting, (-LINKED - worth[number, place], number, place))

    name(query)
    left = share * sum(map(len, texts))
    kept: list[set[int]] = [set() for _ in passages]
    while waiting:
        worse, number, place = heappop(waiting)
        pieces = passages[number]
        lead = pieces[place].lead if number in titles else ()
        new = {*with_needs(pieces, [place, *lead])} - kept[number]
        size = sum(pieces[p].end - pieces[p].start for p in new)
        if size <= left or worse == -math.inf or not any(kept):
            kept[number] |= new
            left -= size
            name(" ".join(texts[number][slice(*pieces[p][:2])] for p in new if pieces[p].said))
    return kept


def _titles(
    query: str, texts: Sequence[str], passages: Sequence[Sequence[Piece]]
) -> dict[int, tuple[str, set[str]]]:
    """The words of each title, by passage, and the names in its lead that one other passage has.

    A name is written large everywhere, and not in the query.
    """
    small = {
        word for text in (query.lower(), *texts) for word in WORD.findall(text) if word.islower()
    }
    having = Counter(name for text in texts for name in {*names_and_numbers(text)})
    few = {
        name for name, n in having.items() if n == 2 and name.isalpha() and len(name) > 2
    } - small
    return {
        number: (
            _words(_QUALIFIER.sub("", text[: pieces[0].end])),
            few & {*names_and_numbers(text[slice(*pieces[pieces[-1].lead[0]][:2])])},
        )
        for number, (text, pieces) in enumerate(zip(texts, passages, strict=True))
        if pieces and pieces[-1].lead and ": " not in text[: pieces[0].end]  # a field, not a title
    }


def _words(text: str) -> str:
    return f" {' '.join(terms(text))} "
