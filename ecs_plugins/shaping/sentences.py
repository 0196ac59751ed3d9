"""Pieces of a passage that are kept or dropped whole, and the pieces that each needs.

A passage is read as blocks (`ecs_plugins.shaping.blocks`). Prose falls into sentences; a list, a
row of a table or a block of code is one piece. Some pieces say nothing by themselves and stay with
each piece that needs them: the title and the headings above, the header of a table, the name before
a turn, and a sentence that announces a list. A sentence that begins with a pronoun needs the one
before it. A sentence that makes an exception and the one before it need each other. A reply needs
the turn before it, and an answer the heading or the paragraph that asks.

A line break inside a paragraph ends no sentence. Text is only left out, never rewritten. A
paragraph in a script other than Latin is one piece: its links are not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from ecs_plugins.common.text import MAX_ASKED, WORD, asks, sentence_spans
from ecs_plugins.shaping.blocks import (
    Block,
    Kind,
    TextLine,
    begins_item,
    blocks_of,
    ends_sentence,
    filled,
    speaker_of,
)
from ecs_plugins.shaping.spans import Span

Places: TypeAlias = tuple[int, ...]
"""Pieces by their places in the text."""

_PRONOUN_LIST = """
he she it they his her its their him them both either neither former latter
er sie es ihr sein il elle ils elles él ella ello ellos ellas esso essa essi loro
"""
_PRONOUNS = frozenset(_PRONOUN_LIST.split())
"""Words near the beginning of a sentence that is understood with the one before it."""
_LINK_LIST = """
this that these those however but otherwise instead nor therefore thus hence though
although nevertheless conversely unless except
dies dieser diese dieses doch aber sonst jedoch allerdings dennoch außer
ce cela cette ces mais sinon pourtant cependant toutefois sauf
esto este esta estos estas pero excepto salvo embargo questo questa però tuttavia tranne
"""
_LINKS = frozenset(_LINK_LIST.split())
"""Words near the beginning of a sentence that takes something back from the one before it."""
_OPENER_LIST = "yes no not only also so then still yet such ja nein nicht nur oui non pas sí"
_OPENERS = frozenset(_OPENER_LIST.split())
"""First words of such a sentence."""
_NEAR = 3
_ASIDE = re.compile(r"[,，]\s*+(\w++)\s*+[,，]")
_OTHER_SCRIPT = re.compile(r"[^\W\d_\u0000-\u024f]")
_ANNOUNCES = (":", "：")
# A first line of about 100 characters at most, without a mark after its last word that ends a
# sentence or announces something, unless it belongs to a name.
_TITLE = re.compile(
    r"""[^\n]{0,98}
        (?:\w[^\w.!?…。！？:：,;]*+
          |\b(?:Jr|Sr|Inc|Ltd|Co|Corp|Bros|[A-Z])\.)""",
    re.VERBOSE,
)
_BREAK = re.compile(r"\r\n?|\n")


class Piece(NamedTuple):
    """A span that is kept or dropped whole, with the white space after it.

    Attributes:
        start: First character.
        end: One past the last.
        needs: Places of the pieces that it needs to be understood.
        said: False for a piece that says nothing by itself, such as a title.
        lead: Place of the first sentence after the title, if there is a title.
        answers: Places of the questions that it answers, which it needs as well.
    """

    start: int
    end: int
    needs: Places = ()
    said: bool = True
    lead: Places = ()
    answers: Places = ()


class _Heading(NamedTuple):
    depth: int
    place: int


def pieces_of(text: str, *, whole_lists: bool = True) -> list[Piece]:
    """Return the pieces of a passage; they partition it.

    Without ``whole_lists`` every list item and every sentence is a piece of its own, in any
    writing system.
    """
    blocks = blocks_of(text, whole_lists=whole_lists)
    outline = _Outline(text, whole=whole_lists)
    title, blocks = _without_title(blocks)
    outline.begin(title)
    for block, following in zip(blocks, [*blocks[1:], None], strict=False):
        outline.read(block, following)
    return outline.pieces


def _without_title(blocks: list[Block]) -> tuple[Block | None, list[Block]]:
    """Return the first line if it is a title, and the blocks without it."""
    if not blocks or blocks[0].kind not in (Kind.PROSE, Kind.WHOLE):
        return None, blocks
    first = blocks[0]
    line, *others = first.lines
    if not _TITLE.fullmatch(line.text):
        return None, blocks
    if not filled(others):
        return (first, blocks[1:]) if len(blocks) > 1 else (None, blocks)
    width = max(len(each.text) for each in first.lines)
    if first.kind is not Kind.PROSE or not _is_broken_on_purpose(line, others[0], width):
        return None, blocks
    rest = first._replace(lines=tuple(others))
    return first._replace(lines=(line,)), [rest, *blocks[1:]]


def _is_broken_on_purpose(line: TextLine, following: TextLine, width: int) -> bool:
    """Return True if the first word of the following line would have fitted on the line."""
    words = following.text.split(maxsplit=1)
    if not words or words[0][0].islower():
        return False
    return len(f"{line.text.rstrip()} {words[0]}") < width


class _Outline:
    """Pieces of the blocks read so far, and the pieces that the next block may need."""

    def __init__(self, text: str, *, whole: bool) -> None:
        self.pieces: list[Piece] = []
        self._text = text
        self._whole_paragraphs = whole
        self._title: Places = ()
        self._lead: Places = ()
        self._headings: list[_Heading] = []
        self._row_head: Places = ()
        self._announced: Places = ()
        """The sentence that announces this block."""
        self._before: Places = ()
        """The sentence before."""
        self._question: Places = ()
        """The paragraph before, if it only asks, or the turn before."""
        self._in_list = False

    def begin(self, title: Block | None) -> None:
        """Begin with a title, if there is one."""
        if title is not None:
            self._title = self._add(title.start, title.end, said=False)

    def read(self, block: Block, following: Block | None) -> None:
        """Add the pieces of a block."""
        question = self._question
        self._question = ()
        is_item = block.kind is Kind.ITEM or begins_item(block)
        if self._in_list and not is_item:
            self._announced = ()
        self._in_list = is_item
        if block.kind is Kind.HEADING:
            self._headings = [each for each in self._headings if each.depth < block.depth]
            (place,) = self._add(block.start, block.end, said=False)
            self._headings.append(_Heading(block.depth, place))
            self._announced = ()
        elif block.kind is Kind.ROW_HEAD:
            self._row_head = self._add(block.start, block.end, self._announced, said=False)
            self._row_head = (*self.pieces[-1].needs, *self._row_head)
        elif block.kind is Kind.ROW:
            self._add(block.start, block.end, self._row_head)
        elif block.kind is Kind.TURN:
            self._turn(block, question)
        elif block.kind is Kind.PROSE:
            self._prose(block, question, following)
        else:
            self._whole(block, question, following)
        if block.kind is not Kind.PROSE:
            self._before = ()
        if block.kind in (Kind.ROW, Kind.TURN):
            self._announced = ()

    def _add(
        self,
        start: int,
        end: int,
        needs: Iterable[int] = (),
        *,
        said: bool = True,
        answers: Places = (),
    ) -> tuple[int]:
        headings = [each.place for each in self._headings]
        asking = [place for place in headings if asks(self._text_of(place))]
        needed = dict.fromkeys([*self._title, *headings, *answers, *needs])
        piece = Piece(
            start,
            end,
            needs=tuple(needed),
            said=said and bool(self._text[start:end].strip()),
            lead=self._lead,
            answers=(*asking, *answers),
        )
        self.pieces.append(piece)
        return (len(self.pieces) - 1,)

    def _text_of(self, place: int) -> str:
        piece = self.pieces[place]
        return self._text[piece.start : piece.end]

    def _need_more(self, place: int, needs: Iterable[int]) -> None:
        piece = self.pieces[place]
        self.pieces[place] = piece._replace(needs=tuple(dict.fromkeys((*piece.needs, *needs))))

    def _whole(self, block: Block, question: Places, following: Block | None) -> None:
        """Add a list, an item or code; it needs the sentence that announces or precedes it."""
        needs = self._announced or self._before
        (place,) = self._add(block.start, block.end, needs, answers=question)
        if self._in_list:  # the next item needs the same
            self._announced = needs
        else:
            self._announced = self._announce(place, following)

    def _announce(self, place: int, following: Block | None, *, prose: bool = False) -> Places:
        """Return a piece and its needs if it goes on in the next block, which then has to stay."""
        if following is None:
            return ()
        text = self._text_of(place).rstrip()
        goes_on = following.kind in (Kind.WHOLE, Kind.ITEM, Kind.ROW_HEAD)
        if not text.endswith(_ANNOUNCES) and not (prose and goes_on and not ends_sentence(text)):
            return ()
        piece = self.pieces[place]
        self.pieces[place] = piece._replace(said=False)
        return (*piece.needs, place)

    def _turn(self, block: Block, before: Places) -> None:
        """Add a turn, which needs the end of the turn before it if that asks or is short."""
        named = self._add(block.start, block.start + block.head, said=False)
        text = self._text_of(before[-1]).strip() if before else ""
        answers = before if asks(text) else ()
        needs = named if answers or len(text) > MAX_ASKED else (*before, *named)
        self._before = ()
        self._sentences(block.start + block.head, block.end, needs, answers=answers)
        last = len(self.pieces) - 1
        # A speaker who asks back, or once more, leaves the question before open.
        still_open = answers if asks(self._text_of(last)) else ()
        self._question = (*still_open, *named, last)

    def _prose(self, block: Block, question: Places, following: Block | None) -> None:
        announced = self._announced
        if not announced:
            self._before = ()
        first = len(self.pieces)
        self._sentences(block.start, block.end, answers=question)
        self._need_more(first, announced)
        last = len(self.pieces) - 1
        if speaker_of(block.lines[0].text):  # the name before a turn, or a note such as "Warning:"
            for place in range(first + 1, last + 1):
                self._need_more(place, [first])
        if first == last and asks(self._text_of(first)):
            self._question = (first,)
        if not self._in_list:
            self._announced = self._announce(last, following, prose=True)

    def _sentences(self, start: int, end: int, needs: Places = (), *, answers: Places = ()) -> None:
        for begin, stop in self._spans(start, end):
            sentence = self._text[begin:stop]
            before = self._before
            near = _near_words(sentence)
            takes_back = bool(before) and _takes_back(near)
            is_open = takes_back or not _PRONOUNS.isdisjoint(near)
            if self._title and not self._lead:
                self._lead = (len(self.pieces),)
            needed = (*needs, *before) if is_open else needs
            self._before = self._add(begin, stop, needed, answers=answers)
            if takes_back and not asks(self._text_of(before[0])):
                self._need_more(before[0], self._before)

    def _spans(self, start: int, end: int) -> list[Span]:
        """Return the sentences of a part of the text, over broken lines.

        In a script whose links between sentences are not known, the part stays whole.
        """
        text = self._text[start:end]
        if self._whole_paragraphs and 2 * len(_OTHER_SCRIPT.findall(text)) > sum(
            map(str.isalpha, text)
        ):
            return [(start, end)]
        plain = _BREAK.sub(_spaces, text)
        spans = [(start + first, start + last) for first, last in sentence_spans(plain)]
        return spans or [(start, end)]


def _near_words(sentence: str) -> list[str]:
    """Return the first words of a sentence and one between commas, casefolded."""
    words = WORD.findall(sentence[:80])[:_NEAR]
    aside = _ASIDE.search(sentence)
    return [word.casefold() for word in (*words, *(aside.groups() if aside else ()))]


def _takes_back(near: Sequence[str]) -> bool:
    return not _LINKS.isdisjoint(near) or not _OPENERS.isdisjoint(near[:1])


def _spaces(found: re.Match[str]) -> str:
    return " " * len(found.group())


def with_needs(pieces: Sequence[Piece], chosen: Iterable[int]) -> list[int]:
    """Return the chosen places and the places that they need, in reading order."""
    places: set[int] = set()
    for place in chosen:
        places.add(place)
        places.update(pieces[place].needs)
    return sorted(places)
