"""What a passage does to the log-probabilities of a statement: Definition 3.1, token by token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ecs_plugins.lm.base import SegmentScore

Logprobs: TypeAlias = npt.NDArray[np.float32]

HIGHEST = 4.0
"""Nats that one token counts at most: an astonishing one says no more than that."""


@dataclass(frozen=True, slots=True, eq=False)
class Shift:
    """What a passage does to one statement and to the question.

    Attributes:
        without: float32 ``[tokens]``, log-probabilities of the statement without it, in nats.
        behind: The same behind it.
        question: Nats per token by which it raises the question's.
    """

    without: Logprobs
    behind: Logprobs
    question: float

    @property
    def statement(self) -> float:
        """Nats by which it raises the log-probability of the whole statement."""
        gains = self.behind - self.without
        return float(gains.sum(dtype=np.float64))

    @property
    def per_token(self) -> float:
        """The same per token, of each token at most `HIGHEST`."""
        return mean_gain(self.behind, self.without)


def shift_of(
    behind: tuple[SegmentScore, SegmentScore], base: tuple[SegmentScore, SegmentScore]
) -> Shift:
    """The shift by a passage, of scores of question and statement behind it and without it."""
    question, statement = behind
    base_question, base_statement = base
    return Shift(
        without=base_statement.logprobs,
        behind=statement.logprobs,
        question=mean_gain(question.logprobs, base_question.logprobs),
    )


def mean_gain(behind: Logprobs, without: Logprobs) -> float:
    """Nats per token, of each token at most `HIGHEST`."""
    gains = np.clip(behind - without, -HIGHEST, HIGHEST)
    return float(gains.mean(dtype=np.float64))
