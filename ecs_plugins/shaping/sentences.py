"""Inside a passage: its pieces, and what each needs to be understood.

A passage falls into blocks (`ecs_plugins.shaping.blocks`), and these into pieces that are kept or
dropped whole: sentences, list items, rows, lines of a configuration, code. Some pieces say nothing
by themselves and stay wherever a piece stays that needs them: the title and the headings above,
the head of a list and the items above, the header of a table, the keys above a key, the name before
a turn, what announces with a colon, and the sentence before one that begins with a pronoun or takes
something back. A reply stays with the question that it answers: that of the turn before, of a
heading above, or of a paragraph before that only asks.

A line break inside a paragraph ends no sentence. Text is only left out, never rewritten, and what
is left out can be restored; only for scoring are broken lines joined, and hyphens at their ends
healed.

The first sentence behind a title is the lead, which stays where a sentence of its passage stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from ecs_plugins.common.text import asks, sentence_spans
from ecs_plugins.shaping.blocks import blocks_of, broken_on_purpose, mark_of
from ecs_plugins.shaping.lines import Block, Kind, filled
from ecs_plugins.shaping.looks import turn_head
from ecs_plugins.shaping.spans import Span, join_spans

Places: TypeAlias = tuple[int, ...]
"""Pieces by their places in the text."""

_LEANING_LIST = """
he she it they this that these those his her its their him them such both either neither
er sie es dies dieser diese dieses ihr sein il elle ils elles ce cela cette ces él ella ello
ellos ellas esto este esta estos estas
however but yet otherwise instead nor so therefore doch aber sonst jedoch mais sinon pourtant pero
sino
"""
_LEANING = frozenset(_LEANING_LIST.split())
"""First words of sentences that are understood with the one before: pronouns, and what takes back
or concludes."""
_ANSWER_LIST = "yes no ja nein oui non sí да нет ναι όχι نعم لا हाँ नहीं はい いいえ 是 不"
_ANSWERS = frozenset(_ANSWER_LIST.split())
_PAUSES = ".,;!。，、！،।"
_EXCEPTION_LIST = "except unless excepting außer ausser sauf excepto salvo not nicht pas"
_EXCEPTIONS = frozenset(_EXCEPTION_LIST.split())
"""First words of fragments without which the sentence before says too much."""
_FIRST_WORD = re.compile(r"\W*(\w+)")
_ANNOUNCES = (":", "：")
# A first line of about 100 characters at most, without a mark behind its last word that ends a
# sentence or announces something, unless it belongs to a name.
_TITLE = re.compile(
    r"""[^\n]{0,98}
        (?:\w[^\w.!?…。！？:：,;]*+
          |\b(?:Jr|Sr|Inc|Ltd|Co|Corp|Bros|[A-Z])\.)""",
    re.VERBOSE,
)
_BROKEN_WORD = re.compile(r"(?<=[^\W\d_])[-\u2010\u00ad](?:\r\n?|\n)[^\S\n]*+(?=[^\W\d_A-Z])")
_BREAK = re.compile(r"\r\n?|\n")
_OPENS = ("{", "[", "(")


class Piece(NamedTuple):
    """What is kept or dropped whole, with the white space behind it.

    It ``needs`` the pieces at these places to be understood, and ``answers`` some of them. What is
    not ``said``, such as a title or a header row, only stays with what it heads. The ``lead``
    follows the title. The line breaks of a ``flowing`` piece mean nothing.
    """

    start: int
    end: int
    needs: Places = ()
    said: bool = True
    lead: Places = ()
    flowing: bool = False
    answers: Places = ()


class _Level(NamedTuple):
    """An open item, key or heading: how deep it stands, how it is marked, and its place."""

    depth: int
    place: int
    style: str = ""


def pieces_of(text: str) -> list[Piece]:
    """The pieces of a passage; they partition it."""
    blocks = blocks_of(text)
    outline = _Outline(text)
    if blocks and blocks[0].kind is Kind.PROSE:
        title, blocks[0:1] = _title_of(blocks)
        outline.title(title)
    for block in blocks:
        outline.read(block)
    return outline.pieces


def _title_of(blocks: Sequence[Block]) -> tuple[Block | None, list[Block]]:
    """The first line of a text, if it is a title, and what is left of the first block."""
    first = blocks[0]
    line, *others = first.lines
    if not _TITLE.fullmatch(line.text):
        return None, [first]
    if not filled(others):
        heads_something = len(blocks) > 1
        return (first, []) if heads_something else (None, [first])
    below = others[0]
    width = max(len(each.text) for each in first.lines)
    if not below.blank and not broken_on_purpose(line, below, width):
        return None, [first]
    title = first._replace(lines=(line,))
    rest = first._replace(lines=tuple(others))
    return title, [rest]


class _Outline:
    """The pieces so far, and which of them the next block may need."""

    def __init__(self, text: str) -> None:
        self.pieces: list[Piece] = []
        self._text = text
        self._title: Places = ()
        self._lead: Places = ()
        self._before: Places = ()
        """The sentence before."""
        self._announced: Places = ()
        """The piece before with what it needs, if it ends in a colon."""
        self._question: Places = ()
        """The last sentence of the turn before, or all of the paragraph before, if it asks."""
        self._row_head: Places = ()
        self._list_head: Places = ()
        self._items: list[_Level] = []
        self._headings: list[_Level] = []
        self._keys: list[_Level] = []
        self._openers: list[int] = []
        """The places of the brackets that are open."""
        self._readers: Mapping[Kind, Callable[[Block], None]] = {
            Kind.PROSE: self._prose,
            Kind.ITEM: self._item,
            Kind.HEADING: self._heading,
            Kind.ROW_HEAD: self._rows_begin,
            Kind.ROW: self._row,
            Kind.KEY: self._key,
            Kind.TURN: self._turn,
            Kind.QUOTE: self._whole,
            Kind.WHOLE: self._whole,
        }

    def title(self, block: Block | None) -> None:
        """Begin with a title, if there is one."""
        if block is not None:
            self._title = self._add(block.start, block.end, said=False)

    def read(self, block: Block) -> None:
        """Add the pieces of a block."""
        if block.kind is not Kind.KEY:
            self._keys = []
        if block.kind not in (Kind.ROW, Kind.ROW_HEAD):
            self._row_head = ()
        if block.kind is not Kind.ITEM and not block.inside:
            self._items = []
        question = self._question
        read = self._readers[block.kind]
        read(block)
        if self._question == question:  # which only what follows it answers
            self._question = ()

    def _add(
        self,
        start: int,
        end: int,
        needs: Iterable[int] = (),
        *,
        said: bool = True,
        flowing: bool = False,
        answers: Places = (),
    ) -> tuple[int]:
        headings = [level.place for level in self._headings]
        asking = [place for place in headings if asks(self._text_of(place))]
        distinct = dict.fromkeys([*self._title, *headings, *answers, *needs])
        place = len(self.pieces)
        piece = Piece(
            start,
            end,
            needs=tuple(distinct),
            said=said,
            lead=self._lead,
            flowing=flowing,
            answers=(*asking, *answers),
        )
        self.pieces.append(piece)
        self._announced = ()
        text = self._text[start:end].rstrip()
        if text.endswith(_ANNOUNCES):
            self._announced = (*piece.needs, place)
        return (place,)

    def _text_of(self, place: int) -> str:
        piece = self.pieces[place]
        return self._text[piece.start : piece.end]

    def _need_more(self, place: int, needs: Iterable[int]) -> None:
        """Let a piece need further ones."""
        piece = self.pieces[place]
        more = (*piece.needs, *needs)
        self.pieces[place] = piece._replace(needs=more)

    def _open_items(self) -> Places:
        items = [level.place for level in self._items]
        return (*self._list_head, *items)

    def _whole(self, block: Block) -> None:
        text = self._text[block.start : block.end]
        needs = (*self._open_items(), *self._announced)
        if not self._announced and block.kind is not Kind.QUOTE:
            needs += self._before  # which may be what code is called in the text
        is_blank = not text.strip()
        self._add(block.start, block.end, needs, said=not is_blank)
        self._before = ()

    def _heading(self, block: Block) -> None:
        self._headings = _shallower(self._headings, block.depth)
        self._before = ()
        (place,) = self._add(block.start, block.end, said=False)
        self._headings.append(_Level(block.depth, place))
        self._announced = ()

    def _rows_begin(self, block: Block) -> None:
        (place,) = self._add(block.start, block.end, self._announced, said=False)
        head = self.pieces[place]
        self._row_head = (*head.needs, place)
        self._before = ()

    def _row(self, block: Block) -> None:
        needs = (*self._row_head, *self._open_items())
        self._add(block.start, block.end, needs)

    def _key(self, block: Block) -> None:
        self._keys = _shallower(self._keys, block.depth)
        parents = tuple(level.place for level in self._keys)
        if block.closes:
            self._close(block, parents)
            return
        text = self._text[block.start : block.end].rstrip()
        opens_bracket = text.endswith(_OPENS)
        is_said = not opens_bracket and not text.endswith(_ANNOUNCES)
        needs = parents or self._announced
        (place,) = self._add(block.start, block.end, needs, said=is_said)
        if opens_bracket:
            self._openers.append(place)
        self._keys.append(_Level(block.depth, place))
        self._announced = ()

    def _close(self, block: Block, parents: Places) -> None:
        """Add what closes a bracket, and let it stay with what opened it."""
        (place,) = self._add(block.start, block.end, parents, said=False)
        if not self._openers:
            return
        opener = self._openers.pop()
        for inside in range(opener, place):
            self._need_more(inside, [place])

    def _turn(self, block: Block) -> None:
        text_line = filled(block.lines)[0]
        head_end = text_line.start + block.head
        named = self._add(block.start, head_end, said=False)
        # What is said in reply to a question says nothing without it.
        question = self._question
        self._before = ()
        self._sentences(head_end, block.end, named, answers=question)
        last = len(self.pieces) - 1
        if not asks(self._text_of(last)):
            return
        # Who only asks back, or once more, leaves the question before open.
        is_all = named == (last - 1,)
        still_open = question if is_all else ()
        self._question = (*still_open, *named, last)

    def _item(self, block: Block) -> None:
        mark = mark_of(block.lines[0].text)
        style = mark.style if mark else ""
        if not self._items:
            self._list_head = self._announced or self._before
        self._items = _above(self._items, block.depth, style)
        needs = self._open_items()
        first = len(self.pieces)
        self._before = ()
        self._sentences(block.start, block.end, needs, carried=True, mark=block.head)
        self._items.append(_Level(block.depth, first, style))
        self._before = ()

    def _prose(self, block: Block) -> None:
        needs = self._open_items() if block.inside else ()
        announced = self._announced
        if not announced:
            self._before = ()
        first = len(self.pieces)
        is_turn = turn_head(block.lines[0].text) is not None
        question = self._question
        self._sentences(block.start, block.end, needs, carried=is_turn, answers=question)
        sentences = len(self.pieces) - first
        if sentences:
            self._need_more(first, announced)
        if sentences == 1 and not block.inside and asks(self._text_of(first)):
            self._question = (first,)

    def _sentences(
        self,
        start: int,
        end: int,
        needs: Places = (),
        *,
        carried: bool = False,
        mark: int = 0,
        answers: Places = (),
    ) -> None:
        """Add sentences, which answer others; where the first is ``carried``, the others need it.

        The first begins with a ``mark`` of so many characters, in which no sentence ends.
        """
        first: Places = ()
        for begin, stop in _sentences_in(self._text, start, end, mark):
            needed = (*needs, *first)
            if _leans(self._text[begin:stop]):
                needed += self._before
            if self._title and not self._lead:
                self._lead = (len(self.pieces),)
            self._before = self._add(begin, stop, needed, flowing=True, answers=answers)
            if carried and not first:
                first = self._before


def _shallower(levels: Sequence[_Level], depth: int) -> list[_Level]:
    """Those that stand less deep than one that follows them."""
    return [level for level in levels if level.depth < depth]


def _above(levels: Sequence[_Level], depth: int, style: str) -> list[_Level]:
    """The open items above a new one.

    A style that was there at this depth goes on; one that was not is nested, also where it is not
    indented, as in contracts.
    """
    for number, level in enumerate(levels):
        goes_on = level.style == style and level.depth >= depth
        if goes_on:
            return list(levels[:number])
    return [level for level in levels if level.depth <= depth]


def _leans(sentence: str) -> bool:
    """Whether a sentence is understood with the one before it."""
    word = _FIRST_WORD.match(sentence)
    if word is None:
        return False
    first = word[1].casefold()
    if first in _LEANING:
        return True
    behind = sentence[word.end() :]
    pauses = not behind[:1].strip(_PAUSES)
    return pauses and first in _ANSWERS


def _excepts(sentence: str) -> bool:
    """Whether a sentence is a fragment that takes something out of the one before it."""
    word = _FIRST_WORD.match(sentence)
    return word is not None and word[1].casefold() in _EXCEPTIONS


def _sentences_in(text: str, start: int, end: int, mark: int) -> list[Span]:
    """Sentences over broken lines; a fragment that makes an exception stays with the one before."""
    offset = start + mark
    plain = _BREAK.sub(_spaces, text[offset:end])
    spans: list[Span] = []
    for first, last in sentence_spans(plain):
        begin = offset + first
        stop = offset + last
        if not spans:
            begin = start
        elif _excepts(text[begin:stop]):
            begin, _ = spans.pop()
        spans.append((begin, stop))
    return spans


def _spaces(found: re.Match[str]) -> str:
    return " " * len(found.group())


def _nothing(found: re.Match[str]) -> str:
    return "\0" * len(found.group())


def with_needs(pieces: Sequence[Piece], chosen: Iterable[int]) -> list[int]:
    """The chosen places and those that they need, in reading order."""
    places: set[int] = set()
    for place in chosen:
        piece = pieces[place]
        places.add(place)
        places.update(piece.needs)
    return sorted(places)


def as_read(text: str, pieces: Sequence[Piece]) -> str:
    """A text of the same length in which broken lines are joined; NUL stands where nothing is."""
    parts: list[str] = []
    for piece in pieces:
        part = text[piece.start : piece.end]
        if piece.flowing:
            part = _unbroken(part)
        parts.append(part)
    return "".join(parts)


def read_at(spans: Iterable[Span], text: str) -> str:
    """What is read of some spans, of a text from `as_read`."""
    return join_spans(spans, text).replace("\0", "")


def _unbroken(text: str) -> str:
    """The same without line breaks inside, and with whole words; the white space behind stays."""
    body = text.rstrip()
    behind = text[len(body) :]
    healed = _BROKEN_WORD.sub(_nothing, body)
    return _BREAK.sub(_spaces, healed) + behind
