"""Result of attribution: the statements of an answer, their citations and checks."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from ecs_plugins.common.rendering import preformatted
from ecs_plugins.common.text import one_line
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.shaping.attribution.checking import Check
from ecs_plugins.shaping.attribution.cited import AttributedStatement
from ecs_plugins.shaping.attribution.marks import Edit, edited, mark_edits
from ecs_plugins.shaping.attribution.page import attribution_page
from ecs_plugins.tokens import TokenLedger

_WIDTH = 80


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
    def cited(self) -> tuple[int, ...]:
        """Indices of the cited passages, in the order of the statements."""
        passages: list[int] = []
        for statement in self.statements:
            passages += [citation.passage for citation in statement.citations]
        return tuple(dict.fromkeys(passages))

    @property
    def numbers(self) -> dict[int, int]:
        """The number of each cited passage, from 1, by its index."""
        return {passage: number for number, passage in enumerate(self.cited, start=1)}

    def marked(self) -> str:
        """Return the answer with ``[1]`` after statements; numbers follow `cited`.

        Marks of the answer that number passages give way to these, and other brackets stay;
        where nothing is cited, the answer is as it was.
        """
        return edited(self.answer, self.mark_edits())

    def mark_edits(self) -> list[Edit]:
        """Return the changes that `marked` makes, in reading order."""
        return mark_edits(self.answer, self.statements, self.numbers, self.passages)

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
        return attribution_page(self.query, self.answer, self.statements, self.numbers, passages)

    def _repr_html_(self) -> str:
        """Return `explain` as a notebook shows it."""
        return preformatted(self.explain())

    def explain(self) -> str:
        """Return a text of 80 columns: each statement with its check and its citations."""
        if not self.statements:
            return "The answer states nothing."
        lines: list[str] = []
        for statement in self.statements:
            lines += _wrapped(one_line(statement.text), "  ")
            lines += _reasons(statement, self.answer)
        return "\n".join(lines)

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


def _reasons(statement: AttributedStatement, answer: str) -> list[str]:
    words = [one_line(answer[start:end]) for start, end in statement.decided_by]
    reason = f"  {statement.check}"
    if words:
        reason += ": " + ", ".join(words)
    lines = _wrapped(reason, "    ")
    if not statement.citations:
        lines.append("  no passage says it")
    for citation in statement.citations:
        lines += _wrapped(f"  passage {citation.passage}: {one_line(citation.text)}", "    ")
    return lines


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent=indent) or [text]
