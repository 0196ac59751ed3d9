"""Tokens spent, counted once, per stage and model role; used by all three engines.

The stages are those of The Efficiency Frontier, Eq. 1: stage 1 prepares a context and is
shared by every query that reuses it, stage 2 is paid by each query. Roles keep models of
different price apart: the big model that answers and the small local one that scores.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any


class Stage(StrEnum):
    """When tokens are spent."""

    PREPARE = "prepare"
    """Stage 1: once per context, amortised over its reuse."""
    QUERY = "query"
    """Stage 2: by every query."""


class Role(StrEnum):
    """Which model spends them, and on what."""

    SCORER = "scorer"
    """Tokens that the local scoring model computed."""
    ANSWER_INPUT = "answer_input"
    """Prompt tokens of the answering model."""
    ANSWER_OUTPUT = "answer_output"
    """Tokens that the answering model wrote."""
    COMPRESS_INPUT = "compress_input"
    """Prompt tokens of the model that compresses a context."""
    COMPRESS_OUTPUT = "compress_output"
    """Tokens that the compressing model wrote."""


Account = tuple[Stage, Role]


def nested(accounts: Mapping[Account, Any]) -> dict[str, dict[str, Any]]:
    """``{stage: {role: value}}``, as JSON holds it."""
    out: dict[str, dict[str, Any]] = {}
    for (stage, role), value in accounts.items():
        out.setdefault(str(stage), {})[str(role)] = value
    return out


def flat(stored: Any) -> Any:
    """The accounts behind `nested`; they themselves where they are given.

    Raises:
        ValueError: It is something else, or a stage or role is unknown.
    """
    given = stored if isinstance(stored, Mapping) else {"": stored}
    if all(isinstance(name, tuple) for name in given):
        return stored
    if not all(isinstance(roles, Mapping) for roles in given.values()):
        raise ValueError("tokens are by stage, and there by role")
    return {
        (Stage(stage), Role(role)): value
        for stage, roles in stored.items()
        for role, value in roles.items()
    }


class TokenLedger:
    """A thread-safe count of tokens per (stage, role).

    >>> ledger = TokenLedger()
    >>> ledger.book(Stage.QUERY, Role.SCORER, 120)
    >>> ledger.total()
    120
    """

    def __init__(self, counts: Mapping[Account, int] | None = None) -> None:
        self._counts: dict[Account, int] = {}
        self._lock = threading.Lock()
        for (stage, role), tokens in (counts or {}).items():
            self.book(stage, role, tokens)

    def book(self, stage: Stage, role: Role, tokens: int) -> None:
        """Add ``tokens`` to one account.

        Raises:
            ValueError: ``tokens`` is negative, or the stage or role is unknown.
        """
        if tokens < 0:
            raise ValueError(f"tokens must not be negative, got {tokens}")
        key = (Stage(stage), Role(role))
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + int(tokens)

    def add(self, other: TokenLedger) -> None:
        """Add every account of ``other`` to this ledger."""
        for (stage, role), tokens in other:
            self.book(stage, role, tokens)

    def total(self, stage: Stage | None = None, role: Role | None = None) -> int:
        """Tokens of one stage, one role, one account, or all."""
        return sum(
            tokens
            for (of_stage, of_role), tokens in self
            if stage in (None, of_stage) and role in (None, of_role)
        )

    def to_dict(self) -> dict[str, dict[str, int]]:
        """``{stage: {role: tokens}}``, for JSON."""
        return nested(dict(self))

    @classmethod
    def from_dict(cls, data: Mapping[str, Mapping[str, int]]) -> TokenLedger:
        """Rebuild a ledger from `to_dict`."""
        return cls(flat(data))

    def __iter__(self) -> Iterator[tuple[Account, int]]:
        with self._lock:
            items = sorted(self._counts.items())
        return iter(items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenLedger) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TokenLedger({self.to_dict()})"

    def __reduce__(self) -> tuple[object, ...]:
        return self.from_dict, (self.to_dict(),)
