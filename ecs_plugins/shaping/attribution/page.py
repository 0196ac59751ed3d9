"""Attribution as a page: the answer on the left, its passages on the right.

A statement has the colour and the number of the passage that it is cited to; the cited sentence has
the same ones. The words that decided a check are underlined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ecs_plugins.common.rendering import rendered
from ecs_plugins.shaping.attribution.cited import AttributedStatement
from ecs_plugins.shaping.attribution.wording import Span

HUES = (214, 145, 28, 280, 350, 185, 95, 320)
"""Degrees on the colour wheel; passages take them in turn."""


@dataclass(frozen=True, slots=True)
class ColouredText:
    """A part of a text as the page shows it.

    Attributes:
        text: The part.
        numbers: Numbers of its passages.
        hue: Its colour in degrees; None for none.
        decides: True for words that decided a check.
        title: Text that a pointer shows.
    """

    text: str
    numbers: tuple[int, ...] = ()
    hue: int | None = None
    decides: bool = False
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
    """Return the page.

    Args:
        query: The question.
        answer: Its answer.
        statements: The statements of the answer.
        numbers: Numbers of the cited passages by their indices.
        passages: All of them.
    """
    shown = [_statement_shown(each, numbers) for each in statements]
    deciding: list[Span] = []
    for statement in statements:
        deciding += statement.decided_by
    cards: list[dict[str, object]] = []
    for index in _cited_first(numbers, len(passages)):
        number = numbers.get(index)
        quotes = _quotes_of(index, number, statements)
        card: dict[str, object] = {
            "index": index,
            "number": number,
            "pieces": _pieces(passages[index], quotes, ()),
        }
        cards.append(card)
    return rendered(
        "attribution.html.j2",
        query,
        answer=_pieces(answer, shown, deciding),
        cards=cards,
        statements=statements,
        counts=Counter(str(each.check) for each in statements),
        hue_of=hue_of,
    )


def checked_pieces(
    answer: str, statements: Sequence[AttributedStatement]
) -> list[tuple[AttributedStatement, list[ColouredText]]]:
    """Return every statement with its text in pieces, of which some decided its check."""
    checked: list[tuple[AttributedStatement, list[ColouredText]]] = []
    for each in statements:
        text = answer[each.start : each.end]
        deciding: list[Span] = []
        for start, end in each.decided_by:
            span = (start - each.start, end - each.start)
            deciding.append(span)
        pieces = _pieces(text, (), deciding)
        checked.append((each, pieces))
    return checked


def hue_of(number: int | None) -> int | None:
    """Return the colour of a passage by its number."""
    if number is None:
        return None
    turn = (number - 1) % len(HUES)
    return HUES[turn]


def _cited_first(numbers: Mapping[int, int], count: int) -> list[int]:
    """Return the indices of all passages: the cited ones by their numbers, then the others."""
    others = [index for index in range(count) if index not in numbers]
    cited = sorted(numbers, key=lambda index: numbers[index])
    return cited + others


def _statement_shown(statement: AttributedStatement, numbers: Mapping[int, int]) -> _Highlight:
    cited = tuple(numbers[each.passage] for each in statement.citations)
    return _Highlight(
        statement.start,
        statement.end,
        cited,
        title=str(statement.check),
    )


def _quotes_of(
    index: int,
    number: int | None,
    statements: Iterable[AttributedStatement],
) -> list[_Highlight]:
    """Return the cited sentences of a passage, each once, in reading order."""
    titles: dict[Span, list[str]] = {}
    for statement in statements:
        own = [each for each in statement.citations if each.passage == index]
        for citation in own:
            span = (citation.start, citation.end)
            known = titles.setdefault(span, [])
            known.append(statement.text)
    shown = () if number is None else (number,)
    quotes: list[_Highlight] = []
    for start, end in sorted(titles):
        title = " / ".join(titles[start, end])
        quote = _Highlight(start, end, shown, title)
        quotes.append(quote)
    return quotes


def _pieces(
    text: str,
    shown: Sequence[_Highlight],
    deciding: Sequence[Span],
) -> list[ColouredText]:
    """Cut a text at the ends of all spans; numbers stand at the end of a span."""
    coloured = [(span.start, span.end) for span in shown]
    cuts = {0, len(text)}
    for span in (*coloured, *deciding):
        cuts.update(span)
    pieces: list[ColouredText] = []
    for start, end in pairwise(sorted(cuts)):
        part = text[start:end]
        place = _around(start, end, coloured)
        decides = _around(start, end, deciding) is not None
        if place is None:
            piece = ColouredText(part, decides=decides)
        else:
            piece = _coloured(part, end, shown[place], decides)
        pieces.append(piece)
    return pieces


def _around(start: int, end: int, spans: Sequence[Span]) -> int | None:
    """Return the place of the span that has all of another one; None if none has."""
    for place, (first, last) in enumerate(spans):
        if first <= start and end <= last:
            return place
    return None


def _coloured(part: str, end: int, span: _Highlight, decides: bool) -> ColouredText:
    hue = hue_of(span.numbers[0]) if span.numbers else None
    numbers = span.numbers if end == span.end else ()
    return ColouredText(part, numbers, hue, decides, span.title)
