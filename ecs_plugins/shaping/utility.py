"""The definitions of Entropic Context Shaping, as pure functions of log-probabilities.

Natural logarithm everywhere; utilities are in nats. Definition 3.1 of the paper, as its worked
example (section 3.6) fixes it:

    U(u; C, a) = ln P(a | C, u, q) - ln P(a | C, q) - beta * |u|

with |u| in tokens. Algorithm 1 accepts u where U >= delta.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

from ecs_plugins.errors import InvalidInputError

PAPER_THRESHOLD = 0.05
"""delta of Table 2, in nats."""
PAPER_LENGTH_PENALTY = 0.002
"""beta of Table 2, in nats per token."""
PAPER_REDUNDANCY_SIMILARITY = 0.85
"""Similarity of Table 2 above which a passage repeats another one."""


class Verdict(StrEnum):
    """What is said of a passage."""

    HELPS = "helps"
    """Its utility reaches the threshold."""
    SELECTED = "selected"
    """Kept by its rank, because there is no threshold: among the best, whatever its sign."""
    NEUTRAL = "neutral"
    """Its utility lies between minus the threshold and the threshold, or its rank is too low."""
    HURTS = "hurts"
    """Its utility is below minus the threshold: it makes the answer less likely."""
    REDUNDANT = "redundant"
    """It repeats a passage that is kept, or adds nothing once that one is known."""
    UNSCORED = "unscored"
    """The model did not score it; the reason says why."""


def pragmatic_utility(
    with_passage: float, without: float, *, tokens: int = 0, length_penalty: float = 0.0
) -> float:
    """Definition 3.1: the shift of the answer's log-probability, less the price of length.

    Args:
        with_passage: ``ln P(a | C, u, q)``.
        without: ``ln P(a | C, q)``.
        tokens: ``|u|``.
        length_penalty: ``beta``, in nats per token.

    Returns:
        Nats; negative where the passage makes the answer less likely. Two impossible answers
        (both minus infinity) differ by nothing: 0 less the penalty.
    """
    shift = 0.0 if with_passage == without else with_passage - without
    return shift - length_penalty * tokens


def marginal_logprob(
    logprobs: Sequence[float], log_weights: Sequence[float] | None = None
) -> float:
    """``ln sum_i w_i P(a_i)``: the log-probability of any of several answers.

    Args:
        logprobs: ``ln P(a_i)``, at least one.
        log_weights: ``ln w_i``; all 0 by default, so that the answers are alternatives.

    Raises:
        InvalidInputError: No log-probability, or as many weights as there are not answers.
    """
    if not logprobs:
        raise InvalidInputError("marginal_logprob needs at least one log-probability")
    if log_weights is not None and len(log_weights) != len(logprobs):
        raise InvalidInputError(
            f"{len(log_weights)} weights for {len(logprobs)} log-probabilities: give one for each"
        )
    terms = [lp + (log_weights[i] if log_weights else 0.0) for i, lp in enumerate(logprobs)]
    if any(math.isnan(term) for term in terms):
        return math.nan
    highest = max(terms)
    if math.isinf(highest):
        return highest
    return highest + math.log(math.fsum(math.exp(term - highest) for term in terms))


def verdict_of(utility: float, threshold: float) -> Verdict:
    """`Verdict.HELPS` at or above the threshold, `Verdict.HURTS` below minus the threshold.

    A utility that is not a number is `Verdict.UNSCORED`.
    """
    if math.isnan(utility):
        return Verdict.UNSCORED
    if utility >= threshold:
        return Verdict.HELPS
    return Verdict.HURTS if utility < -threshold else Verdict.NEUTRAL
