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
    points = []
    for k in range(rng.randint(2, 9)):
        name = rng.choice("abc") if k > 1 else "ab"[k]
        coarse = rng.randint(0, 4) / 4
        f1 = rng.choice([rng.random(), coarse])
        stage1 = rng.choice([0.0, rng.uniform(0, 3000)])
        stage2 = rng.choice([500.0, rng.uniform(50, 1500)])
        points.append(point(name, f1, stage1, stage2, k=k))
    return EfficiencyFrontier(points)


def highest(frontier, weight, reuse):
    return max(score(each, weight, reuse) for each in frontier.points)


def check_envelope(frontier, reuse):
    spans = frontier.envelope(reuse)
    assert spans[0].low == 0
    assert spans[-1].high == 1
    for before, after in pairwise(spans):
        assert before.high == after.low
    for span in spans:
        middle = (span.low + span.high) / 2
        for weight in (span.low, middle, span.high):
            top = highest(frontier, weight, reuse)
            assert score(span.point, weight, reuse) == pytest.approx(top, abs=1e-9)


def check_target(frontier, target, reuse):
    costs = [p.stage2 + p.stage1 / reuse for p in frontier.points if p.f1 >= target]
    if costs:
        choice = frontier.decide(target_f1=target, reuse=reuse)
        assert choice.effective == min(costs)
        return
    with pytest.raises(UnreachableTargetError) as caught:
        frontier.decide(target_f1=target, reuse=reuse)
    assert caught.value.nearest == max(p.f1 for p in frontier.points)


def check_budget(frontier, budget, reuse):
    costs = []
    levels = []
    for each in frontier.points:
        cost = each.stage2 + each.stage1 / reuse
        costs.append(cost)
        if cost <= budget:
            levels.append(each.f1)
    if levels:
        choice = frontier.decide(budget=budget, reuse=reuse)
        assert choice.f1 == max(levels)
        return
    with pytest.raises(UnreachableTargetError) as caught:
        frontier.decide(budget=budget, reuse=reuse)
    assert caught.value.nearest == pytest.approx(min(costs))


@pytest.mark.slow
def test_decisions_equal_brute_force_on_10000_random_sets():
    rng = random.Random(42)
    for _ in range(10_000):
        frontier = random_frontier(rng)
        reuse = rng.choice([1, 1.5, 10, 1e4])
        near_one = 1 - 10 ** rng.uniform(-4, 0)
        weight = rng.choice([0, 1, near_one, rng.random()])
        best = frontier.decide(weight=weight, reuse=reuse)
        top = highest(frontier, weight, reuse)
        assert score(best.point, weight, reuse) == pytest.approx(top, abs=1e-12)
        check_envelope(frontier, reuse)
        check_target(frontier, rng.random(), reuse)
        check_budget(frontier, rng.uniform(60, 3000), reuse)


@pytest.mark.slow
def test_reuse_path_equals_brute_force_over_n():
    rng = random.Random(6)
    for _ in range(1500):
        frontier = random_frontier(rng)
        best_f1 = max(p.f1 for p in frontier.points)
        target = rng.uniform(0, best_f1)
        by_target = frontier.reuse_path(target_f1=target)
        for step, middle in middles(by_target):
            chosen = frontier.decide(target_f1=target, reuse=middle)
            assert step.point.effective(middle) == pytest.approx(chosen.effective)


def middles(path):
    assert path[0].low == 1
    assert path[-1].high == math.inf
    for before, after in pairwise(path):
        assert before.high == after.low
    for step in path:
        high = min(step.high, step.low * 100)
        middle = math.sqrt(step.low * high)
        yield step, middle


def test_transitions_carry_their_exchange_rate(frontier):
    first, second = frontier.transitions(1)
    assert first.after.label == "tfidf(depth=10)"
    assert second.after.label == "full"
    ratio = 566 / 200
    gain = 0.18
    odds = first.weight / (1 - first.weight)
    assert odds == pytest.approx(math.log(ratio) / gain)
    rate = ratio ** (0.01 / gain) - 1
    assert first.exchange_rate == pytest.approx(rate)


def test_a_prepared_point_may_win_although_it_is_dominated_unprepared():
    prepared = point("b", 0.7, 900, 300)
    dear = point("c", 0.8, 0, 900)
    for other, winner in (
        (point("a", 0.7, 100, 300), "b"),
        (point("a", 0.7, 0, 290), "a"),
    ):
        frontier = EfficiencyFrontier([other, prepared, dear])
        decision = frontier.decide(target_f1=0.7, reuse=2, prepared=[prepared.key])
        assert decision.strategy == winner


def test_why_not_gives_a_reason_with_numbers_for_every_other_point(frontier):
    decision = frontier.decide(target_f1=0.78, reuse=100)
    reasons = decision.why_not()
    others = {p.label for p in frontier.points}
    others.remove(decision.label)
    assert reasons.keys() == others
    assert reasons["full"] == "reaches it, no cheaper: F1 0.840, 1,308 tokens per query"
    assert reasons["tfidf(depth=2)"] == "misses the target: F1 0.600, 200 tokens per query"
    assert reasons["oracle"] == "measured as an upper bound, never routed"
    assert frontier.decide(weight=1.0, reuse=1).strategy == "full"
    weighted = frontier.decide(weight=0.5, reuse=100).why_not()
    assert weighted["full"].startswith("scores ")
    within = frontier.decide(budget=450, reuse=100).why_not()
    assert "above the budget" in within["full"]


def test_decision_explains_itself_and_round_trips_as_a_dict(frontier):
    decision = frontier.decide(reuse=40, weight=0.93)
    odds = 0.93 / 0.07
    assert decision.exchange_rate == pytest.approx(math.expm1(odds * 0.01))
    assert "w = 0.93" in decision.explain()
    assert decision.to_dict()["strategy"] == decision.strategy
    copy = pickle.loads(pickle.dumps(decision))
    assert copy == decision


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
        EfficiencyFrontier(point(*parts) for parts in points)


def test_identical_points_of_two_strategies_give_the_first_and_say_so():
    one = point("a", 0.5, 0, 10)
    same = point("b", 0.5, 0, 10)
    frontier = EfficiencyFrontier([one, same])
    assert len(frontier.envelope(5)) == 1
    assert frontier.transitions(5) == ()
    (regime,) = frontier.regimes()
    assert regime.name == "any"
    decision = frontier.decide(target_f1=0.5, reuse=5)
    assert decision.strategy == "a"
    assert "no cheaper" in decision.why_not()["b"]


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
    assert balanced.f1_low == 0.78
    assert balanced.f1_high == 0.82
    assert balanced.choices[1].effective(1) == 566
    assert balanced.choices[100].effective(100) == 584
    for reuse in (1, 100):
        assert low.choices[reuse].strategy == "tfidf"
        assert high.choices[reuse].label == "full"


@pytest.mark.parametrize("f1", [0.66666, 0.57, 2 / 3, 0.123456789])
def test_the_nearest_target_and_budget_of_a_refusal_are_met_when_asked_for(f1):
    cheap = point("a", f1, 0, 100 / 3)
    dear = point("b", f1 / 2, 0, 200 / 3)
    frontier = EfficiencyFrontier([cheap, dear])
    for name, value, words in (
        ("target_f1", 0.99, "nearest is "),
        ("budget", 1.0, "cheapest needs "),
    ):
        with pytest.raises(UnreachableTargetError) as caught:
            frontier.decide(reuse=1, **{name: value})
        error = caught.value
        _, _, rest = str(error).partition(words)
        number, *_ = rest.split()
        copy = pickle.loads(pickle.dumps(error))
        assert copy.nearest == error.nearest
        again = frontier.decide(reuse=1, **{name: float(number)})
        assert again.label == "a"


def test_whole_numbers_beyond_a_float_are_infinite(frontier):
    huge = 10**400
    assert frontier.decide(reuse=huge, budget=huge).explain()
    assert frontier.decide(reuse=huge, target_f1=0.7).reuse == math.inf
    with pytest.raises(InvalidInputError):
        frontier.decide(reuse=1, weight=huge)


def test_only_keeps_what_is_named_and_its_measurements(frontier, measured_frontier):
    fewer = frontier.only(["tfidf", "memory(ratio=0.3)"])
    first, second, third = fewer.points
    assert first.label == "tfidf(depth=10)"
    assert second.label == "tfidf(depth=2)"
    assert third.label == "memory(ratio=0.3)"
    assert fewer.decide(target_f1=0.78, reuse=1).point == first
    with pytest.raises(UnreachableTargetError):
        fewer.decide(target_f1=0.84, reuse=1)
    fewer = measured_frontier.only(["memory", "tfidf"])
    for kept in fewer.points:
        ours = fewer.f1_interval(kept)
        theirs = measured_frontier.f1_interval(kept)
        assert ours.low == pytest.approx(theirs.low)
        assert ours.high == pytest.approx(theirs.high)
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
        points = []
        for _ in range(rng.randint(1, 9)):
            # On a coarse lattice, so that equal F1, equal costs and identical points are common.
            f1 = rng.randint(0, 4) / 4
            cost = math.exp(rng.randint(0, 4) / 4)
            points.append(point("a", f1, 0, cost))
        kept = non_dominated(points, 1)
        brute = set()
        for each in points:
            if not any(beats(other, each) for other in points):
                brute.add((each.f1, each.stage2))
        assert {(p.f1, p.stage2) for p in kept} == brute
        assert len(kept) == len(brute)


def beats(one, other):
    as_good = one.f1 >= other.f1 and one.stage2 <= other.stage2
    return as_good and (one.f1 > other.f1 or one.stage2 < other.stage2)
