"""Whether a forecast has earned its trust: what it would have saved over rent or buy so far.

Both are played on the contexts that the forecast was fitted to, each as far as it has come; what
has not been asked yet is no gain. They are played on all contexts, and on the half that has ended
last, and the lesser gain counts: a change of traffic shows in those first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from ecs_plugins.frontier.cost import StrategyPoint
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.forecast import HORIZON, Histories, History, ReuseModel
from ecs_plugins.frontier.lapsing import CostLine, lapsing_game
from ecs_plugins.frontier.rental import Slope, plan_forecast, plan_rental

_PLAYED = 24  # histories at most, where every query is played


class Gain(NamedTuple):
    """What a forecast had saved over rent or buy, and the dearest stage 1 that either buys."""

    saved: float
    price: float


def trusted_gain(
    frontier: EfficiencyFrontier, able: Sequence[StrategyPoint], model: ReuseModel
) -> Gain:
    """The gain in the game of these points, on all contexts or on recent ones: the lesser."""
    lines = []
    for point in able:
        written = frontier.lapsing.get(point.key, 0.0)
        prepare = max(0.0, point.stage1 - written)
        lines.append(CostLine(prepare, written, point.stage2))
    return gain_of(tuple(lines), model)


@lru_cache(maxsize=256)
def gain_of(lines: tuple[CostLine, ...], model: ReuseModel) -> Gain:
    """`trusted_gain` of what strategies cost."""
    gain = _gain_in(lines, model)
    whole = gain(model.histories)
    recent = gain(model.recent)
    price = max(whole.price, recent.price)
    return Gain(min(whole.saved, recent.saved), price)


def _gain_in(lines: tuple[CostLine, ...], model: ReuseModel) -> Callable[[Histories], Gain]:
    """The gain on some histories, in the game of the lines."""
    if model.runs is None or not any(line.write for line in lines):
        slopes = tuple((line.prepare + line.write, line.rate) for line in lines)
        return lambda histories: _planned(slopes, model, _queries(histories))
    if not any(line.prepare for line in lines):
        runs = model.runs
        slopes = tuple((line.write, line.rate) for line in lines)
        return lambda histories: _planned(slopes, runs, _runs(histories))
    replay = _Replay(lines, model)
    return replay.gain


def _queries(histories: Histories) -> Iterator[tuple[int, float]]:
    """How many contexts were asked how often."""
    for history, contexts in histories:
        yield history.queries, contexts


def _runs(histories: Histories) -> Iterator[tuple[int, float]]:
    """How many runs were how long."""
    for history, contexts in histories:
        for length in history.runs():
            yield length, contexts


def _planned(
    slopes: tuple[Slope, ...], model: ReuseModel, asked: Iterable[tuple[int, float]]
) -> Gain:
    """The gain where the plans are known beforehand; counts beyond the horizon are cut to it."""
    counts: dict[int, float] = {}
    for queries, contexts in asked:
        queries = min(queries, HORIZON)
        counts[queries] = counts.get(queries, 0.0) + contexts
    longest = max(counts, default=0)
    expected = [model.expected(seen) for seen in range(1, longest + 1)]
    careful = plan_rental(slopes)
    bold = plan_forecast(slopes, expected)
    saved = 0.0
    for queries, contexts in counts.items():
        carefully_paid = careful.cost(slopes, queries)
        boldly_paid = bold.cost(slopes, queries)
        saved += contexts * (carefully_paid - boldly_paid)
    bought = {*careful.choices, *bold.choices}
    price = max(slopes[choice][0] for choice in bought)
    return Gain(saved, price)


class Moment(NamedTuple):
    """A query of a history.

    Attributes:
        seen: Its number.
        run: The same since the cache lapsed.
        lapses: How often it has.
        finished: How often a run of so many queries has ended before.
    """

    seen: int
    run: int
    lapses: int
    finished: Mapping[int, int]


Choose = Callable[[Moment, Sequence[CostLine]], int]
"""The place of a line, given what of each is due."""


@dataclass(frozen=True)
class _Replay:
    """Both players where every query has to be played, as what is bought lapses in part.

    Attributes:
        lines: What strategies cost.
        model: What one of the players goes by.
        gains: What was played already.
    """

    lines: tuple[CostLine, ...]
    model: ReuseModel
    gains: dict[History, Gain] = field(default_factory=dict)

    def gain(self, histories: Histories) -> Gain:
        """The gain on some histories."""
        saved = 0.0
        price = 0.0
        for history, contexts in _sampled(histories):
            if history not in self.gains:
                self.gains[history] = self._gain_of(history)
            gain = self.gains[history]
            saved += contexts * gain.saved
            price = max(price, gain.price)
        # Where neither has bought anything, nothing says what a mistake costs.
        return Gain(saved, price or math.inf)

    def _gain_of(self, history: History) -> Gain:
        carefully_paid, careful_price = self.play(history, self.carefully)
        boldly_paid, bold_price = self.play(history, self.boldly)
        return Gain(carefully_paid - boldly_paid, max(careful_price, bold_price))

    def carefully(self, at: Moment, due: Sequence[CostLine]) -> int:
        """By rent or buy, or with what is there already and costs no more."""
        planned = lapsing_game(self.lines).choose(at.run, at.finished)
        ready = [place for place, line in enumerate(due) if not line.prepare + line.write]
        best = min(ready, key=lambda place: due[place].rate, default=planned)
        return best if due[best].rate <= due[planned].rate else planned

    def boldly(self, at: Moment, due: Sequence[CostLine]) -> int:
        """By the forecast."""
        more = self.model.expected(at.seen)
        until_lapse = min(more, self.model.expected_run(at.seen, at.lapses))
        costs = []
        for line in due:
            cost = line.rate + line.prepare / (1 + more) + line.write / (1 + until_lapse)
            costs.append(cost)
        return costs.index(min(costs))

    def play(self, history: History, choose: Choose) -> tuple[float, float]:
        """What a context costs, and the most that was paid before one of its queries."""
        lowest = min(line.rate for line in self.lines)
        prepared: set[int] = set()
        finished: Counter[int] = Counter()
        seen = 0
        total = 0.0
        dearest = 0.0
        for lapses, length in enumerate(history.runs()):
            if seen >= HORIZON:
                break
            due = list(self.lines)
            for place in prepared:
                due[place] = due[place]._replace(prepare=0.0)
            for run in range(1, length + 1):
                moment = Moment(seen + run, run, lapses, finished)
                place = choose(moment, due)
                line = due[place]
                bought = line.prepare + line.write
                dearest = max(dearest, bought)
                total += bought + line.rate
                prepared.add(place)
                due[place] = CostLine(0.0, 0.0, line.rate)
                if line.rate == lowest:
                    # Nothing is better for the rest of the run.
                    total += (length - run) * lowest
                    break
            finished[length] += 1
            seen += length
        return total, dearest


def _sampled(histories: Histories) -> Histories:
    """Some of many histories, evenly, each for as many contexts."""
    if len(histories) <= _PLAYED:
        return histories
    step = sum(contexts for _, contexts in histories) / _PLAYED
    sampled: list[tuple[History, float]] = []
    passed = 0.0
    for history, contexts in histories:
        passed += contexts
        taken = math.floor(passed / step + 0.5) - len(sampled)
        sampled += [(history, step)] * taken
    return tuple(sampled)
