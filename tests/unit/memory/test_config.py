import json
import math

import pytest

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.memory import MemoryConfig


def test_the_paper_says_these_values():
    paper = MemoryConfig.paper()
    assert (paper.cold_capacity, paper.sleep_every, paper.clusters) == (20, 100, 5)
    assert (paper.min_support, paper.threshold, paper.top_k) == (3, 0.7, 3)
    assert (paper.rule, paper.temperature) == ("paper", 1.0)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("hot_capacity", 0),
        ("threshold", 1.5),
        ("temperature", -1.0),
        ("temperature", math.nan),
        ("rule", "dbscan"),
        ("min_support", 0),
        ("merge_threshold", -1.5),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(setting, value):
    with pytest.raises(ConfigurationError, match=setting):
        MemoryConfig(**{setting: value})


RECORDED_BY_0_1 = {
    "hot_capacity": 100, "cold_capacity": 1000, "sleep_every": 20, "top_k": 3, "threshold": 0.5,
    "search": "both", "on_add": "merge", "merge_threshold": 0.9, "merge_guard": "wording",
    "hot_eviction": "unsupported_first", "clustering": "link", "clusters": 5, "min_support": 1,
    "proposal": "centroid", "reinforce": True, "fill": "all", "keep_hot": False,
    "utility": "informed", "information_weight": 1.0, "newcomer_rate": 1.0,
    "recompute_utility": True, "utility_window": 100, "utility_decay": 0.99, "half_life": 1000.0,
    "entropy": "evidence", "entropy_weight": 1.0, "spread_weight": 1.0, "contradiction": "learned",
    "victim": "free_energy", "schedule": "scaled", "temperature": 0.05, "final_temperature": 0.01,
    "annealing": 0.9, "summary_tokens": 50, "summary_temperature": 0.3, "seed": 0,
}  # fmt: skip
PAPER_OF_0_1 = RECORDED_BY_0_1 | {
    "cold_capacity": 20, "sleep_every": 100, "threshold": 0.7, "search": "cold",
    "on_add": "append", "merge_guard": "none", "hot_eviction": "fifo",
    "clustering": "kmeans", "min_support": 3, "proposal": "medoid", "reinforce": False,
    "fill": "supported", "keep_hot": True, "utility": "query_mean", "half_life": None,
    "newcomer_rate": None, "entropy": "cluster_variance", "contradiction": "never",
    "victim": "utility", "schedule": "constant", "temperature": 1.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("recorded", "config"),
    [
        (MemoryConfig().to_json(), MemoryConfig()),
        (MemoryConfig.paper().to_json(), MemoryConfig.paper()),
        (RECORDED_BY_0_1, MemoryConfig()),
        (PAPER_OF_0_1, MemoryConfig.paper()),
        ({"half_life": 50.0, "threshold": None, "cold_capacity": 7}, MemoryConfig(cold_capacity=7)),
        (RECORDED_BY_0_1 | {"utility": "observed", "entropy": "spectral"}, MemoryConfig()),
        (PAPER_OF_0_1 | {"entropy": "softmax"}, MemoryConfig.paper(entropy="embedding")),
    ],
)
def test_what_this_version_and_0_1_recorded_can_be_read(recorded, config):
    assert MemoryConfig.from_json(json.loads(json.dumps(recorded))) == config
