"""Screen in 16 bits, decide in 32: the same best candidates for less.

A fast and an exact model score the same request, usually one model loaded twice
(``exactness="screen"``), which takes half as much memory again as its float32 weights. The fast one
scores every candidate, the exact one those that can still be among the best:

    fast_k + m >= t

where t is the least value among the best so far. The margin m is `DEVIATIONS` times the root mean
square of exact minus fast on what both have scored, at least `SCORED_TWICE` candidates. It is taken
about zero and not about the mean, because those with the best fast values were partly chosen
for their rounding: their differences vary less than those of the others, and on average point down.
A candidate is lost only if it differs by more than the margin, which the result states.

`screen` does that for one request and a value of its candidates; shaping does it for whole
selections (`ecs_plugins.shaping.screening`).
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ecs_plugins.errors import InvalidInputError

if TYPE_CHECKING:
    import numpy.typing as npt

    from ecs_plugins.lm.base import LanguageModel, ScoreRequest, ScoreResult, SegmentScore

Row = tuple[tuple["SegmentScore", ...], ...]
"""The scores of one candidate: continuations by scored segments."""
Value = Callable[[Row], float]

SCORED_TWICE = 8
"""Candidates that both models score at least, so that their differences say something."""
DEVIATIONS = 4.0


def screen_of(model: LanguageModel) -> LanguageModel | None:
    """The fast model that a model brings along to be screened with, if it does."""
    found: LanguageModel | None = getattr(model, "screen", None)
    return found


def total(row: Row) -> float:
    """The log-probability of all scored segments, in nats."""
    return sum(segment.sum for continuation in row for segment in continuation)


def margin_of(differences: Collection[float]) -> float:
    """What a fast value may be off by, from some differences; infinite without any."""
    if not differences:
        return math.inf
    return DEVIATIONS * math.sqrt(statistics.fmean(d * d for d in differences))


def rescored(
    model: LanguageModel, request: ScoreRequest, result: ScoreResult, wanted: Collection[int]
) -> ScoreResult:
    """A result in which some candidates have the scores that another model gives them.

    Args:
        model: The other model.
        request: What was asked.
        result: What was answered.
        wanted: Candidates; the empty ones, which others are compared with, always join them.
    """
    numbers = [k for k, candidate in enumerate(request.candidates) if k in wanted or not candidate]
    part = replace(request, candidates=tuple(request.candidates[k] for k in numbers))
    (found,) = model.score([part])
    rows = dict(enumerate(result.scores)) | dict(zip(numbers, found.scores, strict=True))
    unscored = {k: why for k, why in result.unscored.items() if k not in numbers}
    return replace(
        result,
        scores=tuple(rows[k] for k in range(len(rows))),
        computed_tokens=result.computed_tokens + found.computed_tokens,
        unscored=unscored | {numbers[n]: why for n, why in found.unscored.items()},
    )


def shaken(
    fast: ScoreResult, result: ScoreResult, exact: Collection[int], draw: random.Random
) -> ScoreResult:
    """A result whose fast rows are off by as much as others were found to be.

    Args:
        fast: What the fast model answered.
        result: The same with exact rows for some candidates.
        exact: Those candidates.
        draw: For every fast row, one difference per scored segment, normally distributed with the
            mean and deviation of those that were found.
    """
    found: dict[tuple[int, int, str], list[float]] = {}
    for k in exact:
        for m, s, name, values in _arrays(result.scores[k]):
            before = getattr(fast.scores[k][m][s], name)
            difference = float((values - before).sum(dtype=np.float64))
            found.setdefault((m, s, name), []).append(difference)
    off = {at: (statistics.fmean(d), statistics.pstdev(d)) for at, d in found.items()}
    rows = list(result.scores)
    for k, row in enumerate(rows):
        if k not in exact:
            moved = {
                (m, s, name): values + np.float32(draw.gauss(*off[m, s, name]) / len(values))
                for m, s, name, values in _arrays(row)
            }
            rows[k] = tuple(
                tuple(
                    replace(
                        score,
                        logprobs=moved[m, s, "logprobs"],
                        divergence=moved.get((m, s, "divergence")),
                    )
                    for s, score in enumerate(segments)
                )
                for m, segments in enumerate(row)
            )
    return replace(result, scores=tuple(rows))


def _arrays(row: Row) -> Iterator[tuple[int, int, str, npt.NDArray[np.float32]]]:
    for m, segments in enumerate(row):
        for s, score in enumerate(segments):
            yield m, s, "logprobs", score.logprobs
            if score.divergence is not None:
                yield m, s, "divergence", score.divergence


@dataclass(frozen=True, slots=True, eq=False)
class Screened:
    """A screened request.

    Attributes:
        result: Exact scores of the candidates in ``exact``, fast ones of the others.
        exact: Candidates that the exact model scored, ascending.
        margin: On the difference of a candidate's two values, in nats. The best are those of
            the exact model as long as no candidate that was left out exceeds it.
    """

    result: ScoreResult
    exact: tuple[int, ...]
    margin: float


def screen(
    fast: LanguageModel,
    exact: LanguageModel,
    request: ScoreRequest,
    *,
    keep: int,
    value: Value = total,
) -> Screened:
    """Score a request so that its ``keep`` best candidates are those of the exact model.

    Args:
        fast: Scores every candidate.
        exact: Scores those that can still win, and the empty candidates.
        request: What to score.
        keep: How many best candidates are wanted.
        value: What a candidate is judged by; larger is better.

    Raises:
        InvalidInputError: ``keep`` is out of range.
        ScoringError: A model's numbers cannot be trusted.
    """
    if keep < 1:
        raise InvalidInputError(f"keep must be at least 1, got {keep}")
    (result,) = fast.score([request])
    usable = [k for k in range(len(request.candidates)) if k not in result.unscored]
    values = {k: value(result.scores[k]) for k in usable}
    ranked = sorted(usable, key=lambda k: -values[k])
    done = {k for k in usable if not request.candidates[k]}
    margin = math.inf
    wanted: Sequence[int] = ranked[: max(keep, SCORED_TWICE)]
    while wanted:
        result = rescored(exact, request, result, wanted)
        done.update(wanted)
        found = {k: value(result.scores[k]) for k in done}
        margin = margin_of([found[k] - values[k] for k in done])
        bar = sorted(found.values(), reverse=True)[min(keep, len(found)) - 1]
        wanted = [k for k in ranked if k not in done and values[k] + margin >= bar]
    return Screened(result, tuple(sorted(done)), margin)
