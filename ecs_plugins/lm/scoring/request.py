"""A scoring request in token ids, and its paths: what is fed and what is read off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ecs_plugins.errors import InvalidInputError

Ids = tuple[int, ...]
Logprobs = npt.NDArray[np.float32]


class Continuation(NamedTuple):
    """Ids of one continuation, with the half-open span of every scored segment in it."""

    ids: Ids
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A `ScoreRequest` in token ids. Something always precedes the first scored token."""

    prefix: Ids
    candidates: tuple[Ids, ...]
    continuations: tuple[Continuation, ...]
    name: str = ""

    @property
    def longest_continuation(self) -> int:
        """Tokens of the longest continuation."""
        return max(len(continuation.ids) for continuation in self.continuations)

    def require_room(self, window: int) -> None:
        """Refuse a prefix that leaves no room even for the empty candidate.

        Raises:
            InvalidInputError: Prefix and longest continuation exceed ``window`` tokens.
        """
        if len(self.prefix) + self.longest_continuation > window:
            raise InvalidInputError(
                f"the prefix has {len(self.prefix)} tokens and the longest continuation "
                f"{self.longest_continuation}, together more than the model's window of {window}"
                f"{f' (in {self.name})' if self.name else ''}: shorten the context or the question"
            )

    def length(self, candidate: int) -> int:
        """Tokens from the head of the prefix to the end of the longest continuation."""
        return len(self.prefix) + len(self.candidates[candidate]) + self.longest_continuation


class Path(NamedTuple):
    """One way from the end of the prefix to a last scored token.

    Attributes:
        ids: Candidate and continuation, cut behind the last scored token.
        scored: Indices into ``ids`` of the scored tokens, ascending.
    """

    ids: Ids
    scored: tuple[int, ...]


def path_of(candidate: Ids, continuation: Continuation) -> Path:
    """The path through one candidate and one continuation."""
    start = len(candidate)
    scored = tuple(start + i for a, b in continuation.spans for i in range(a, b))
    return Path((candidate + continuation.ids)[: scored[-1] + 1], scored)


class Scored(NamedTuple):
    """What a scoring path returns: log-probabilities per path, and tokens computed."""

    logprobs: list[Logprobs]
    computed_tokens: int


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading ids two sequences share."""
    shared = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        shared += 1
    return shared
