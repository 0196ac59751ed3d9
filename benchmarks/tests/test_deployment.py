import numpy as np
import pytest

from benchmarks.deployment.lapsing import final_ratio, often_lapsing
from benchmarks.deployment.month import PAPER_POINTS, TRAFFIC, month_costs, month_of
from benchmarks.deployment.policies import REUSE_KINDS, reuse_counts
from ecs_plugins.frontier.envelope import EfficiencyFrontier


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


@pytest.mark.parametrize("kind", REUSE_KINDS)
def test_made_up_reuse_is_seeded_and_counts_every_context(kind):
    counts = reuse_counts(kind, 400, mean=8)
    assert counts == reuse_counts(kind, 400, mean=8)
    assert len(counts) == 400
    assert min(counts) >= 1
    if kind in ("constant", "geometric", "bursty"):
        assert 6 < np.mean(counts) < 12
