"""Statements of an answer, and the sentences that are cited for them."""

from __future__ import annotations

from dataclasses import dataclass

from ecs_plugins.shaping.attribution.checking import Check


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
