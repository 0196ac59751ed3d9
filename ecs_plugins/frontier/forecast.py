"""How often a context will still be asked, from how often contexts were asked so far.

The forecast is empirical Bayes. Each context stops after any query with a probability of its
own, and these probabilities follow a beta distribution: the beta-geometric model, fitted by
maximum likelihood. A context that was asked recently may go on, so its count is right-censored;
but as long as few have ended, the forecast counts all as ended. A context that went on n - 1
times updates the beta to Beta(a, b + n - 1): one asked often is expected to be asked more.

The same model says how many queries follow each other before an entry of a prompt cache lapses:
a gap that lets it lapse is a stop, and a context has as many of them as its runs have ended.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

HORIZON = 1000
_PRIOR = (2.0, 2.0)
_PRIOR_SPREAD = 2.0
_NEAR_ONE = 1e-6


class History(NamedTuple):
    """How far contexts have come alike: their queries, lapses of a cache, and current run."""

    queries: int
    lapses: int
    run: int

    def runs(self) -> list[int]:
        """The lengths of their runs, within the horizon: the current one last, others alike."""
        last = min(self.run, HORIZON)
        if not self.lapses:
            return [last]
        before = self.queries - self.run
        each, longer = divmod(before, self.lapses)
        usual = self.lapses - longer
        return [each + 1] * longer + [each] * usual + [last]


Histories = tuple[tuple[History, float], ...]
"""How many contexts have each history."""


@dataclass(frozen=True, slots=True)
class ReuseModel:
    """The beta-geometric distribution of queries per context: Beta(a, b) to stop after each.

    Of the contexts it was fitted to, the share ``ended`` had ended; ``cautious`` is the fit where
    all count as ended; ``histories`` are how far they have come, and ``recent`` those of the half
    that has ended last. ``runs`` is the model of the queries between two lapses of a prompt
    cache, where there is one.
    """

    a: float = _PRIOR[0]
    b: float = _PRIOR[1]
    contexts: int = 0
    ended: float = 1.0
    cautious: ReuseModel | None = None
    histories: Histories = field(default=(), compare=False, repr=False)
    recent: Histories = field(default=(), compare=False, repr=False)
    runs: ReuseModel | None = None

    def expected(self, seen: int) -> float:
        """Expected further queries, carefully: `remaining` only as far as contexts have ended.

        That a context may go on is no evidence that it does. Where none has ended yet, all count
        as ended.
        """
        if self.cautious is None:
            return self.remaining(seen)
        low = self.cautious.remaining(seen)
        high = self.remaining(seen)
        return low + self.ended * (high - low)

    def expected_run(self, seen: int, lapses: int) -> float:
        """Expected further queries before the cache of a context lapses."""
        if self.runs is None:
            return self.expected(seen)
        return self.runs.remaining(seen, stops=lapses)

    def remaining(self, seen: int, horizon: int = HORIZON, stops: int = 0) -> float:
        """Expected further queries of a context that was asked ``seen`` >= 1 times.

        It has stopped ``stops`` times before. The expectation without a horizon,
        ``(b + seen - 1) / (a - 1)``, is infinite for a <= 1; with one it is
        ``sum over k <= horizon of P(at least k more)``, a telescoping sum.
        """
        a = self.a + stops
        b = self.b + seen - 1 - stops
        if abs(a - 1) < _NEAR_ONE:
            a += 2 * _NEAR_ONE
        # P(at least k more) = B(a, b + k) / B(a, b); its sum over all k >= 0 from b on is
        # (a + b - 1) / (a - 1), and what lies beyond the horizon is the same sum from b + h + 1.
        end = b + horizon + 1
        beyond = math.exp(_log_beta(a, end) - _log_beta(a, b))
        whole = (a + b - 1) / (a - 1)
        tail = beyond * (a + end - 1) / (a - 1)
        more = whole - tail - 1.0
        return min(float(horizon), max(0.0, more))


class Gaps(NamedTuple):
    """How many gaps between the queries of a context were stops, and how many were not."""

    stops: int
    kept: int


def fit_reuse(ended: Mapping[int, int], alive: Mapping[int, int]) -> ReuseModel:
    """Fit the distribution by penalised maximum likelihood, close to a weak prior at first.

    Both map queries to how many contexts got that many: and no more, or so far.
    """
    gaps: Counter[Gaps] = Counter()
    for queries, times in ended.items():
        gaps[Gaps(1, queries - 1)] += times
    for queries, times in alive.items():
        gaps[Gaps(0, queries - 1)] += times
    a, b = fit_gaps(gaps)
    return ReuseModel(a, b, gaps.total())


def fit_carefully(ended: Mapping[int, int], alive: Mapping[int, int]) -> ReuseModel:
    """`fit_reuse`, beside a fit where all contexts count as ended."""
    counts = Counter(ended) + Counter(alive)
    share = sum(ended.values()) / max(1, counts.total())
    model = fit_reuse(ended, alive)
    cautious = fit_reuse(counts, {})
    return replace(model, ended=share, cautious=cautious)


def fit_gaps(contexts: Mapping[Gaps, int]) -> tuple[float, float]:
    """(a, b) of the highest likelihood of the stops of some contexts, near to a weak prior.

    The logarithms of both are penalised for their distance to those of the prior.
    """
    # Only here: who decides without a forecast loads no SciPy.
    from scipy.optimize import minimize
    from scipy.special import betaln, digamma

    start = np.log(_PRIOR)
    variance = _PRIOR_SPREAD**2
    stops = np.array([gaps.stops for gaps in contexts], float)
    kept = np.array([gaps.kept for gaps in contexts], float)
    times = np.array(list(contexts.values()), float)
    total = times.sum()

    def loss(at: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        """Penalty less log-likelihood and its slope, per context, by the logarithms of a and b."""
        a, b = np.exp(at)
        away = at - start
        likelihood = times @ betaln(a + stops, b + kept) - total * betaln(a, b)
        both = times @ digamma(a + b + stops + kept) - total * digamma(a + b)
        slope_a = times @ digamma(a + stops) - total * digamma(a) - both
        slope_b = times @ digamma(b + kept) - total * digamma(b) - both
        value = away @ away / (2 * variance) - likelihood
        slope = away / variance - np.array([a * slope_a, b * slope_b])
        return float(value) / (1 + total), slope / (1 + total)

    # BFGS: L-BFGS-B wakes all threads of the linear algebra, for two numbers.
    settings = {"gtol": 1e-7}
    a, b = np.exp(minimize(loss, start, jac=True, method="BFGS", options=settings).x)
    return float(a), float(b)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
