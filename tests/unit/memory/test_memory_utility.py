import math

import numpy as np
import pytest

from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.evidence import first_evidence, in_demand, with_outcome
from ecs_plugins.memory.types import ColdMemory, QueryEvent
from ecs_plugins.memory.utility import (
    QUERY_WINDOW,
    distinct_words,
    entropies,
    mean_surprise,
    utilities,
)
from tests.unit.memory.factories import axis, cold


def memory(text: str, *, asked: int = 0) -> ColdMemory:
    evidence = first_evidence(1)
    for step in range(asked):
        evidence = in_demand(evidence, 2 + step)
    return ColdMemory("m", np.ones(2, dtype=np.float32), evidence, text)


def worth(*memories: ColdMemory) -> list[float]:
    config = MemoryConfig()
    return utilities(memories, config=config, step=9, queries=(), utility=None).tolist()


def test_without_spaces_every_character_is_a_word() -> None:
    assert distinct_words("\u6211\u559c\u6b22\u732b\u3002") == 4


def test_of_equal_demand_the_text_that_says_more_is_worth_more() -> None:
    short, long = worth(memory("yes yes yes"), memory("the ferret ate my violin"))
    assert long - short == pytest.approx(math.log(6 / 2))


def test_of_equal_texts_the_one_in_demand_is_worth_more() -> None:
    idle, asked = worth(memory("my violin"), memory("my violin", asked=3))
    assert asked > idle


def test_the_papers_utility_looks_at_the_recent_queries_only() -> None:
    old, new = QueryEvent(0, axis(0)), QueryEvent(9, axis(1))
    config = MemoryConfig.paper()
    near_old, near_new = utilities(
        [cold("a", axis(0)), cold("b", axis(1))],
        config=config,
        step=9,
        queries=[old] + [new] * QUERY_WINDOW,
        utility=None,
    )
    assert (near_old, near_new) == (0.0, 1.0)


def test_failures_surprise_more_than_successes_and_a_short_history_is_like_the_others() -> None:
    helped = failed = first_evidence(0)
    for step in range(4):
        helped, failed = with_outcome(helped, True, step), with_outcome(failed, False, step)
    low, unknown, high = mean_surprise([helped, first_evidence(0), failed])
    assert low < unknown < high


def test_a_memory_of_scattered_observations_has_more_entropy() -> None:
    together, apart = (
        cold(n, axis(0), support=4, resultant=r) for n, r in (("a", 4.0), ("b", 2.0))
    )
    assert np.diff(entropies([together, apart], MemoryConfig())) == pytest.approx([0.5])


def test_the_papers_entropy_is_that_of_the_cluster_as_it_was_proposed() -> None:
    assert entropies([cold("a", axis(0), entropy=0.3)], MemoryConfig.paper()).tolist() == [0.3]
