import math

import numpy as np
import pytest

from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.evidence import first_evidence, in_demand
from ecs_plugins.memory.information import distinct_words, information
from ecs_plugins.memory.types import ColdMemory
from ecs_plugins.memory.utility import utilities


def memory(text: str, *, asked: int = 0) -> ColdMemory:
    evidence = first_evidence(1, None)
    for step in range(asked):
        evidence = in_demand(evidence, 2 + step, math.inf)
    return ColdMemory("m", np.ones(2, dtype=np.float32), evidence, text)


def worth(*memories: ColdMemory, config: MemoryConfig | None = None) -> list[float]:
    chosen = config or MemoryConfig()
    return utilities(memories, config=chosen, step=9, queries=(), utility=None).tolist()


def test_words_count_once_whatever_their_case() -> None:
    assert distinct_words("Yes, yes! YES? The ferret.") == 3
    assert distinct_words("") == 0


def test_without_spaces_every_character_is_a_word() -> None:
    assert distinct_words("\u6211\u559c\u6b22\u732b\u3002") == 4


def test_a_text_without_words_tells_nothing() -> None:
    assert information("...") == 0.0


def test_of_equal_demand_the_text_that_says_more_is_worth_more() -> None:
    short, long = worth(memory("yes yes yes"), memory("the ferret ate my violin"))
    assert long - short == pytest.approx(math.log(6 / 2))


def test_of_equal_texts_the_one_in_demand_is_worth_more() -> None:
    idle, asked = worth(memory("my violin"), memory("my violin", asked=3))
    assert asked > idle


@pytest.mark.parametrize("change", [{"information_weight": 0.0}, {"utility": "observed"}])
def test_without_weight_only_demand_counts(change) -> None:
    config = MemoryConfig(**change)
    one, other = worth(memory("yes"), memory("the ferret ate my violin"), config=config)
    assert one == other


def test_without_texts_the_informed_utility_is_the_observed_one() -> None:
    memories = memory(""), memory("", asked=3)
    assert worth(*memories) == worth(*memories, config=MemoryConfig(utility="observed"))


def test_the_more_is_expected_of_newcomers_the_less_an_old_demand_protects() -> None:
    def lead(rate: float) -> float:
        config = MemoryConfig(newcomer_rate=rate, half_life=100.0)
        new = ColdMemory("n", np.ones(2, dtype=np.float32), first_evidence(499, None), "my violin")
        values = utilities(
            (memory("my violin", asked=3), new), config=config, step=500, queries=(), utility=None
        )
        return float(values[0] - values[1])

    assert lead(0.5) > lead(1.0) > lead(2.0)
