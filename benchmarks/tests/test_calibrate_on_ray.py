import os
import sqlite3
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is no dependency of this package: pip install ray")

import ray

from ecs_plugins.errors import ModelError
from ecs_plugins.frontier import calibrate
from ecs_plugins.frontier.calibration import CalibrationConfig
from ecs_plugins.frontier.strategies import StrategySet
from ecs_plugins.lm import FakeLanguageModel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (EXAMPLES, *sys.path))))
    ray.init(num_cpus=2, include_dashboard=False)
    import calibrate_on_ray

    yield calibrate_on_ray
    ray.shutdown()


def rows(journal):
    with sqlite3.connect(journal) as connection:
        return connection.execute("SELECT value FROM journal").fetchall()


def test_two_workers_equal_one_process_and_survive_a_death(example, tmp_path, monkeypatch):
    _, questions = example.load()
    strategies = [
        StrategySet().get(n, c) for n, c in (("full_context", {}), ("bm25", {"depth": 2}))
    ]
    config = CalibrationConfig(max_new_tokens=16, batch_size=2)
    alone = calibrate(questions, strategies, FakeLanguageModel(), config=config)
    monkeypatch.setattr(example, "EACH", 1)
    complete, calls = example.RayAnswerModel.complete, []

    def dies(self, prompts, **options):
        calls.append(len(prompts))
        if len(calls) == 2:
            ray.kill(self._replicas[0])
        return complete(self, prompts, **options)

    monkeypatch.setattr(example.RayAnswerModel, "complete", dies)
    journal = tmp_path / "journal.db"
    with pytest.raises(ModelError, match="run again"):
        example.measure(FakeLanguageModel, journal, 2)
    kept = rows(journal)
    assert len(kept) == 2  # what is measured, and the first batch
    found = example.measure(FakeLanguageModel, journal, 2)
    assert rows(journal)[:2] == kept
    assert [(p.label, p.f1, p.stage2) for p in found.points] == [
        (p.label, p.f1, p.stage2) for p in alone.points
    ]
