"""A statement of an answer, and what is cited for it."""

from __future__ import annotations

from dataclasses import dataclass

SUPPORTED_FROM = 0.5
"""Support from which on a statement counts as supported."""


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
        support: Probability that the passages together make it likely, in [0, 1]; 0.5 for a bare
            yes or no, of which nothing can be told.
        turns_on: Spans in the answer of numbers, names and negations that what it rests on most
            does not have; empty where it is supported.
        contradicted: Whether it is not supported, and the passages make it less likely than it
            was without them.
    """

    start: int
    end: int
    text: str
    citations: tuple[Citation, ...] = ()
    against: tuple[int, ...] = ()
    unheld: tuple[tuple[int, int], ...] = ()
    support: float = 0.0
    turns_on: tuple[tuple[int, int], ...] = ()
    contradicted: bool = False

    @property
    def supported(self) -> bool:
        """Whether its support reaches `SUPPORTED_FROM`."""
        return self.support >= SUPPORTED_FROM
