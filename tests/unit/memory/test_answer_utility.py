import numpy as np
import pytest

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.memory import MemoryConfig, StoreConfig, answer_utility
from ecs_plugins.memory.evidence import first_evidence
from ecs_plugins.memory.types import ColdMemory, QueryEvent

VECTOR = np.ones(1, dtype=np.float32)


def memories(*texts: str) -> list[ColdMemory]:
    return [ColdMemory(f"m{i}", VECTOR, first_evidence(1), text) for i, text in enumerate(texts)]


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
