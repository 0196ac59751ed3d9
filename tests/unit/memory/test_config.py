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
        ("newcomer_rate", 0.0),
        ("newcomer_rate", math.nan),
        ("merge_guard", "cosine"),
        ("information_weight", -1.0),
        ("merge_threshold", -1.5),
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


def test_what_is_left_open_fits_sentences_or_given_vectors():
    config = MemoryConfig(cold_capacity=7)
    texts, vectors = config.for_texts(), config.for_vectors()
    assert (texts.merge_threshold, texts.threshold, texts.min_support) == (0.9, 0.5, 1)
    assert (vectors.merge_threshold, vectors.threshold, vectors.min_support) == (0.7, 0.7, 2)
    assert (texts.newcomer_rate, vectors.newcomer_rate) == (1.0, 0.5)
    assert texts.cold_capacity == vectors.cold_capacity == 7


def test_what_is_set_is_not_filled_in():
    config = MemoryConfig(merge_threshold=0.6, threshold=0.7, min_support=4, newcomer_rate=2.0)
    assert config.for_texts() == config.for_vectors() == config
    assert MemoryConfig.paper().for_texts() == MemoryConfig.paper(newcomer_rate=1.0)


def test_decisions_read_an_open_setting_as_for_vectors():
    config = MemoryConfig()
    filled = config.for_vectors()
    assert config.merged_from == filled.merged_from == filled.merge_threshold
    assert config.recalled_from == filled.recalled_from == filled.threshold
    assert config.support_needed == filled.support_needed == filled.min_support
    assert config.expected_of_newcomers == filled.newcomer_rate


def test_settings_recorded_before_there_was_a_guard_still_load():
    recorded = MemoryConfig().for_vectors().replace(utility="observed").to_json()
    for name in ("merge_guard", "information_weight", "newcomer_rate"):
        del recorded[name]
    loaded = MemoryConfig.from_json(json.loads(json.dumps(recorded)))
    assert (loaded.merge_threshold, loaded.min_support, loaded.utility) == (0.7, 2, "observed")


def test_evidence_recorded_before_there_was_a_guard_still_loads():
    recorded = first_evidence(3, None).to_json()
    del recorded["unlike"]
    assert Evidence.from_json(recorded) == first_evidence(3, None)
