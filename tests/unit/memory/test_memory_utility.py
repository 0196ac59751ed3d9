import numpy as np
import pytest

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.memory import StoreConfig, answer_utility
from ecs_plugins.memory.admission import in_demand, with_outcome
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.prior import worth
from ecs_plugins.memory.types import ColdMemory, Evidence, QueryEvent
from ecs_plugins.memory.utility import (
    QUERY_WINDOW,
    entropies,
    mean_surprise,
    utilities,
)
from tests.unit.memory.factories import axis, cold


def memory(text: str, *, asked: int = 0) -> ColdMemory:
    evidence = Evidence(1, 1, 1)
    for step in range(asked):
        evidence = in_demand(evidence, 2 + step)
    return ColdMemory("m", np.ones(2, dtype=np.float32), evidence, text)


def utilities_of(*memories: ColdMemory) -> list[float]:
    config = MemoryConfig()
    return utilities(memories, config=config, step=9, queries=(), utility=None).tolist()


def test_of_equal_demand_the_utilities_differ_by_what_the_texts_are_worth() -> None:
    small_talk, fact = "Wow, how are you?", "I moved to Rome with my violin last May."
    less, more = utilities_of(memory(small_talk), memory(fact))
    assert more - less == pytest.approx(worth(fact) - worth(small_talk))
    assert more > less


def test_what_is_asked_for_again_and_again_outranks_what_only_looks_like_it() -> None:
    idle, asked = utilities_of(
        memory("I moved to Rome with my violin last May."),
        memory("Wow, how are you?", asked=60),
    )
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
    helped = failed = Evidence(0, 0, 0)
    for step in range(4):
        helped, failed = with_outcome(helped, True, step), with_outcome(failed, False, step)
    low, unknown, high = mean_surprise([helped, Evidence(0, 0, 0), failed])
    assert low < unknown < high


def test_a_memory_of_scattered_observations_has_more_entropy() -> None:
    together, apart = (
        cold(n, axis(0), support=4, resultant=r) for n, r in (("a", 4.0), ("b", 2.0))
    )
    assert np.diff(entropies([together, apart], MemoryConfig())) == pytest.approx([0.5])


def test_the_papers_entropy_is_that_of_the_cluster_as_it_was_proposed() -> None:
    assert entropies([cold("a", axis(0), entropy=0.3)], MemoryConfig.paper()).tolist() == [0.3]


# Measured by a language model

VECTOR = np.ones(1, dtype=np.float32)


def memories(*texts: str) -> list[ColdMemory]:
    return [ColdMemory(f"m{i}", VECTOR, Evidence(1, 1, 1), text) for i, text in enumerate(texts)]


def asked(text: str, answer: str | None, step: int = 1) -> QueryEvent:
    return QueryEvent(step, VECTOR, text, answer)


def test_a_memory_is_worth_the_nats_that_it_adds_to_the_answer_given():
    utility = answer_utility(FakeLanguageModel())
    # Each of the two words of the answer costs 3 nats unseen and 1 nat seen.
    values = utility(
        memories("the harbour", "blue harbour", "cats"), [asked("?", "blue harbour")], 1
    )
    assert values == pytest.approx([2.0, 4.0, 0.0])


def test_recent_answers_weigh_more():
    utility = answer_utility(FakeLanguageModel(), decay=0.5)
    queries = [asked("?", "mill", step=1), asked("?", "boat", step=2)]
    mill, boat = utility(memories("mill", "boat"), queries, 2)
    assert (mill, boat) == pytest.approx((2.0 / 3, 4.0 / 3))


def test_queries_without_an_answer_tell_nothing():
    utility = answer_utility(FakeLanguageModel())
    assert utility(memories("a", "b"), [asked("?", None), asked("", "b")], 1) == [0.0, 0.0]


def test_the_value_per_token_does_not_grow_with_the_answer():
    utility = answer_utility(FakeLanguageModel(), per_token=True)
    assert utility(memories("a b"), [asked("?", "a b")], 1) == pytest.approx([2.0])


def test_what_does_not_fit_into_the_window_counts_nothing():
    model = FakeLanguageModel(max_tokens=20)
    utility = answer_utility(model)
    assert utility(memories("boat " * 50, "boat"), [asked("?", "boat")], 1) == [0.0, 2.0]


def test_memory_text_is_untrusted():
    model = FakeLanguageModel()
    answer_utility(model)(memories("<|im_end|>"), [asked("q<|im_end|>", "a")], 1)
    (request,) = model.requests
    segments = [*request.candidates[1], *request.continuations[0]]
    assert all(not s.trusted for s in segments if "<|im_end|>" in s.text)


@pytest.mark.parametrize("options", [{"max_queries": 0}, {"decay": 0.0}, {"decay": 1.5}])
def test_settings_out_of_range_are_refused(options):
    with pytest.raises(InvalidInputError):
        answer_utility(FakeLanguageModel(), **options)


def test_with_it_the_memory_keeps_what_helped_to_answer(open_memory):
    memory = open_memory(
        store=StoreConfig(sleep="manual"),
        config=MemoryConfig(cold_capacity=1, temperature=0.0),
        utility=answer_utility(FakeLanguageModel()),
    )
    memory.observe("what colour is the boat?", "the boat is blue")
    memory.add(["cats chase birds"] * 2)
    memory.sleep()
    memory.add(["the boat is blue"] * 2)
    memory.sleep()
    memory.add(["snow falls in winter"] * 2)
    memory.sleep()
    assert [m.text for m in memory.memories()] == ["the boat is blue"]
