import json
from collections import Counter

import numpy as np
import pytest

from benchmarks.deployment.simulation import REUSE_KINDS, reuse_counts, simulate_deployment
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.artefact import save
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.forecast import fit_reuse
from ecs_plugins.frontier.online import OnlinePolicy, decide_online
from ecs_plugins.frontier.points import StrategyPoint


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


def test_mixed_reuse_makes_every_fixed_strategy_dearer_than_routing(counts):
    found = by_name(simulate_deployment(EfficiencyFrontier(hand_points()), 0.78, counts))
    online = found["router, N unknown, deterministic"]
    assert online.over_optimum <= 2
    assert online.total < found["always full"].total
    assert online.total < found["always tfidf(depth=10)"].total


def test_the_shortcut_equals_deciding_query_by_query(counts):
    frontier = EfficiencyFrontier(hand_points())
    results = by_name(simulate_deployment(frontier, 0.78, counts[:60]))
    for policy in (OnlinePolicy.DETERMINISTIC, OnlinePolicy.RANDOMISED):
        total = 0.0
        for index, count in enumerate(counts[:60]):
            ready = frozenset()
            for seen in range(1, count + 1):
                decision = decide_online(
                    frontier,
                    0.78,
                    seen,
                    context_id=f"context {index}",
                    prepared=ready,
                    policy=policy,
                )
                total += decision.point.effective(1, sunk=decision.point.key in ready)
                ready |= {decision.point.key} if decision.point.stage1 else set()
        assert results[f"router, N unknown, {policy}"].total == pytest.approx(total)


def test_forecasting_equals_routing_with_a_ledger_of_the_same_history(counts, tmp_path):
    frontier = EfficiencyFrontier(hand_points())
    history = [1] * 30 + [40] * 10
    found = by_name(simulate_deployment(frontier, 0.78, counts[:40], history=history))
    model = fit_reuse(Counter(history), {})
    total = 0.0
    for count in counts[:40]:
        ready = set()
        for seen in range(1, count + 1):
            decision = frontier.cheapest(0.78, model.forecast(seen).reuse, prepared=ready)
            total += decision.point.effective(1, sunk=decision.point.key in ready)
            ready |= {decision.point.key}
    assert found["router, N forecast"].total == pytest.approx(total)
    assert found["router, N forecast"].over_optimum >= 1


def test_without_a_history_nothing_is_forecast(counts):
    found = by_name(simulate_deployment(EfficiencyFrontier(hand_points()), 0.78, counts))
    assert "router, N forecast" not in found


def test_a_strategy_that_misses_the_target_is_marked():
    found = by_name(simulate_deployment(EfficiencyFrontier(hand_points()), 0.82, [1, 5]))
    assert not found["always tfidf(depth=10)"].reaches_target
    assert found["always full"].over_optimum == pytest.approx(1.0)


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


def test_mixed_reuse_holds_a_quarter_of_every_kind():
    mixed = reuse_counts("mixed", 402, mean=8)
    parts = [
        n
        for kind, own in zip(REUSE_KINDS, (101, 101, 100, 100), strict=False)
        for n in reuse_counts(kind, own, mean=8)
    ]
    assert sorted(mixed) == sorted(parts)
    assert mixed != parts
    assert len(reuse_counts("mixed", 2)) == 2


def test_unknown_reuse_is_refused():
    with pytest.raises(InvalidInputError, match="kind"):
        reuse_counts("daily", 5)


def test_the_command_compares_policies_on_every_kind_of_reuse(bench, tmp_path):
    artefact = save(EfficiencyFrontier(hand_points()), tmp_path / "f.json")
    bench("deployment", artefact, "--target-f1", "0.6", "--contexts", "50", "--out", tmp_path)
    record = json.loads((tmp_path / "deployment.json").read_text())
    assert (tmp_path / "deployment.png").read_bytes().startswith(b"\x89PNG")
    assert "bursty" in (tmp_path / "deployment.svg").read_text()
    for kind in REUSE_KINDS:
        assert record[kind][0]["name"] == "offline optimum"
        assert any(row["name"].startswith("always memory") for row in record[kind])
