"""What attribution returns: every statement of an answer, and what supports it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from ecs_plugins.common.rendering import preformatted
from ecs_plugins.common.text import one_line
from ecs_plugins.errors import InvalidInputError
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
        statements: What the answer states, in reading order; empty if it states nothing.
        passages: How many passages it was held against.
        model: Name of the model that scored.
        ledger: Tokens that passed through it.
        seconds: Wall time.
    """

    query: str
    answer: str
    statements: tuple[AttributedStatement, ...]
    passages: int
    model: str
    ledger: TokenLedger = field(default_factory=TokenLedger)
    seconds: float = 0.0

    @property
    def uncited(self) -> tuple[AttributedStatement, ...]:
        """Statements for which no passage stands out."""
        return tuple(each for each in self.statements if not each.citations)

    @property
    def support(self) -> float | None:
        """That of its weakest statement, in [0, 1]; None if the answer states nothing.

        The minimum and not the product, which would hold its length against an answer.
        """
        return min((each.support for each in self.statements), default=None)

    @property
    def unsupported(self) -> tuple[AttributedStatement, ...]:
        """Statements that the passages do not make likely; each says on which words it turns."""
        return tuple(each for each in self.statements if not each.supported)

    @property
    def contradicted(self) -> tuple[AttributedStatement, ...]:
        """Of these, the statements that the passages make less likely."""
        return tuple(each for each in self.statements if each.contradicted)

    @property
    def cited(self) -> tuple[int, ...]:
        """Indices of the cited passages, in the order in which the answer needs them."""
        passages: list[int] = []
        for statement in self.statements:
            passages += [citation.passage for citation in statement.citations]
        return tuple(dict.fromkeys(passages))

    @property
    def numbers(self) -> dict[int, int]:
        """The number of each cited passage, from 1, by its index."""
        return {passage: number for number, passage in enumerate(self.cited, start=1)}

    def used(self) -> Mapping[int, float]:
        """How much each cited passage did for the answer: its best probability, by index."""
        shares: dict[int, float] = {}
        for statement in self.statements:
            for citation in statement.citations:
                known = shares.get(citation.passage, 0.0)
                shares[citation.passage] = max(known, citation.probability)
        return shares

    def marked(self) -> str:
        """The answer with ``[1]`` behind statements; numbers follow `cited`.

        Marks of the answer that number passages give way to these, and other brackets stay;
        where nothing is cited, the answer is as it was.
        """
        return edited(self.answer, self.mark_edits())

    def mark_edits(self) -> list[Edit]:
        """The changes that `marked` makes, in reading order."""
        return mark_edits(self.answer, self.statements, self.numbers, self.passages)

    def to_html(self, passages: Sequence[str]) -> str:
        """A page that loads nothing: the answer beside its passages, and what rests on what.

        Args:
            passages: As they were given to `ContextShaper.attribute`.

        Raises:
            InvalidInputError: They are others, by their number.
        """
        if len(passages) != self.passages:
            raise InvalidInputError(
                f"the answer was held against {self.passages} passages, got {len(passages)}; pass "
                "the same ones"
            )
        return attribution_page(self.query, self.answer, self.statements, self.numbers, passages)

    def _repr_html_(self) -> str:
        """`explain`, as a notebook shows it."""
        return preformatted(self.explain())

    def explain(self) -> str:
        """For a terminal, 80 columns: each statement with the sentences that support it."""
        if not self.statements:
            return "The answer states nothing that passages could support."
        lines: list[str] = []
        for statement in self.statements:
            lines += _wrapped(one_line(statement.text), "  ")
            lines += _reasons(statement, self.answer)
        return "\n".join(lines)

    def to_dict(self) -> dict[str, object]:
        """For JSON: plain types only."""
        return {
            "query": self.query,
            "answer": self.answer,
            "statements": [asdict(each) for each in self.statements],
            "support": self.support,
            "passages": self.passages,
            "model": self.model,
            "seconds": self.seconds,
        }


def _reasons(statement: AttributedStatement, answer: str) -> list[str]:
    lines: list[str] = []
    lines += _wrapped(f"  support {statement.support:.0%}{_against(statement)}", "    ")
    if not statement.citations:
        lines.append("  no passage stands out")
    for citation in statement.citations:
        head = f"  passage {citation.passage}, {citation.probability:.0%}: "
        lines += _wrapped(f"{head}{one_line(citation.quote)}", "    ")
    turning = [span for span in statement.turns_on if span not in statement.unheld]
    if turning:
        words = ", ".join(one_line(answer[start:end]) for start, end in turning)
        lines += _wrapped(f"  not where it rests: {words}", "    ")
    if statement.unheld:
        words = ", ".join(one_line(answer[start:end]) for start, end in statement.unheld)
        lines += _wrapped(f"  in no passage: {words}", "    ")
    if statement.against:
        passages = ", ".join(map(str, statement.against))
        lines += _wrapped(f"  less likely behind passage {passages}", "    ")
    return lines


def _against(statement: AttributedStatement) -> str:
    return ", and the passages speak against it" if statement.contradicted else ""


def _wrapped(text: str, indent: str) -> Sequence[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent=indent) or [text]
