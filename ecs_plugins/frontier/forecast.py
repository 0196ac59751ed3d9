"""How often will this context be asked again? Empirical Bayes over the contexts seen so far.

Each context stops after any query with a probability of its own, and these probabilities follow
a beta distribution: the beta-geometric model. Its two parameters are fitted to the counts of all
contexts by maximum likelihood; a context that was asked recently may go on, so its count is a
lower bound (right-censored) and enters as a survival probability. What is known of one context,
that it went on n - 1 times, then updates the beta to Beta(a, b + n - 1), so that a context asked
often is expected to be asked more, and a new one like the average.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ecs_plugins.errors import InvalidInputError

HORIZON = 1000
_PRIOR = (2.0, 2.0)
_PRIOR_SPREAD = 2.0
_ROUNDS = 7
_GRID = 7


@dataclass(frozen=True, slots=True)
class ReuseForecast:
    """What is expected of one context.

    Attributes:
        seen: Queries so far.
        remaining: Expected further queries, at most the horizon.
        probability_next: Probability of at least one more.
    """

    seen: int
    remaining: float
    probability_next: float

    @property
    def reuse(self) -> float:
        """N for a context that is to be prepared now: this query and all expected ones."""
        return 1.0 + self.remaining


@dataclass(frozen=True, slots=True)
class ReuseModel:
    """The beta-geometric distribution of queries per context.

    Attributes:
        a: First parameter of the beta distribution of the probability to stop.
        b: Second parameter.
        contexts: How many contexts it was fitted to.
    """

    a: float = _PRIOR[0]
    b: float = _PRIOR[1]
    contexts: int = 0

    def probability_next(self, seen: int) -> float:
        """Probability that a context asked ``seen`` times is asked again."""
        b = self.b + max(seen - 1, 0)
        return b / (self.a + b)

    def forecast(self, seen: int, horizon: int = HORIZON) -> ReuseForecast:
        """Expected further queries of a context that was asked ``seen`` >= 1 times.

        The expectation without a horizon, ``(b + seen - 1) / (a - 1)``, is infinite for a <= 1;
        with one it is ``sum over k <= horizon of P(at least k more)``, a telescoping sum.

        Raises:
            InvalidInputError: ``seen`` or ``horizon`` < 1.
        """
        if seen < 1 or horizon < 1:
            raise InvalidInputError("a forecast needs at least one query seen and a horizon >= 1")
        a, b = self.a, self.b + seen - 1
        if abs(a - 1) < 1e-6:
            a += 2e-6
        # P(at least k more) = B(a, b + k) / B(a, b); its sum over all k >= 0 from b on is
        # (a + b - 1) / (a - 1), and what lies beyond the horizon is the same sum from b + h + 1.
        beyond = math.exp(_log_beta(a, b + horizon + 1) - _log_beta(a, b))
        total = (a + b - 1) / (a - 1) - beyond * (a + b + horizon) / (a - 1) - 1.0
        remaining = min(float(horizon), max(0.0, total))
        return ReuseForecast(seen, remaining, self.probability_next(seen))


def fit_reuse(ended: Mapping[int, int], alive: Mapping[int, int]) -> ReuseModel:
    """Fit the distribution by penalised maximum likelihood.

    Args:
        ended: Queries -> how many contexts got exactly that many and no more.
        alive: Queries -> how many contexts have got that many so far.

    Returns:
        The model; with few contexts it stays close to a weak prior.
    """
    counts = sum(ended.values()) + sum(alive.values())
    log_a, log_b = (math.log(value) for value in _PRIOR)
    step = 2.0
    for _ in range(_ROUNDS):
        offsets = [step * (k / (_GRID // 2) - 1) for k in range(_GRID)]
        _, log_a, log_b = max(
            (_fit(ended, alive, log_a + u, log_b + v), log_a + u, log_b + v)
            for u in offsets
            for v in offsets
        )
        step /= 2.2
    return ReuseModel(math.exp(log_a), math.exp(log_b), counts)


def _fit(ended: Mapping[int, int], alive: Mapping[int, int], log_a: float, log_b: float) -> float:
    a, b = math.exp(log_a), math.exp(log_b)
    base = _log_beta(a, b)
    likelihood = sum(m * (_log_beta(a + 1, b + n - 1) - base) for n, m in ended.items())
    likelihood += sum(m * (_log_beta(a, b + n - 1) - base) for n, m in alive.items())
    away = (log_a - math.log(_PRIOR[0])) ** 2 + (log_b - math.log(_PRIOR[1])) ** 2
    return likelihood - away / (2 * _PRIOR_SPREAD**2)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
