"""How much of a request is computed in one turn, and how the parts become one result again.

A request is cut between candidates. Behind one prefix every candidate costs its own tokens and
those of the continuations; the prefix is paid for once, because the engine keeps its state. A
request for which that turns out not to hold (no room in the cache, a model without one) is cut
accordingly from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from ecs_plugins.lm.scoring.planner import EngineResult
from ecs_plugins.lm.scoring.request import TokenRequest, common_length

_NOTICEABLE_PREFIX = 64
"""Shorter ones may be computed again in every turn."""

_SLICES_PER_PREFIX = 4
"""A slice is this many times as long as a prefix that has to be computed again for it."""


class Part(NamedTuple):
    """Some candidates of a request as a request of their own, and what they should cost."""

    owner: SlicedRequest
    candidates: tuple[int, ...]
    request: TokenRequest
    tokens: int


class SlicedRequest:
    """One request on its way through several turns.

    Attributes:
        left: Tokens that are still to be computed, as far as can be told.
        result: What is known so far; complete once ``done``.
    """

    def __init__(self, request: TokenRequest) -> None:
        self.request = request
        self.result = EngineResult({}, {}, 0)
        self._behind = _tokens_of(request)
        self._with_prefix = False
        self._at_least = 0
        self._order: list[int] | None = None
        self._at = 0
        self._returned = 0
        self.left = len(request.prefix) + sum(map(self._cost, range(len(request.candidates))))

    @property
    def taken(self) -> bool:
        """Whether every candidate is on its way."""
        return self._at == len(self.request.candidates)

    @property
    def done(self) -> bool:
        """Whether every candidate came back."""
        return self._returned == len(self.request.candidates)

    @property
    def least(self) -> int:
        """Tokens of the smallest part that is worth a turn."""
        first = 0 if self._at else len(self.request.prefix)
        return max(first + self._cost(self._candidate(self._at)), min(self._at_least, self.left))

    def take(self, tokens: int) -> Part:
        """The next candidates, at least one of them, for about ``tokens`` tokens."""
        start = self._at
        if not start and tokens >= self.left:
            self._at = len(self.request.candidates)
            everything = tuple(range(self._at))
            return self._sent(Part(self, everything, self.request, self.left))
        if self._order is None:
            # Neighbours share what they begin with, as they would in one piece.
            candidates = self.request.candidates
            self._order = sorted(range(len(candidates)), key=candidates.__getitem__)
        spent = 0 if start else len(self.request.prefix)
        while not self.taken:
            cost = self._cost(self._candidate(self._at))
            if self._at > start and spent + cost > tokens:
                break
            spent, self._at = spent + cost, self._at + 1
        chosen = tuple(self._order[start : self._at])
        some = tuple(self.request.candidates[k] for k in chosen)
        return self._sent(Part(self, chosen, replace(self.request, candidates=some), spent))

    def put(self, part: Part, result: EngineResult) -> None:
        """Add the result of a part."""
        first = not self._returned
        self._returned += len(part.candidates)
        if first and self.done:
            self.result = result
            return
        for (k, m), logprobs in result.scores.items():
            self.result.scores[part.candidates[k], m] = logprobs
        for k, reason in result.unscored.items():
            self.result.unscored[part.candidates[k]] = reason
        self.result.computed_tokens += result.computed_tokens
        self._learn(part, result.computed_tokens)

    def _learn(self, part: Part, computed: int) -> None:
        prefix, unexpected = len(self.request.prefix), computed - part.tokens
        if prefix < _NOTICEABLE_PREFIX or self._with_prefix or unexpected < prefix // 2:
            return
        if unexpected >= 1.5 * prefix:
            self._with_prefix = True
            self.left += prefix * (len(self.request.candidates) - self._at)
        else:
            self._at_least = _SLICES_PER_PREFIX * prefix

    def _sent(self, part: Part) -> Part:
        self.left -= part.tokens
        return part

    def _candidate(self, at: int) -> int:
        return at if self._order is None else self._order[at]

    def _cost(self, candidate: int) -> int:
        prefix = len(self.request.prefix) if self._with_prefix else 0
        return len(self.request.candidates[candidate]) + self._behind + prefix


def _tokens_of(request: TokenRequest) -> int:
    """Tokens behind one candidate; a head that the continuations share counts once."""
    ids: Sequence[tuple[int, ...]] = sorted(c.ids for c in request.continuations)
    shared = [common_length(a, b) for a, b in pairwise(ids)]
    return sum(map(len, ids)) - sum(shared)
