"""Result of attribution: the statements of an answer, their citations and checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, pairwise
from operator import attrgetter
from typing import NamedTuple

from ecs_plugins.common.rendering import folded, preformatted, rendered
from ecs_plugins.common.text import one_line
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.shaping.attribution.checking import Check
from ecs_plugins.shaping.attribution.statements import Edit, edited, old_marks
from ecs_plugins.shaping.attribution.wording import Span
from ecs_plugins.tokens import TokenLedger

_ENDS = ".!。！| \t\n"  # ends of a sentence or a cell of a table


@dataclass(frozen=True, slots=True)
class Citation:
    """A sentence that a statement rests on.

    Attributes:
        passage: Index of its passage in the input.
        start: Its first character in the passage.
        end: One past its last.
        quote: The sentence, the list item or the table row.
        header: The header row of its table; empty elsewhere.
        shift: Nats; ``ln P(statement | sentence, question) - ln P(statement | question)``,
            Definition 3.1 of Entropic Context Shaping. None without a model.
    """

    passage: int
    start: int
    end: int
    quote: str
    header: str = ""
    shift: float | None = None

    @property
    def text(self) -> str:
        """The quote, after its header if it has one."""
        return f"{self.header}\n{self.quote}" if self.header else self.quote


@dataclass(frozen=True, slots=True)
class AttributedStatement:
    """One statement of an answer.

    Attributes:
        start: Its first character in the answer.
        end: One past its last.
        text: The statement as it was read.
        citations: The sentence that it rests on; a second one if that adds something.
        check: ``"consistent"``, ``"conflict"`` or ``"unverified"``.
        decided_by: Spans in the answer of the words that are otherwise in the cited sentence, or
            not in it; empty for a consistent statement.
    """

    start: int
    end: int
    text: str
    citations: tuple[Citation, ...] = ()
    check: Check = Check.UNVERIFIED
    decided_by: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Attribution:
    """The result of `ContextShaper.attribute`.

    Attributes:
        query: As given.
        answer: As given.
        statements: The statements of the answer, in reading order; empty if it states nothing.
        passages: Number of passages.
        model: Name of the model that scored; empty without one.
        ledger: Tokens that passed through it.
        seconds: Wall time.
    """

    query: str
    answer: str
    statements: tuple[AttributedStatement, ...]
    passages: int
    model: str = ""
    ledger: TokenLedger = field(default_factory=TokenLedger)
    seconds: float = 0.0

    @property
    def check(self) -> Check | None:
        """The worst check of its statements; None if the answer states nothing."""
        checks = {each.check for each in self.statements}
        worst_first = (Check.CONFLICT, Check.UNVERIFIED, Check.CONSISTENT)
        return next((check for check in worst_first if check in checks), None)

    @property
    def uncited(self) -> tuple[AttributedStatement, ...]:
        """Statements without a citation."""
        return tuple(each for each in self.statements if not each.citations)

    @property
    def conflicts(self) -> tuple[AttributedStatement, ...]:
        """Statements that the cited sentence contradicts."""
        return tuple(each for each in self.statements if each.check is Check.CONFLICT)

    @property
    def unverified(self) -> tuple[AttributedStatement, ...]:
        """Statements of which the cited sentence does not say enough."""
        return tuple(each for each in self.statements if each.check is Check.UNVERIFIED)

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The citations of all statements, in their order."""
        return tuple(chain.from_iterable(each.citations for each in self.statements))

    @property
    def cited(self) -> tuple[int, ...]:
        """Indices of the cited passages, in the order of the statements."""
        return tuple(dict.fromkeys(each.passage for each in self.citations))

    @property
    def numbers(self) -> dict[int, int]:
        """The number of each cited passage, from 1, by its index."""
        return {passage: number for number, passage in enumerate(self.cited, start=1)}

    def marked(self) -> str:
        """Return the answer with ``[1]`` after statements; numbers follow `cited`.

        Passage numbers that the answer has already are replaced, and other brackets stay. Without
        a citation the answer is returned unchanged.
        """
        return edited(self.answer, self.mark_edits())

    def mark_edits(self) -> list[Edit]:
        """Return the changes that `marked` makes, in reading order."""
        if not self.numbers:
            return []
        edits = old_marks(self.answer, self.passages)
        removed = {edit.end: edit.start for edit in edits}
        for statement in self.statements:
            marks = [f"[{self.numbers[each.passage]}]" for each in statement.citations]
            if marks:
                place = _place_for(statement, self.answer, removed)
                written = "".join(marks)
                edits.append(Edit(place, place, f" {written}"))
        return sorted(edits, key=attrgetter("start", "end"))

    def to_html(self, passages: Sequence[str]) -> str:
        """Return an HTML page that loads nothing: the answer next to its passages.

        Args:
            passages: As they were given to `ContextShaper.attribute`.

        Raises:
            InvalidInputError: Their number is another one.
        """
        if len(passages) != self.passages:
            raise InvalidInputError(
                f"the answer was compared with {self.passages} passages, got {len(passages)}; pass "
                "the same ones"
            )
        cards: list[dict[str, object]] = []
        others = [index for index in range(self.passages) if index not in self.numbers]
        for index in (*self.cited, *others):
            spans = [each for each in self.citations if each.passage == index]
            pieces = _cut(passages[index], spans)
            card: dict[str, object] = {
                "index": index,
                "number": self.numbers.get(index),
                "pieces": pieces,
            }
            cards.append(card)
        deciding = chain.from_iterable(each.decided_by for each in self.statements)
        return rendered(
            "attribution.html.j2",
            self.query,
            answer=_cut(self.answer, self.statements, tuple(deciding)),
            cards=cards,
            statements=self.statements,
            counts=Counter(str(each.check) for each in self.statements),
            numbers=self.numbers,
        )

    def _repr_html_(self) -> str:
        """Return `explain` as a notebook shows it."""
        return preformatted(self.explain())

    def explain(self) -> str:
        """Return a text of 80 columns: each statement with its check and its citations."""
        if not self.statements:
            return "The answer states nothing."
        return folded("\n".join(_explained(each, self.answer) for each in self.statements))

    def to_dict(self) -> dict[str, object]:
        """Return plain types for JSON."""
        return {
            "query": self.query,
            "answer": self.answer,
            "statements": [asdict(each) for each in self.statements],
            "check": self.check,
            "passages": self.passages,
            "model": self.model,
            "seconds": self.seconds,
        }


def _explained(statement: AttributedStatement, answer: str) -> str:
    words = [one_line(answer[start:end]) for start, end in statement.decided_by]
    reason = f"{statement.check}: {', '.join(words)}" if words else str(statement.check)
    sources = [f"passage {each.passage}: {one_line(each.text)}" for each in statement.citations]
    lines = [reason, *(sources or ["no passage says it"])]
    return "\n  ".join((one_line(statement.text), *lines))


def _place_for(statement: AttributedStatement, answer: str, removed: dict[int, int]) -> int:
    """Return the place after the last word of a statement, before its full stop."""
    end = statement.end
    while end > statement.start:
        if end in removed:
            end = removed[end]
        elif answer[end - 1] in _ENDS:
            end -= 1
        else:
            break
    return max(end, statement.start)


class Piece(NamedTuple):
    """A part of a text as a page shows it.

    Attributes:
        text: The part.
        span: The statement or the citation that it belongs to.
        is_last: True for the last part of that.
        decides: True for words that decided a check.
    """

    text: str
    span: AttributedStatement | Citation | None
    is_last: bool
    decides: bool


def checked_pieces(
    answer: str, statements: Sequence[AttributedStatement]
) -> list[tuple[AttributedStatement, list[Piece]]]:
    """Return every statement with its text in pieces, of which some decided its check."""
    checked: list[tuple[AttributedStatement, list[Piece]]] = []
    for each in statements:
        pieces = _cut(answer, [each], each.decided_by)
        own = [piece for piece in pieces if piece.span is each]
        checked.append((each, own))
    return checked


def _cut(
    text: str,
    spans: Sequence[AttributedStatement | Citation],
    deciding: Sequence[Span] = (),
) -> list[Piece]:
    """Cut a text at the ends of all spans."""
    cuts = {0, len(text)}
    for span in spans:
        cuts.update((span.start, span.end))
    for each in deciding:
        cuts.update(each)
    pieces: list[Piece] = []
    for start, end in pairwise(sorted(cuts)):
        around = [span for span in spans if span.start <= start and end <= span.end]
        own = around[0] if around else None
        is_last = own is not None and own.end == end
        decides = any(first <= start and end <= last for first, last in deciding)
        pieces.append(Piece(text[start:end], own, is_last, decides))
    return pieces
