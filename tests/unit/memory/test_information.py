import math

import numpy as np
import pytest

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.evidence import first_evidence, in_demand
from ecs_plugins.memory.information import distinct_words, informed_utility
from ecs_plugins.memory.types import ColdMemory


def memory(text: str, *, asked: int = 0) -> ColdMemory:
    evidence = first_evidence(1, None)
    for step in range(asked):
        evidence = in_demand(evidence, 2 + step, math.inf)
    return ColdMemory("m", np.ones(2, dtype=np.float32), evidence, text)


def test_words_count_once_whatever_their_case() -> None:
    assert distinct_words("Yes, yes! YES? The ferret.") == 3
    assert distinct_words("") == 0


def test_of_equal_demand_the_text_that_says_more_is_worth_more() -> None:
    utility = informed_utility(MemoryConfig())
    short, long = utility([memory("yes yes yes"), memory("the ferret ate my violin")], [], 3)
    assert long - short == pytest.approx(math.log(6 / 2))


def test_of_equal_texts_the_one_in_demand_is_worth_more() -> None:
    utility = informed_utility(MemoryConfig())
    idle, asked = utility([memory("my violin"), memory("my violin", asked=3)], [], 9)
    assert asked > idle


def test_without_weight_only_demand_counts() -> None:
    utility = informed_utility(MemoryConfig(), weight=0.0)
    one, other = utility([memory("yes"), memory("the ferret ate my violin")], [], 3)
    assert one == other


@pytest.mark.parametrize("weight", [-1.0, float("nan")])
def test_a_weight_below_zero_is_refused(weight) -> None:
    with pytest.raises(InvalidInputError, match="weight"):
        informed_utility(MemoryConfig(), weight=weight)
