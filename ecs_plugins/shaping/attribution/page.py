"""What an answer rests on as a page: the answer on the left, its passages on the right.

A statement has the colour and the number of the passage that supports it best; the sentence that it
rests on has the same ones in the passage. Words on which an unsupported
statement turns are underlined, and so are names and numbers that no passage has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ecs_plugins.common.rendering import rendered
from ecs_plugins.shaping.attribution.cited import AttributedStatement

Span = tuple[int, int]
"""The first character of a part of a text, and one past its last."""

HUES = (214, 145, 28, 280, 350, 185, 95, 320)
"""Degrees on the colour wheel; passages take them in turn."""


@dataclass(frozen=True, slots=True)
class ColouredText:
    """A part of a text as the page shows it.

    Attributes:
        text: The part.
        numbers: Of the passages that it rests on or that are cited by it, best first.
        hue: Its colour in degrees; None for none.
        unheld: Whether no passage has it, or what the statement rests on does not.
        title: What is said where a pointer rests on it.
    """

    text: str
    numbers: tuple[int, ...] = ()
    hue: int | None = None
    unheld: bool = False
    title: str = ""


@dataclass(frozen=True, slots=True)
class _Highlight:
    """A span that is coloured."""

    start: int
    end: int
    numbers: tuple[int, ...]
    title: str


def attribution_page(
    query: str,
    answer: str,
    statements: Sequence[AttributedStatement],
    numbers: Mapping[int, int],
    passages: Sequence[str],
) -> str:
    """The page.

    Args:
        query: The question.
        answer: Its answer.
        statements: Of the answer, with what is cited for each.
        numbers: Of the cited passages, by their indices.
        passages: All of them.
    """
    shown = [_statement_shown(each, numbers) for each in statements]
    doubtful = [span for each in statements for span in (*each.unheld, *each.turns_on)]
    cards = []
    for index in _cited_first(numbers, len(passages)):
        number = numbers.get(index)
        quotes = _quotes_of(index, number, statements)
        pieces = _pieces(passages[index], quotes, ())
        cards.append({"index": index, "number": number, "pieces": pieces})
    return rendered(
        "attribution.html.j2",
        query,
        answer=_pieces(answer, shown, doubtful),
        cards=cards,
        statements=statements,
        uncited=[each for each in statements if not each.citations],
        unsupported=[each for each in statements if not each.supported],
        hue_of=hue_of,
    )


def hue_of(number: int | None) -> int | None:
    """The colour of a passage by its number."""
    return None if number is None else HUES[(number - 1) % len(HUES)]


def _cited_first(numbers: Mapping[int, int], count: int) -> list[int]:
    """Indices of all passages: the cited ones by their numbers, then the others."""
    others = [index for index in range(count) if index not in numbers]
    return [*sorted(numbers, key=lambda index: numbers[index]), *others]


def _statement_shown(statement: AttributedStatement, numbers: Mapping[int, int]) -> _Highlight:
    cited: list[int] = []
    chances: list[str] = []
    for citation in statement.citations:
        number = numbers[citation.passage]
        cited.append(number)
        chances.append(f"[{number}] {citation.probability:.0%}")
    cites = ", ".join(chances) or "no passage stands out"
    title = f"support {statement.support:.0%}: {cites}"
    return _Highlight(statement.start, statement.end, tuple(cited), title)


def _quotes_of(
    index: int, number: int | None, statements: Iterable[AttributedStatement]
) -> list[_Highlight]:
    """The sentences of a passage on which statements rest, each once, in reading order."""
    titles: dict[Span, list[str]] = {}
    for statement in statements:
        for citation in statement.citations:
            if citation.passage == index:
                span = (citation.start, citation.end)
                titles.setdefault(span, []).append(statement.text)
    own = () if number is None else (number,)
    quotes: list[_Highlight] = []
    for span in sorted(titles):
        start, end = span
        title = " / ".join(titles[span])
        quotes.append(_Highlight(start, end, own, title))
    return quotes


def _pieces(text: str, shown: Sequence[_Highlight], unheld: Sequence[Span]) -> list[ColouredText]:
    """The text in parts, at the ends of all spans; numbers stand at the end of what has them."""
    coloured = [(span.start, span.end) for span in shown]
    cuts = {0, len(text)}
    for span in (*coloured, *unheld):
        cuts.update(span)
    pieces: list[ColouredText] = []
    for start, end in pairwise(sorted(cuts)):
        part = text[start:end]
        place = _around(start, end, coloured)
        is_unheld = _around(start, end, unheld) is not None
        if place is None:
            piece = ColouredText(part, unheld=is_unheld)
        else:
            piece = _coloured(part, end, shown[place], is_unheld)
        pieces.append(piece)
    return pieces


def _around(start: int, end: int, spans: Sequence[Span]) -> int | None:
    """Which span has all of another one; None if none has."""
    for place, (first, last) in enumerate(spans):
        if first <= start and end <= last:
            return place
    return None


def _coloured(part: str, end: int, span: _Highlight, is_unheld: bool) -> ColouredText:
    hue = hue_of(span.numbers[0]) if span.numbers else None
    numbers = span.numbers if end == span.end else ()
    return ColouredText(part, numbers, hue, is_unheld, span.title)
