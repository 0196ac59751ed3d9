import json

import numpy as np
import pytest

from ecs_plugins.frontier.cost import Dropped, Provenance, StrategyPoint
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.measurements import Arm, Measurements
from ecs_plugins.frontier.reuse import Preparation, ReuseLedger
from ecs_plugins.frontier.strategies import StrategySet
from ecs_plugins.tokens import Role, Stage


def simple(name, **config):
    """A strategy without a model of its own."""
    return StrategySet().get(name, config)


def point(strategy, f1, stage1, stage2, routable=True, **config):
    return StrategyPoint(strategy, config, f1, stage1, stage2, routable=routable)


# Two quality levels, chosen so that the crossovers can be worked out by hand.
def hand_points():
    return [
        point("full", 0.84, 0, 1308),
        point("tfidf", 0.78, 0, 566, depth=10),
        point("tfidf", 0.60, 0, 200, depth=2),
        point("memory", 0.81, 1500, 409, ratio=0.3),
        point("memory", 0.70, 1500, 700, ratio=0.9),
        point("oracle", 0.95, 0, 300, routable=False),
    ]


@pytest.fixture
def frontier():
    return EfficiencyFrontier(hand_points())


def count(ledger, context, queries=1):
    """Count queries of a context, and return their total."""
    for _ in range(queries):
        total = ledger.count_query(context).queries
    return total


def note_prepared(ledger, context, key, cost, life=0.0):
    """Note a stage 1 that was paid."""
    ledger.book(context, {key: Preparation(cost, 0.0, life)}, [])


@pytest.fixture
def ledger(tmp_path, located, monkeypatch):
    # A machine that is busy with other tests may take longer to connect to a server.
    monkeypatch.setattr("ecs_plugins.frontier.reuse.BUSY_SECONDS", 10.0)
    with ReuseLedger(located(tmp_path / "r.db")) as made:
        yield made


def sample_measurements(questions=400, seed=0, spread=1.0):
    """Paired rows with hidden means; difficulty is shared between strategies."""
    rng = np.random.default_rng(seed)
    hidden = {
        ("full", "{}"): (0.70, 0.0, 1300.0),
        ("tfidf", '{"depth":4}'): (0.62, 0.0, 500.0),
        ("memory", '{"ratio":0.25}'): (0.66, 1500.0, 400.0),
        ("oracle", "{}"): (0.80, 0.0, 300.0),
    }
    arms = []
    for name, config in hidden:
        arm = Arm(name, json.loads(config), name != "oracle")
        arms.append(arm)
    shape = (len(arms), questions)
    difficulty = rng.normal(0, 0.15 * spread, questions)
    f1 = np.zeros(shape)
    one = np.zeros(shape)
    two = np.zeros(shape)
    for row, (mean, stage1, stage2) in enumerate(hidden.values()):
        luck = rng.normal(0, 0.03 * spread, questions)
        f1[row] = np.clip(mean + difficulty + luck, 0, 1)
        off = rng.normal(0, 50 * spread, questions)
        if stage1:
            one[row] = np.maximum(0, stage1 + off)
        off = rng.normal(0, 20 * spread, questions)
        two[row] = np.maximum(50, stage2 + off)
    measured = Measurements(
        arms=tuple(arms),
        questions=tuple(f"q{i}" for i in range(questions)),
        contexts=tuple(f"c{i // 2}" for i in range(questions)),
        f1=f1,
        tokens={
            (Stage.PREPARE, Role.COMPRESS_INPUT): one,
            (Stage.QUERY, Role.ANSWER_INPUT): two,
        },
        shared_input=np.zeros(shape),
        prepare_seconds=np.zeros(shape),
        query_seconds=two / 1000,
    )
    return measured, hidden


@pytest.fixture(scope="session")
def measured_frontier():
    rows, _ = sample_measurements()
    return EfficiencyFrontier.from_measurements(
        rows,
        provenance=Provenance(
            models={"answer": "fake"},
            data="made up",
            data_hash="ab" * 32,
            questions=400,
            created="2026-11-21T00:00:00+00:00",
            package_version="0.2.0",
            settings={"max_new_tokens": 16},
        ),
        dropped=[Dropped("bm25", {"depth": 1}, 50, "dominated by tfidf(depth=4)")],
    )
