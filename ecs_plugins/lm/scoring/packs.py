"""Work in packs under a token budget that shrinks when memory runs out.

A pack that does not fit is halved as long as it is larger than any that has gone well. Then the
cache between calls gives its memory back. Only when nothing is left to give is a caller told to use
shorter passages. A budget that was halved is doubled again after some packs that have gone well.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch

from ecs_plugins.errors import ModelTimeoutError, ScoringError
from ecs_plugins.lm.scoring.runner import is_out_of_memory

DEFAULT_TOKEN_BUDGET = 2048
CARD_TOKEN_BUDGET = 24576
"""On a card a pack has to be large, because each of its kernels costs the same to start, but the
next one shall be planned while it is computed."""

_CALM = 8
"""Packs that go well before a halved budget is doubled."""


def token_budget_of(device: torch.device) -> int:
    """Return the default number of tokens that may pass through a model at once."""
    return CARD_TOKEN_BUDGET if device.type == "cuda" else DEFAULT_TOKEN_BUDGET


@dataclass(slots=True)
class Affordable:
    """Pack sizes that memory was found to suffice for; it outlives a call.

    Attributes:
        tokens: The largest pack to try.
        proven: The largest that has gone well.
        calm: Packs that have gone well since the last one that did not.
    """

    tokens: int = sys.maxsize
    proven: int = 0
    calm: int = 0


@dataclass(slots=True)
class TokenBudget:
    """Tokens that may pass through the model at once.

    Attributes:
        most: Tokens that the caller allows.
        stopped: Called between packs; True if no caller waits for the results.
        give_way: Called between packs; computes small requests of other callers.
        affordable: Tokens that memory allows.
        shrunk: Number of times that the budget was halved.
    """

    most: int = DEFAULT_TOKEN_BUDGET
    stopped: Callable[[], bool] | None = None
    give_way: Callable[[], None] = lambda: None
    affordable: Affordable = field(default_factory=Affordable)
    shrunk: int = 0

    @property
    def tokens(self) -> int:
        """Return the budget now."""
        return min(self.most, self.affordable.tokens)

    def check(self) -> None:
        """Raise if no caller waits."""
        if self.stopped is not None and self.stopped():
            raise ModelTimeoutError("nobody waits for these scores any more")

    def is_daring(self, tokens: int) -> bool:
        """Return True if a pack is larger than any that has gone well, and can be smaller."""
        return tokens > max(self.affordable.proven, DEFAULT_TOKEN_BUDGET)

    def went_well(self, spent: int) -> None:
        """Record that a pack of ``spent`` tokens was computed; when calm, double the budget."""
        affordable = self.affordable
        affordable.proven = max(affordable.proven, spent)
        affordable.calm += 1
        if affordable.tokens < self.most and affordable.calm >= _CALM:
            affordable.tokens *= 2
            affordable.calm = 0

    def halve(self, spent: int) -> None:
        """Halve the budget to below a size that was too large."""
        affordable = self.affordable
        tried = min(self.tokens, spent)
        affordable.tokens = max(1, tried // 2)
        affordable.proven = min(affordable.proven, affordable.tokens)
        affordable.calm = 0
        self.shrunk += 1

    def begin_again(self) -> None:
        """Forget failed sizes, because there is memory again."""
        self.affordable.tokens = max(self.affordable.tokens, DEFAULT_TOKEN_BUDGET)
        self.affordable.calm = 0


Take = Callable[[Sequence[int], int], tuple[int, int]]
"""``(indices left, token budget) -> (how many of them make the next pack, its tokens)``."""


def run_in_packs(
    order: Iterable[int],
    take: Take,
    run: Callable[[Sequence[int]], None],
    budget: TokenBudget,
    model: str,
    release: Callable[[], bool] = lambda: False,
) -> None:
    """Run every index of ``order`` in packs that fit into memory.

    Args:
        order: What is to be run.
        take: Says what the next pack is.
        run: Runs it.
        budget: Tokens of a pack.
        model: The name of the model, for errors.
        release: Gives back memory that is not needed for the packs; says whether there was any.

    Raises:
        ScoringError: Memory does not suffice for one index alone.
        ModelTimeoutError: Nobody waits any more.
    """
    left = list(order)
    while left:
        budget.check()
        number, tokens = take(left, budget.tokens)
        failure = _failure_of(run, left[:number])
        if failure is None:
            budget.went_well(tokens)
            left = left[number:]
        elif number > 1 and budget.is_daring(tokens):
            budget.halve(tokens)
        elif release():
            budget.begin_again()
        elif number > 1:
            budget.halve(tokens)
        else:
            raise ScoringError(
                f"out of memory while {model} read {tokens} tokens alone; use shorter "
                "passages or prompts, a smaller model or a smaller dtype"
            ) from failure
        if failure is not None and torch.cuda.is_available():
            torch.cuda.empty_cache()


def _failure_of(
    run: Callable[[Sequence[int]], None],
    part: Sequence[int],
) -> Exception | None:
    """Run a part; the error if memory ran out, without the tensors that its traceback holds."""
    try:
        run(part)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return error.with_traceback(None)
    return None
