import math
import pickle
import random
from itertools import pairwise

import pytest

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.cost import efficiency_score
from ecs_plugins.frontier.decision import UnreachableTargetError
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.hull import non_dominated
from ecs_plugins.frontier.prices import PriceVector

from .conftest import point


def score(point, weight, reuse):
    return efficiency_score(point.f1, point.effective(reuse), weight)


def random_frontier(rng):
    size = rng.randint(2, 9)
    points = [
        point(
            rng.choice("abc") if k > 1 else "ab"[k],
            rng.choice([rng.random(), rng.randint(0, 4) / 4]),
            rng.choice([0.0, rng.uniform(0, 3000)]),
            rng.choice([rng.uniform(50, 1500), 500.0]),
            k=k,
        )
        for k in range(size)
    ]
    return EfficiencyFrontier(points)


@pytest.mark.slow
def test_decisions_equal_brute_force_on_10000_random_sets():
    rng = random.Random(42)
    for _ in range(10_000):
        frontier = random_frontier(rng)
        reuse = rng.choice([1, 1.5, 10, 1e4])
        weight = rng.choice([0, 1, rng.random(), 1 - 10 ** rng.uniform(-4, 0)])
        costs = {p.key: p.stage2 + p.stage1 / reuse for p in frontier.points}
        best = frontier.decide(weight=weight, reuse=reuse)
        top = max(score(p, weight, reuse) for p in frontier.points)
        assert score(best.point, weight, reuse) == pytest.approx(top, abs=1e-12)
        spans = frontier.envelope(reuse)
        assert [spans[0].low, *(span.high for span in spans)] == [0, *(b.low for b in spans[1:]), 1]
        for span in spans:
            for w in (span.low, (span.low + span.high) / 2, span.high):
                top = max(score(p, w, reuse) for p in frontier.points)
                assert score(span.point, w, reuse) == pytest.approx(top, abs=1e-9)
        target = rng.random()
        able = [p for p in frontier.points if p.f1 >= target]
        if able:
            choice = frontier.decide(target_f1=target, reuse=reuse)
            assert choice.effective == min(costs[p.key] for p in able)
        else:
            with pytest.raises(UnreachableTargetError) as caught:
                frontier.decide(target_f1=target, reuse=reuse)
            assert caught.value.nearest == max(p.f1 for p in frontier.points)
        budget = rng.uniform(60, 3000)
        fitting = [p for p in frontier.points if costs[p.key] <= budget]
        if fitting:
            assert frontier.decide(budget=budget, reuse=reuse).f1 == max(p.f1 for p in fitting)
        else:
            with pytest.raises(UnreachableTargetError) as caught:
                frontier.decide(budget=budget, reuse=reuse)
            assert caught.value.nearest == pytest.approx(min(costs.values()))


@pytest.mark.slow
def test_reuse_path_equals_brute_force_over_n():
    rng = random.Random(6)
    for _ in range(1500):
        frontier = random_frontier(rng)
        weight = rng.choice([0, 0.5, 0.93, 0.999, 1])
        target = rng.uniform(0, max(p.f1 for p in frontier.points))
        by_weight = frontier.reuse_path(weight=weight)
        for step, middle in middles(by_weight):
            chosen = frontier.decide(weight=weight, reuse=middle).point
            assert score(step.point, weight, middle) == pytest.approx(
                score(chosen, weight, middle), abs=1e-9
            )
        by_target = frontier.reuse_path(target_f1=target)
        for step, middle in middles(by_target):
            assert step.point.effective(middle) == pytest.approx(
                frontier.decide(target_f1=target, reuse=middle).effective
            )


def middles(path):
    assert path[0].low == 1
    assert path[-1].high == math.inf
    assert all(a.high == b.low for a, b in pairwise(path))
    for step in path:
        high = min(step.high, step.low * 100)
        yield step, math.sqrt(step.low * high)


def test_transitions_carry_their_exchange_rate(frontier):
    transitions = frontier.transitions(1)
    assert [t.after.label for t in transitions] == ["tfidf(depth=10)", "full"]
    first = transitions[0]
    odds = first.weight / (1 - first.weight)
    assert odds == pytest.approx(math.log(566 / 200) / 0.18)
    assert first.exchange_rate == pytest.approx((566 / 200) ** (0.01 / 0.18) - 1)


def test_a_prepared_point_may_win_although_it_is_dominated_unprepared():
    frontier = EfficiencyFrontier(
        [point("a", 0.7, 0, 300), point("b", 0.7, 900, 350), point("c", 0.8, 0, 900)]
    )
    assert frontier.decide(target_f1=0.7, reuse=50, prepared=[("b", "{}")]).strategy == "a"
    frontier = EfficiencyFrontier(
        [point("a", 0.7, 100, 300), point("b", 0.7, 900, 300), point("c", 0.8, 0, 900)]
    )
    assert frontier.decide(target_f1=0.7, reuse=2, prepared=[("b", "{}")]).strategy == "b"


def test_why_not_gives_a_reason_with_numbers_for_every_other_point(frontier):
    decision = frontier.decide(target_f1=0.78, reuse=100)
    reasons = decision.why_not()
    assert set(reasons) == {p.label for p in frontier.points} - {decision.label}
    assert reasons["full"] == "reaches the target, but costs 1,308 tokens, 208% more"
    assert reasons["tfidf(depth=2)"] == "F1 0.600 is below the target 0.780"
    assert reasons["oracle"] == "measured as an upper bound, never routed"
    assert frontier.decide(weight=1.0, reuse=1).strategy == "full"
    weighted = frontier.decide(weight=0.5, reuse=100).why_not()
    assert weighted["memory(ratio=0.9)"].startswith("dominated by ")
    assert "beat it above w = " in weighted["full"]
    assert "above the budget" in frontier.decide(budget=450, reuse=100).why_not()["full"]


def test_decision_explains_itself_and_round_trips_as_a_dict(frontier):
    decision = frontier.decide(reuse=40, weight=0.93)
    assert decision.exchange_rate == pytest.approx(math.expm1(0.93 / 0.07 * 0.01))
    assert "w = 0.93" in decision.explain()
    assert decision.to_dict()["strategy"] == decision.strategy
    assert pickle.loads(pickle.dumps(decision)) == decision


@pytest.mark.parametrize(
    ("points", "message"),
    [
        *[([("a", f1, 0, 1)], "F1") for f1 in (-0.1, 1.5, math.nan)],
        ([("a", 0.5, 10, 0)], "stage 2 must be positive"),
        ([("a", 0.5, 0, 1)], "at least two"),
        ([("a", 0.5, 0, 1), ("b", 0.9, 0, 1, False)], "at least two"),
        ([("a", 0.5, 0, 1), ("a", 0.6, 0, 2), ("b", 0.6, 0, 2)], "given twice"),
    ],
)
def test_points_that_cannot_be_chosen_between_are_refused(points, message):
    with pytest.raises(InvalidInputError, match=message):
        EfficiencyFrontier([point(*parts) for parts in points])


def test_identical_points_of_two_strategies_give_the_first_and_say_so():
    frontier = EfficiencyFrontier([point("a", 0.5, 0, 10), point("b", 0.5, 0, 10)])
    assert (len(frontier.envelope(5)), frontier.transitions(5)) == (1, ())
    assert [regime.name for regime in frontier.regimes()] == ["any"]
    decision = frontier.decide(target_f1=0.5, reuse=5)
    assert (decision.strategy, "the same" in decision.why_not()["b"]) == ("a", True)


def test_the_regimes_of_the_paper_come_out_of_its_operating_points():
    frontier = EfficiencyFrontier(
        [
            point("tfidf", 0.70, 0, 300, depth=4),
            point("tfidf", 0.78, 0, 566, depth=12),
            point("memory", 0.78, 1500, 409, ratio=0.2),
            point("memory", 0.80, 1500, 569, ratio=0.3),
            point("full", 0.82, 0, 1308),
        ]
    )
    low, balanced, high = frontier.regimes((1, 100))
    costs = {n: choice.effective(n) for n, choice in balanced.choices.items()}
    assert (balanced.f1_low, balanced.f1_high) == (0.78, 0.82)
    assert costs == {1: 566, 100: 584}
    assert {choice.strategy for choice in low.choices.values()} == {"tfidf"}
    assert {choice.label for choice in high.choices.values()} == {"full"}


@pytest.mark.parametrize("f1", [0.66666, 0.57, 2 / 3, 0.123456789])
def test_the_nearest_target_and_budget_of_a_refusal_are_met_when_asked_for(f1):
    frontier = EfficiencyFrontier([point("a", f1, 0, 100 / 3), point("b", f1 / 2, 0, 200 / 3)])
    for asked, word in (({"target_f1": 0.99}, "nearest is"), ({"budget": 1.0}, "cheapest needs")):
        with pytest.raises(UnreachableTargetError) as caught:
            frontier.decide(reuse=1, **asked)
        number = str(caught.value).partition(f"{word} ")[2].split()[0]
        assert pickle.loads(pickle.dumps(caught.value)).nearest == caught.value.nearest
        assert frontier.decide(reuse=1, **dict.fromkeys(asked, float(number))).label == "a"


def test_whole_numbers_beyond_a_float_are_infinite(frontier):
    huge = 10**400
    assert frontier.decide(reuse=huge, budget=huge).explain()
    assert frontier.decide(reuse=huge, target_f1=0.7).reuse == math.inf
    with pytest.raises(InvalidInputError):
        frontier.decide(reuse=1, weight=huge)


def test_only_keeps_what_is_named_and_its_measurements(frontier, measured_frontier):
    fewer = frontier.only(["tfidf", "memory(ratio=0.3)"])
    labels = [point.label for point in fewer.points]
    assert labels == ["tfidf(depth=10)", "tfidf(depth=2)", "memory(ratio=0.3)"]
    assert fewer.decide(target_f1=0.78, reuse=1).label == "tfidf(depth=10)"
    with pytest.raises(UnreachableTargetError):
        fewer.decide(target_f1=0.84, reuse=1)
    fewer = measured_frontier.only(["memory", "tfidf"])
    for kept in fewer.points:
        ours, theirs = fewer.f1_interval(kept), measured_frontier.f1_interval(kept)
        assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high))
    assert fewer.provenance == measured_frontier.provenance


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda f: f.get("tfidf", depth=3), "was not measured"),
        (lambda f: f.only(["tfidf", "bm25"]), "bm25 was not measured"),
        (lambda f: f.only(["memory(ratio=0.3)"]), "at least two"),
        (lambda f: f.decide(target_f1=0.5, reuse=0), "at least 1"),
        (lambda f: f.decide(reuse=1), "exactly one"),
        (lambda f: f.decide(reuse=1, target_f1=0.6, max_seconds=1), "means only"),
        (lambda f: f.decide(reuse=1, weight=0.5, budget=100), "exactly one"),
        (lambda f: f.priced(PriceVector(unit="USD", scorer=0.0)), "no token usage"),
    ],
)
def test_what_cannot_be_answered_is_refused(frontier, wrong, message):
    with pytest.raises(InvalidInputError, match=message):
        wrong(frontier)


def test_non_dominated_equals_brute_force_on_2000_random_sets():
    rng = random.Random(7)
    for _ in range(2_000):
        # On a coarse lattice, so that equal F1, equal costs and identical points are common.
        size = rng.randint(1, 9)
        points = [(rng.randint(0, 4) / 4, math.exp(rng.randint(0, 4) / 4)) for _ in range(size)]
        kept = non_dominated([point("a", f1, 0, cost) for f1, cost in points], 1)
        brute = {
            (f1, cost)
            for f1, cost in points
            if not any((g >= f1 and d <= cost) and (g > f1 or d < cost) for g, d in points)
        }
        assert {(p.f1, p.stage2) for p in kept} == brute
        assert len(kept) == len(brute)
