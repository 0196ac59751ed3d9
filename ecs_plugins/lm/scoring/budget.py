"""Work in packs under a token budget; running out of memory halves it and goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch

from ecs_plugins.errors import ScoringError
from ecs_plugins.lm.scoring.runner import is_out_of_memory

DEFAULT_TOKEN_BUDGET = 2048


@dataclass
class TokenBudget:
    """Tokens that may pass through the model at once; shrinks for good when memory runs out.

    Attributes:
        tokens: The present budget.
        shrunk: How often it was halved.
    """

    tokens: int = DEFAULT_TOKEN_BUDGET
    shrunk: int = field(default=0, init=False)

    def halve(self, spent: int) -> None:
        """Halve to below what was just too much."""
        self.tokens = max(1, min(self.tokens, spent) // 2)
        self.shrunk += 1
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


Take = Callable[[Sequence[int], int], tuple[int, int]]
"""``(indices left, token budget) -> (how many of them make the next pack, its tokens)``."""


def run_in_packs(
    order: Iterable[int],
    take: Take,
    run: Callable[[Sequence[int]], None],
    budget: TokenBudget,
    model: str,
) -> None:
    """Run every index of ``order`` in packs.

    Raises:
        ScoringError: Not even a single path fits into memory.
    """
    left = list(order)
    while left:
        number, tokens = take(left, budget.tokens)
        try:
            run(left[:number])
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            failed = error
        else:
            left = left[number:]
            continue
        # Outside the handler, so that the failed call's tensors are freed before the retry.
        if number == 1:
            raise ScoringError(
                f"out of memory while {model} scored {tokens} tokens alone; use shorter "
                "passages, a smaller model or a smaller dtype"
            ) from failed
        failed.__traceback__ = None
        budget.halve(tokens)
