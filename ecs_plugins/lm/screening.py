"""Screen in 16 bits, decide in 32: the same best candidates for less.

A fast and an exact model score the same request. Every candidate is scored by the fast one;
the exact one scores those that can still be among the best:

    fast_k >= t - 2 m,    t the keep-th largest fast value, m a bound on |fast - exact|

for then a candidate that is left out is worth less than t - m, which each of the first ``keep``
exceeds. The bound is not guessed: it is a multiple of the largest difference seen on whatever
was scored by both, and widens until nothing new comes in. Usually the two are one model loaded
twice (``exactness="bf16"`` and ``"fp32"``), which takes half as much memory again as the
float32 weights alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ecs_plugins.errors import InvalidInputError

if TYPE_CHECKING:
    from ecs_plugins.lm.base import LanguageModel, ScoreRequest, ScoreResult, SegmentScore

Row = tuple[tuple["SegmentScore", ...], ...]
"""The scores of one candidate: continuations by scored segments."""
Value = Callable[[Row], float]

DEFAULT_FACTOR = 2.0


def total(row: Row) -> float:
    """The log-probability of all scored segments, in nats."""
    return sum(segment.sum for continuation in row for segment in continuation)


@dataclass(frozen=True, slots=True, eq=False)
class Screened:
    """A screened request.

    Attributes:
        result: Exact scores of the candidates in ``exact``, fast ones of the others.
        exact: Candidates that the exact model scored, ascending.
        margin: The bound m on the difference of a candidate's two values, in nats: the best
            ``keep`` are those of the exact model as long as no candidate that was left out
            differs by more.
        largest_difference: The largest difference seen.
    """

    result: ScoreResult
    exact: tuple[int, ...]
    margin: float
    largest_difference: float


def screen(
    fast: LanguageModel,
    exact: LanguageModel,
    request: ScoreRequest,
    *,
    keep: int,
    value: Value = total,
    factor: float = DEFAULT_FACTOR,
) -> Screened:
    """Score a request so that its ``keep`` best candidates are those of the exact model.

    Args:
        fast: Scores every candidate.
        exact: Scores those that can still win, and the empty candidates, which values are
            usually compared with.
        request: What to score.
        keep: How many best candidates are wanted.
        value: What a candidate is judged by; larger is better.
        factor: Margin over the largest difference seen; at least 1.

    Raises:
        InvalidInputError: ``keep`` or ``factor`` is out of range.
        ScoringError: A model's numbers cannot be trusted.
    """
    if keep < 1:
        raise InvalidInputError(f"keep must be at least 1, got {keep}")
    if factor < 1:
        raise InvalidInputError(f"factor must be at least 1, got {factor}")
    (rough,) = fast.score([request])
    usable = [k for k in range(len(request.candidates)) if k not in rough.unscored]
    values = {k: value(rough.scores[k]) for k in usable}
    rows = dict(enumerate(rough.scores))
    ranked = sorted(usable, key=lambda k: -values[k])
    bases = [k for k in usable if not request.candidates[k]]
    wanted = sorted({*ranked[:keep], *bases})
    done: set[int] = set()
    margin, seen, computed = 0.0, 0.0, rough.computed_tokens
    threshold = values[ranked[min(keep, len(ranked)) - 1]] if ranked else 0.0
    while wanted:
        part = replace(request, candidates=tuple(request.candidates[k] for k in wanted))
        (found,) = exact.score([part])
        computed += found.computed_tokens
        for n, k in enumerate(wanted):
            rows[k] = found.scores[n]
            seen = max(seen, abs(value(found.scores[n]) - values[k]))
        done.update(wanted)
        margin = factor * seen
        wanted = [k for k in ranked if k not in done and values[k] >= threshold - 2 * margin]
    scores = tuple(rows[k] for k in range(len(request.candidates)))
    result = replace(rough, scores=scores, computed_tokens=computed)
    return Screened(result, tuple(sorted(done)), margin, seen)
