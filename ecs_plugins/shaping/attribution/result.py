"""What attribution returns: every statement of an answer, and what supports it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from ecs_plugins.common.text import one_line
from ecs_plugins.tokens import TokenLedger

_WIDTH = 80


@dataclass(frozen=True, slots=True)
class Citation:
    """A passage whose shift of a statement's log-probability stands out.

    Attributes:
        passage: Its index in the input.
        probability: That it is evidence of the statement, in [0, 1].
        shift: Nats; ``ln P(statement | passage, question) - ln P(statement | question)``,
            Definition 3.1 of Entropic Context Shaping.
        start: First character, in the passage, of the sentence nearest to the statement.
        end: One past its last.
        quote: That sentence.
    """

    passage: int
    probability: float
    shift: float
    start: int
    end: int
    quote: str


@dataclass(frozen=True, slots=True)
class AttributedStatement:
    """One statement of an answer.

    Attributes:
        start: Its first character in the answer.
        end: One past its last.
        text: What was read of it.
        citations: What supports it, best first.
        against: Indices of passages that make it less likely, worst first.
        unheld: Spans in the answer of numbers, names and negations that no passage has.
    """

    start: int
    end: int
    text: str
    citations: tuple[Citation, ...] = ()
    against: tuple[int, ...] = ()
    unheld: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Attribution:
    """The result of `ContextShaper.attribute`.

    Attributes:
        query: As given.
        answer: As given.
        statements: What the answer states, in reading order; empty if it states nothing.
        model: Name of the model that scored.
        ledger: Tokens that passed through it.
        seconds: Wall time.
    """

    query: str
    answer: str
    statements: tuple[AttributedStatement, ...]
    model: str
    ledger: TokenLedger = field(default_factory=TokenLedger)
    seconds: float = 0.0

    @property
    def uncited(self) -> tuple[AttributedStatement, ...]:
        """Statements for which no passage stands out."""
        return tuple(each for each in self.statements if not each.citations)

    @property
    def cited(self) -> tuple[int, ...]:
        """Indices of the cited passages, in the order in which the answer needs them."""
        passages: list[int] = []
        for statement in self.statements:
            passages += [citation.passage for citation in statement.citations]
        return tuple(dict.fromkeys(passages))

    def used(self) -> Mapping[int, float]:
        """How much each cited passage did for the answer: its best probability, by index."""
        shares: dict[int, float] = {}
        for statement in self.statements:
            for citation in statement.citations:
                known = shares.get(citation.passage, 0.0)
                shares[citation.passage] = max(known, citation.probability)
        return shares

    def marked(self) -> str:
        """The answer with ``[1]`` behind statements; numbers follow `cited`."""
        numbers = {passage: number for number, passage in enumerate(self.cited, start=1)}
        text = self.answer
        for statement in reversed(self.statements):
            marks = "".join(f"[{numbers[c.passage]}]" for c in statement.citations)
            if marks:
                end = _before_full_stop(text, statement)
                text = f"{text[:end]} {marks}{text[end:]}"
        return text

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
            "model": self.model,
            "seconds": self.seconds,
        }


def _before_full_stop(text: str, statement: AttributedStatement) -> int:
    """Where a mark goes: behind the last word, before what ends the sentence."""
    end = statement.end
    while end > statement.start and text[end - 1] in ".!。！":
        end -= 1
    return end


def _reasons(statement: AttributedStatement, answer: str) -> list[str]:
    lines: list[str] = []
    if not statement.citations:
        lines.append("  no passage stands out")
    for citation in statement.citations:
        head = f"  passage {citation.passage}, {citation.probability:.0%}: "
        lines += _wrapped(f"{head}{one_line(citation.quote)}", "    ")
    if statement.unheld:
        words = ", ".join(one_line(answer[start:end]) for start, end in statement.unheld)
        lines += _wrapped(f"  in no passage: {words}", "    ")
    if statement.against:
        passages = ", ".join(map(str, statement.against))
        lines += _wrapped(f"  less likely behind passage {passages}", "    ")
    return lines


def _wrapped(text: str, indent: str) -> Sequence[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent=indent) or [text]
