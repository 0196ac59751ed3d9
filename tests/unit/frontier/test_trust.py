import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import betaln

from ecs_plugins.frontier.cost import StrategyPoint, Usage
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.forecast import Gaps, History, fit_gaps
from ecs_plugins.frontier.lapsing import CostLine
from ecs_plugins.frontier.prices import ModelPrice, PriceVector
from ecs_plugins.frontier.reuse import ReuseLedger
from ecs_plugins.frontier.router_config import RouterConfig
from ecs_plugins.frontier.routing import Router
from ecs_plugins.frontier.tally import Tallied, model_of
from ecs_plugins.frontier.trust import _Replay, gain_of
from ecs_plugins.tokens import Role, Stage

LIFE = 300.0
# A cached full context, a retrieval, and notes that stay.
CACHED = CostLine(0.0, 1429.0, 190.0)
RETRIEVED = CostLine(0.0, 0.0, 566.0)
NOTES = CostLine(1500.0, 0.0, 409.0)
LINES = (CACHED, RETRIEVED, NOTES)


def tallied(queries, contexts, *, lapses=0, age=2):
    """Contexts that have ended, their last run as long as the others."""
    run = queries // (lapses + 1)
    return Tallied(queries, lapses, run, age, has_lapsed=True, contexts=contexts)


def trusts(tally, runs):
    gain = gain_of(LINES, model_of(tally, runs, with_runs=True))
    return gain.saved >= gain.price


def test_a_few_long_contexts_do_not_make_the_forecast_trusted_with_the_many_short_ones():
    bursty = [tallied(1, 45), tallied(2, 45), tallied(90, 10)]
    assert not trusts(bursty, [])


def test_contexts_that_are_all_asked_often_make_it_trusted():
    steady = [tallied(40, 100, lapses=39)]
    assert trusts(steady, [(1, 3900)])


def test_contexts_that_have_ended_last_and_are_asked_once_take_the_trust_away():
    steady = tallied(40, 100, lapses=39, age=5)
    before = [steady, tallied(1, 10, age=1)]
    after = [steady, tallied(1, 45, age=1)]
    runs = [(1, 3900)]
    assert trusts(before, runs)
    assert not trusts(after, runs)
    saved = gain_of(LINES, model_of([steady], runs, with_runs=True)).saved
    lost = 45 * (NOTES.prepare + NOTES.rate - RETRIEVED.rate)
    assert lost < saved  # in all, it is still ahead


def test_of_few_that_have_ended_those_that_go_on_count_too():
    going_on = tallied(40, 100, lapses=39, age=0)
    assert trusts([going_on, tallied(1, 2, age=1)], [(1, 3900)])


@pytest.fixture(scope="module")
def cached():
    """A frontier of those three lines, about."""
    prices = PriceVector(
        unit="tokens", answer=ModelPrice(input=1.0, output=1.0, cached_input=0.1, cache_write=1.25)
    )
    prompt = (Stage.QUERY, Role.ANSWER_INPUT)
    written = (Stage.PREPARE, Role.COMPRESS_INPUT)
    full = Usage({prompt: 1308.0}, shared_input=1242.0)
    notes = Usage({prompt: 409.0, written: 1500.0}, shared_input=388.0)
    points = [
        StrategyPoint("full_context", {}, 0.8, 0, 1, usage=full),
        StrategyPoint("bm25", {}, 0.8, 0, 1, usage=Usage({prompt: 566.0})),
        StrategyPoint("memory_compression", {}, 0.8, 0, 1, usage=notes),
    ]
    return EfficiencyFrontier(points).priced(prices)


HISTORIES = (
    History(1, 0, 1),
    History(30, 0, 30),
    History(12, 11, 1),
    History(13, 2, 5),
    History(40, 4, 4),
)


@pytest.mark.parametrize("policy", [None, "deterministic"])
@pytest.mark.parametrize("history", HISTORIES)
def test_what_is_played_is_what_a_router_does(cached, monkeypatch, policy, history):
    gone_on = [Tallied(25, 6, 3, 0, has_lapsed=False, contexts=9)]
    model = model_of([*gone_on, tallied(2, 8)], [(4, 50)], with_runs=True)
    lines = []
    for point in cached.reaching(0.7):
        written = cached.lapsing.get(point.key, 0.0)
        lines.append(CostLine(point.stage1 - written, written, point.stage2))
    replay = _Replay(tuple(lines), model)
    player = replay.boldly if policy is None else replay.carefully
    expected, _ = replay.play(history, player)
    now = [0.0]
    monkeypatch.setattr(Router, "_is_trusted", lambda *_: policy is None)
    with ReuseLedger(":memory:", clock=lambda: now[0]) as ledger:
        monkeypatch.setattr(ledger, "latest_model", lambda life: model)
        router = Router(cached, RouterConfig(target_f1=0.7, policy=policy), ledger=ledger)
        paid = 0.0
        for length in history.runs():
            now[0] += 2 * LIFE
            for _ in range(length):
                now[0] += 1.0
                decision = router.route(context_id="a")
                paid += decision.stage1 + decision.stage2
                ledger.mark_prepared("a", decision.point.key, decision.stage1)
    assert paid == pytest.approx(expected)


@pytest.mark.parametrize("size", [0, 1, 6, 60])
def test_the_fit_is_that_of_a_search_without_slopes(size):
    rng = np.random.default_rng(size)
    contexts = {}
    for kept in rng.integers(0, 300, size).tolist():
        contexts[Gaps(int(rng.integers(0, 4)), kept)] = int(rng.integers(1, 2000))
    prior = math.log(2.0)

    def loss(at):
        a, b = np.exp(at)
        total = sum((value - prior) ** 2 for value in at) / 8
        for (stops, kept), times in contexts.items():
            total -= times * (betaln(a + stops, b + kept) - betaln(a, b))
        return total

    tight = {"xatol": 1e-7, "fatol": 1e-9, "maxiter": 4000}
    slow = minimize(loss, [prior, prior], method="Nelder-Mead", options=tight)
    fast = np.log(fit_gaps(contexts))
    assert fast == pytest.approx(slow.x, abs=0.002)
    assert loss(fast) <= slow.fun + 0.001


def notes_of_new_contexts(frontier, policy):
    """What is said of a new context before and after it is known how often others were asked."""
    clock = [1e9]
    config = RouterConfig(target_f1=0.7, policy=policy)
    with ReuseLedger(":memory:", clock=lambda: clock[0]) as ledger:
        router = Router(frontier, config, ledger=ledger)
        first = router.route(context_id="new").note
        for number in range(60):
            ledger.record(f"c{number}", 40)
        clock[0] += 10 * 86_400
        return first, router.route(context_id="newer").note


def test_a_bound_is_said_to_hold_until_a_forecast_decides():
    notes = StrategyPoint("notes", {}, 0.8, 1500, 409)
    frontier = EfficiencyFrontier([StrategyPoint("retrieval", {}, 0.8, 0, 566), notes])
    first, trusted = notes_of_new_contexts(frontier, None)
    assert "times the optimum" in first
    assert "until a forecast" in first
    assert "times the optimum" not in trusted
    for note in notes_of_new_contexts(frontier, "deterministic"):
        assert "times the optimum" in note
        assert "until a forecast" not in note
