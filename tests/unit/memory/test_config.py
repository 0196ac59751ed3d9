import json
import math
import subprocess
import sys

import pytest

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.memory import MemoryConfig
from ecs_plugins.memory.evidence import first_evidence
from ecs_plugins.memory.types import Evidence, StreamStatistics


def test_the_paper_says_these_values():
    paper = MemoryConfig.paper()
    assert (paper.cold_capacity, paper.sleep_every, paper.clusters) == (20, 100, 5)
    assert (paper.min_support, paper.threshold, paper.top_k) == (3, 0.7, 3)
    assert (paper.temperature, paper.schedule) == (1.0, "constant")
    assert (paper.summary_tokens, paper.summary_temperature) == (50, 0.3)


@pytest.mark.parametrize("config", [MemoryConfig(), MemoryConfig.paper()])
def test_a_config_survives_json(config):
    assert MemoryConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_the_version_names_the_settings():
    assert MemoryConfig().version == MemoryConfig().version
    assert MemoryConfig().version != MemoryConfig(temperature=0.1).version


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("hot_capacity", 0),
        ("threshold", 1.5),
        ("temperature", -1.0),
        ("temperature", math.nan),
        ("half_life", 0.0),
        ("half_life", math.nan),
        ("utility_decay", 1.1),
        ("clustering", "dbscan"),
        ("min_support", 0),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(setting, value):
    with pytest.raises(ConfigurationError, match=setting):
        MemoryConfig(**{setting: value})


def test_an_unknown_setting_is_refused():
    with pytest.raises(ConfigurationError, match="tau"):
        MemoryConfig.from_json({"tau": 0.7})


def test_evidence_and_statistics_survive_json():
    evidence = Evidence(
        1, 2, 3, 4, 0.5, 6, 0.7, 0.8, 0.9, (("a", 1.0),), (("a", 1.0),), ("a", "b"), 3.5
    )
    for value in (evidence, first_evidence(3, None), StreamStatistics(1.0, 2.0, 3.0, 4)):
        assert type(value).from_json(json.loads(json.dumps(value.to_json()))) == value


def test_importing_memory_loads_no_heavy_library():
    code = "import sys, ecs_plugins.memory as m; m.MemoryConfig; m.consolidate; m.replay\n"
    code += "print([n for n in ('torch', 'faiss', 'sklearn', 'transformers') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
