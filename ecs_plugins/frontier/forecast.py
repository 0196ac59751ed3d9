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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

HORIZON = 1000
_PRIOR = (2.0, 2.0)
_PRIOR_SPREAD = 2.0
_NEAR_ONE = 1e-6


@dataclass(frozen=True, slots=True)
class ReuseModel:
    """The beta-geometric distribution of queries per context: Beta(a, b) to stop after each.

    Of the contexts it was fitted to, the share ``ended`` had ended; ``cautious`` is the fit where
    all count as ended; ``counts`` are their (queries, contexts) so far. ``runs`` is the model of
    the queries between two lapses of a prompt cache, where there is one.
    """

    a: float = _PRIOR[0]
    b: float = _PRIOR[1]
    contexts: int = 0
    ended: float = 1.0
    cautious: ReuseModel | None = None
    counts: tuple[tuple[int, int], ...] = field(default=(), compare=False, repr=False)
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
    """How many gaps between the queries of a context let a cache lapse, and how many did not."""

    lapses: int
    kept: int


def fit_reuse(ended: Mapping[int, int], alive: Mapping[int, int]) -> ReuseModel:
    """Fit the distribution by penalised maximum likelihood, close to a weak prior at first.

    Both map queries to how many contexts got that many: and no more, or so far.
    """
    contexts = sum(ended.values()) + sum(alive.values())

    def likelihood(a: float, b: float) -> float:
        total = -contexts * _log_beta(a, b)
        for queries, times in ended.items():
            kept = queries - 1
            total += times * _log_beta(a + 1, b + kept)
        for queries, times in alive.items():
            kept = queries - 1
            total += times * _log_beta(a, b + kept)
        return total

    a, b = _fitted(likelihood)
    return ReuseModel(a, b, contexts)


def fit_carefully(ended: Mapping[int, int], alive: Mapping[int, int]) -> ReuseModel:
    """`fit_reuse`, beside a fit where all contexts count as ended."""
    counts = Counter(ended) + Counter(alive)
    contexts = counts.total()
    share = sum(ended.values()) / max(1, contexts)
    model = fit_reuse(ended, alive)
    cautious = fit_reuse(counts, {})
    return replace(
        model,
        ended=share,
        cautious=cautious,
        counts=tuple(sorted(counts.items())),
    )


def fit_runs(contexts: Mapping[Gaps, int], runs: Mapping[int, int]) -> ReuseModel:
    """Fit the distribution of stops between the queries of a context; ``runs`` are its counts."""

    def likelihood(a: float, b: float) -> float:
        prior = _log_beta(a, b)
        total = 0.0
        for gaps, times in contexts.items():
            seen = _log_beta(a + gaps.lapses, b + gaps.kept)
            total += times * (seen - prior)
        return total

    a, b = _fitted(likelihood)
    counts = tuple(sorted(runs.items()))
    return ReuseModel(a, b, sum(runs.values()), counts=counts)


def _fitted(likelihood: Callable[[float, float], float]) -> tuple[float, float]:
    """(a, b) of the highest likelihood, penalised for their distance to the prior."""
    # Only here: who decides without a forecast loads no SciPy.
    from scipy.optimize import minimize

    start = [math.log(value) for value in _PRIOR]
    variance = _PRIOR_SPREAD**2

    def loss(at: Sequence[float]) -> float:
        away = 0.0
        for here, prior in zip(at, start, strict=True):
            away += (here - prior) ** 2
        a, b = map(math.exp, at)
        penalty = away / (2 * variance)
        return penalty - likelihood(a, b)

    a, b = minimize(loss, start, method="Nelder-Mead").x
    return math.exp(a), math.exp(b)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def fitted_model(
    rows: Iterable[tuple[Any, ...]], runs: Iterable[tuple[Any, ...]], *, with_runs: bool
) -> ReuseModel:
    """The model of a tally: queries, lapses and run of contexts, and whether they have ended."""
    ended: Counter[int] = Counter()
    alive: Counter[int] = Counter()
    gaps: Counter[Gaps] = Counter()
    lengths: Counter[int] = Counter()
    for queries, lapses, run, is_idle, has_lapsed, contexts in rows:
        if is_idle:
            ended[queries] += contexts
        else:
            alive[queries] += contexts
        lengths[run] += contexts
        kept = queries - 1 - lapses
        if has_lapsed:
            lapses += 1
        gaps[Gaps(lapses, kept)] += contexts
    model = fit_carefully(ended, alive)
    if not with_runs:
        return model
    for queries, times in runs:
        lengths[queries] += int(times)
    return replace(model, runs=fit_runs(gaps, lengths))
