"""Counts of tokens by stage and model role, for all engines.

The stages are those of The Efficiency Frontier, Eq. 1. Stage 1 prepares a context once for all
queries that reuse it; each query pays stage 2. Roles separate models of different prices, such as
the large model that answers and the small local one that scores.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any


class Stage(StrEnum):
    """Time at which tokens are spent."""

    PREPARE = "prepare"
    """Stage 1: once per context, shared by all queries that reuse it."""
    QUERY = "query"
    """Stage 2: once per query."""


class Role(StrEnum):
    """Model and purpose of tokens."""

    SCORER = "scorer"
    """Tokens computed by the local scoring model."""
    ANSWER_INPUT = "answer_input"
    """Prompt tokens of the answering model."""
    ANSWER_OUTPUT = "answer_output"
    """Tokens written by the answering model."""
    COMPRESS_INPUT = "compress_input"
    """Prompt tokens of the model that compresses a context."""
    COMPRESS_OUTPUT = "compress_output"
    """Tokens written by the compressing model."""


Account = tuple[Stage, Role]


def nested(accounts: Mapping[Account, Any]) -> dict[str, dict[str, Any]]:
    """Return ``{stage: {role: value}}`` for JSON."""
    out: dict[str, dict[str, Any]] = {}
    for (stage, role), value in accounts.items():
        out.setdefault(str(stage), {})[str(role)] = value
    return out


def flat(stored: Any) -> Any:
    """Return accounts from the result of `nested`; accounts unchanged.

    Raises:
        ValueError: The value has another shape, or a stage or role is unknown.
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
    """Thread-safe counts of tokens per (stage, role).

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
        """Return the tokens of a stage, a role, an account, or all."""
        return sum(
            tokens
            for (of_stage, of_role), tokens in self
            if stage in (None, of_stage) and role in (None, of_role)
        )

    def to_dict(self) -> dict[str, dict[str, int]]:
        """Return ``{stage: {role: tokens}}`` for JSON."""
        return nested(dict(self))

    @classmethod
    def from_dict(cls, data: Mapping[str, Mapping[str, int]]) -> TokenLedger:
        """Return a ledger from the result of `to_dict`."""
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
