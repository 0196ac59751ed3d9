"""A scoring request in token ids, its paths, and the comparison of distributions after them.

A vocabulary has up to a quarter of a million tokens. So of all next-token distributions only those
of the base are kept, and only at the scored tokens; a candidate's are reduced to one number each
as soon as they are there, a few rows at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ecs_plugins.errors import InvalidInputError, ScoringError

if TYPE_CHECKING:
    from torch import Tensor

    from ecs_plugins.lm.scoring.tensors import Readings

Logprobs = npt.NDArray[np.float32]
Ids = tuple[int, ...]


class Continuation(NamedTuple):
    """Ids of one continuation, with the half-open span of every scored segment in it.

    Attributes:
        fixed: So many leading ids are the same for every question, without the last one before
            the first that is scored; -1 takes the last id of the candidate away.
    """

    ids: Ids
    spans: tuple[tuple[int, int], ...]
    fixed: int = -1


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A `ScoreRequest` in token ids. Something always precedes the first scored token.

    Attributes:
        comparisons: Where a divergence is wanted, what keeps the base's distributions and
            collects the divergences, for every continuation; empty otherwise. Parts of a request
            share them.
    """

    prefix: Ids
    candidates: tuple[Ids, ...]
    continuations: tuple[Continuation, ...]
    name: str = ""
    comparisons: tuple[Comparison, ...] = ()

    def path(self, candidate: int, continuation: int) -> Path:
        """Return the path through a candidate and a continuation, by their numbers."""
        ids = self.candidates[candidate]
        path = path_of(ids, self.continuations[continuation])
        # The same for all continuations, so that these share their first ids.
        fixed = min(each.fixed for each in self.continuations)
        kept = len(ids) + fixed
        if path.scored:
            kept = min(kept, path.scored[0] - 1)
        comparison = self.comparisons[continuation] if self.comparisons else None
        return path._replace(kept=max(0, kept), comparison=comparison)

    @property
    def beginning(self) -> TokenRequest:
        """Return the part of the request that is worth keeping, with nothing scored."""
        first = min(self.continuations, key=lambda continuation: continuation.fixed)
        ids = first.ids[: first.fixed + 1]
        read = Continuation(ids, (), first.fixed)
        return replace(self, continuations=(read,), comparisons=())

    @property
    def ids(self) -> tuple[Ids, ...]:
        """Return all ids, by part."""
        continuations = (continuation.ids for continuation in self.continuations)
        return (self.prefix, *self.candidates, *continuations)

    @property
    def longest_continuation(self) -> int:
        """Return tokens of the longest continuation."""
        return max(len(continuation.ids) for continuation in self.continuations)

    @property
    def tokens(self) -> int:
        """Return tokens of all paths, where the candidates share nothing but the prefix."""
        after = sum(len(continuation.ids) for continuation in self.continuations)
        candidates = sum(len(candidate) + after for candidate in self.candidates)
        return len(self.prefix) + candidates

    def require_room(self, window: int) -> None:
        """Refuse a prefix that leaves no room even for the empty candidate."""
        if len(self.prefix) + self.longest_continuation <= window:
            return
        where = f" (in {self.name})" if self.name else ""
        raise InvalidInputError(
            f"the prefix has {len(self.prefix)} tokens and the longest continuation "
            f"{self.longest_continuation}, together more than the model's window of {window}"
            f"{where}: shorten the context or the question"
        )

    def length(self, candidate: int) -> int:
        """Return the tokens from the head of the prefix to the end of the longest continuation."""
        passage = self.candidates[candidate]
        return len(self.prefix) + len(passage) + self.longest_continuation

    def beyond(self, window: int) -> dict[int, str]:
        """Return the candidates that exceed a window, with the reason."""
        reasons = {}
        for candidate in range(len(self.candidates)):
            length = self.length(candidate)
            if length > window:
                reasons[candidate] = f"{length} tokens exceed the model's window of {window}"
        return reasons


Scores = dict[tuple[int, int], Logprobs]
"""Log-probabilities of the scored tokens by (candidate, continuation)."""


@dataclass(slots=True)
class EngineResult:
    """Log-probabilities by (candidate, continuation), reasons by unscored candidate, tokens."""

    scores: Scores
    unscored: dict[int, str]
    computed_tokens: int

    def fitting(self, request: TokenRequest) -> list[int]:
        """Return the candidates that can be scored."""
        return [k for k in range(len(request.candidates)) if k not in self.unscored]


class Path(NamedTuple):
    """One way from the end of the prefix to a last scored token.

    Attributes:
        ids: Candidate and continuation, cut after the last scored token.
        scored: Indices into ``ids`` of the scored tokens, ascending.
        kept: Number of leading ids that are worth keeping for later questions.
        comparison: Gets the logits at the scored tokens, if divergences are wanted.
    """

    ids: Ids
    scored: tuple[int, ...]
    kept: int = 0
    comparison: Comparison | None = None

    @property
    def is_base(self) -> bool:
        """True if other paths are compared with this one, which must therefore come first."""
        return self.comparison is not None and self.comparison.is_base(self.ids)


def path_of(candidate: Ids, continuation: Continuation) -> Path:
    """Return the path through one candidate and one continuation."""
    start = len(candidate)
    scored = tuple(
        start + index for first, stop in continuation.spans for index in range(first, stop)
    )
    ids = candidate + continuation.ids
    if scored:
        ids = ids[: scored[-1] + 1]
    return Path(ids, scored)


class PathScores(NamedTuple):
    """Result of a scoring path: log-probabilities per path, and tokens computed."""

    logprobs: list[Logprobs]
    computed_tokens: int


def common_length(a: Ids, b: Ids) -> int:
    """Return the number of leading ids that two sequences share.

    By bisection over slices, which compare at the speed of memory: contexts have thousands of
    tokens and are compared often.
    """
    shared = 0
    beyond = min(len(a), len(b)) + 1
    while beyond - shared > 1:
        middle = (shared + beyond) // 2
        if a[shared:middle] == b[shared:middle]:
            shared = middle
        else:
            beyond = middle
    return shared


class Comparison:
    """Distributions after the candidates, compared with those after the base.

    Collects the logits of every path through a continuation. The base path has to come first; the
    same path may come again.

    Args:
        base: Ids of the continuation up to its last scored token: the path of the base.

    Attributes:
        found: Divergences at the scored tokens, float32 nats, by the ids of a path.
    """

    def __init__(self, base: Ids) -> None:
        self.found: dict[Ids, Logprobs] = {}
        self._base = base
        self._rows: Tensor | None = None

    def is_base(self, path: Ids) -> bool:
        """Return True for the path of the base."""
        return path == self._base

    def see(
        self,
        path: Ids,
        logits: Tensor,
        rows: Tensor,
        readings: Readings,
    ) -> None:
        """Take note of a path.

        Args:
            path: Its ids.
            logits: ``[n, vocabulary]``, in any dtype.
            rows: Which of them predict its scored tokens, in their order; on their device.
            readings: Where the divergences are read from the device with other numbers.

        Raises:
            ScoringError: The base did not come first.
        """
        import torch

        from ecs_plugins.lm.scoring.tensors import divergence_of, rows_at_once

        if self.is_base(path):
            own = logits[rows].float()
            self._rows = torch.log_softmax(own, dim=-1)
            self.found[path] = np.zeros(len(rows), dtype=np.float32)
            return
        if self._rows is None:
            raise ScoringError(
                "a divergence needs the distribution after the base, which was not computed: "
                "score the empty candidate with, or before, the others"
            )
        divergences = torch.empty(len(rows), dtype=torch.float32, device=logits.device)
        step = rows_at_once(logits)
        for at in range(0, len(rows), step):
            part = slice(at, at + step)
            own = logits[rows[part]].float()
            logprobs = torch.log_softmax(own, dim=-1)
            divergences[part] = divergence_of(logprobs, self._rows[part])
        readings.add(divergences, partial(self.found.__setitem__, path))
