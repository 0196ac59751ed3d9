import json

import numpy as np
import pytest

from benchmarks.deployment.lapsing import final_ratio, often_lapsing
from benchmarks.deployment.month import PAPER_POINTS, TRAFFIC, month_costs, month_of
from benchmarks.deployment.simulation import REUSE_KINDS, reuse_counts, simulate_deployment
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.cost import StrategyPoint
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.rental import decide_online


def hand_points():
    return [
        StrategyPoint("full", {}, 0.84, 0, 1308),
        StrategyPoint("tfidf", {"depth": 10}, 0.78, 0, 566),
        StrategyPoint("tfidf", {"depth": 2}, 0.60, 0, 200),
        StrategyPoint("memory", {"ratio": 0.3}, 0.81, 1500, 409),
        StrategyPoint("memory", {"ratio": 0.9}, 0.70, 1500, 700),
    ]


@pytest.fixture
def counts():
    rng = np.random.default_rng(42)
    return np.where(rng.random(300) < 0.8, 1, rng.integers(20, 80, 300)).tolist()


def by_name(results):
    return {result.name: result for result in results}


def test_the_offline_optimum_is_the_limit_at_the_target(counts):
    results = simulate_deployment(EfficiencyFrontier(hand_points()), 0.78, counts)
    assert results[0].name == "offline optimum"
    for result in results:
        if result.reaches_target:
            assert result.over_optimum >= 1 - 1e-12
        assert result.per_query == pytest.approx(result.total / sum(counts))


def test_the_plan_equals_deciding_query_by_query(counts):
    frontier = EfficiencyFrontier(hand_points())
    results = by_name(simulate_deployment(frontier, 0.78, counts[:60]))
    total = 0.0
    for count in counts[:60]:
        ready = frozenset()
        for seen in range(1, count + 1):
            point = decide_online(frontier, 0.78, seen, prepared=ready).point
            total += point.effective(1, sunk=point.key in ready)
            ready |= {point.key} if point.stage1 else set()
    assert results["router, rent or buy"].total == pytest.approx(total)


@pytest.mark.parametrize("kind", TRAFFIC)
def test_a_month_is_routed_within_the_bound_and_as_it_is_replayed(kind):
    contexts = 6
    queries = month_of(kind, contexts)
    assert queries == sorted(queries)
    assert queries == month_of(kind, contexts)
    assert {context for _, context in queries} == set(range(contexts))
    costs = dict(month_costs(EfficiencyFrontier(PAPER_POINTS), 0.78, queries))
    optimum = costs.pop("offline optimum")
    assert all(cost >= optimum - 1e-6 for cost in costs.values())
    assert costs["rent or buy"] <= 1.25 * optimum
    assert costs["router"] == pytest.approx(costs["decayed geometric mean"])


def test_a_context_that_outlives_its_cache_entry_costs_a_tenth_more_at_most():
    assert max(final_ratio(game) for game in often_lapsing()) <= 1.1


@pytest.mark.parametrize("counts", [[], [3, 0]])
def test_impossible_deployments_are_refused(counts):
    with pytest.raises(InvalidInputError):
        simulate_deployment(EfficiencyFrontier(hand_points()), 0.5, counts)


@pytest.mark.parametrize("kind", REUSE_KINDS)
def test_made_up_reuse_is_seeded_and_counts_every_context(kind):
    counts = reuse_counts(kind, 400, mean=8)
    assert counts == reuse_counts(kind, 400, mean=8)
    assert len(counts) == 400
    assert min(counts) >= 1
    if kind in ("constant", "geometric", "bursty"):
        assert 6 < np.mean(counts) < 12


def test_the_command_compares_policies_on_every_kind_of_reuse(bench, tmp_path):
    artefact = EfficiencyFrontier(hand_points()).save(tmp_path / "f.json")
    bench("deployment", artefact, "--target-f1", "0.6", "--contexts", "50", "--out", tmp_path)
    record = json.loads((tmp_path / "deployment.json").read_text())
    for kind in REUSE_KINDS:
        assert record[kind][0]["name"] == "offline optimum"
        assert any(row["name"].startswith("always memory") for row in record[kind])
