"""How far a candidate moves the next-token distribution, computed where the logits are.

Eq. 3 and Definition 3.3 of Entropic Context Shaping, in their direction from the base to the
candidate, at every scored token:

    D_KL(P_t(. | C, u, q) || P_t(. | C, q))

A vocabulary has up to a quarter of a million tokens. So the distributions of the base are the only
ones that are kept, and only at the scored tokens; a candidate's are reduced to one number each as
soon as they are there, a few rows at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ecs_plugins.errors import ScoringError
from ecs_plugins.lm.scoring.request import Ids, Logprobs
from ecs_plugins.lm.scoring.runner import on_device, rows_at_once


class Comparison:
    """What lies behind one continuation, compared with what lies behind the base.

    It travels with the paths through a continuation, and is told the logits of each. The base has
    to come first; the same path may come again.

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
        """Whether a path is that of the base."""
        return path == self._base

    def see(self, path: Ids, logits: Tensor, rows: Sequence[int]) -> None:
        """Take note of a path.

        Args:
            path: Its ids.
            logits: ``[n, vocabulary]``, in any dtype.
            rows: Which of them predict its scored tokens, in their order.

        Raises:
            ScoringError: The base did not come first.
        """
        where = on_device(rows, logits.device)
        if self.is_base(path):
            self._rows = torch.log_softmax(logits[where].float(), dim=-1)
            self.found[path] = np.zeros(len(rows), dtype=np.float32)
            return
        if self._rows is None:
            raise ScoringError(
                "a divergence needs the distribution behind the base, which was not computed: "
                "score the empty candidate with, or before, the others"
            )
        out = torch.empty(len(rows), dtype=torch.float32, device=logits.device)
        step = rows_at_once(logits)
        for at in range(0, len(rows), step):
            part = slice(at, at + step)
            logprobs = torch.log_softmax(logits[where[part]].float(), dim=-1)
            out[part] = divergence_of(logprobs, self._rows[part])
        self.found[path] = out.cpu().numpy()


def divergence_of(candidate: Tensor, base: Tensor) -> Tensor:
    """``D_KL(candidate || base)`` in nats, per row.

    Args:
        candidate: Log-probabilities, float32, ``[n, vocabulary]``.
        base: Like ``candidate``.

    Returns:
        float32, ``[n]``, never negative.
    """
    # Summed as p ln(p / q) - p + q, which is the same because both sum to one: no term of it is
    # negative, so what rounding leaves of two equal distributions cannot be less than zero.
    p, q = candidate.exp(), base.exp()
    terms = torch.where(p > 0, p * (candidate - base) - p, p) + q
    return terms.clamp_min(0.0).sum(dim=-1)
