"""What a memory records of the questions that it was asked."""

import inspect

import pytest

from ecs_plugins.memory import EntropicMemory, MemoryConfig, StoreConfig
from ecs_plugins.memory.admin import MemoryAdmin

QUESTION = "where is the blue boat?"


def events(memory, namespace=("default",)):
    with memory._store.reading(namespace) as (connection, space):
        rows = connection.execute(
            "SELECT text, answer, json_array_length(recalled) FROM queries WHERE namespace = ?"
            " ORDER BY id",
            (space.id,),
        )
        return rows.fetchall()


@pytest.fixture
def memory(open_memory):
    filled = open_memory(
        store=StoreConfig(sleep="manual"), config=MemoryConfig(threshold=0.1, merge_threshold=1.0)
    )
    filled.add(["the boat is blue", "a cat sleeps", "the blue boat is in the harbour"])
    return filled


def ask(memory, question=QUESTION, **options):
    return [item.id for item in memory.recall(question, **options)]


@pytest.mark.parametrize("used", [1, 9])
def test_a_recall_and_its_observation_are_one_query(memory, used):
    recalled = ask(memory)
    memory.observe(QUESTION, "in the harbour", recalled[:used])
    assert events(memory) == [(QUESTION, "in the harbour", len(recalled))]


@pytest.mark.parametrize("recalls", [1, 2])
def test_every_answer_to_a_question_stays(memory, recalls):
    used = ask(memory)
    memory.observe(QUESTION, "in the harbour", used)
    memory.observe(QUESTION, "at sea", ask(memory) if recalls == 2 else used)
    assert [event[1] for event in events(memory)] == ["in the harbour", "at sea"]


def test_an_observation_may_name_what_other_namespaces_held(memory):
    memory.add("all boats are in the harbour", namespace=("team",))
    used = ask(memory, also=[("team",)])
    memory.observe(QUESTION, "in the harbour", used)
    assert [event[:2] for event in events(memory)] == [(QUESTION, "in the harbour")]


def test_only_what_a_recall_returns_is_hit(memory):
    memory.add("where is the blue boat", namespace=("team",))
    (best,) = memory.recall(QUESTION, also=[("team",)], k=1)
    assert best.namespace == ("team",)
    again = memory.recall(QUESTION, also=[("team",)], k=4, threshold=-1, record=False)
    memory._store.flush(("default",))
    memory._store.flush(("team",))
    with memory._store.database.read() as connection:
        hits = dict(
            connection.execute(
                "SELECT id, coalesce(json_extract(evidence, '$.hits'), 0) FROM tiers"
            )
        )
    assert {item.id: hits.get(item.id, 0) for item in again} == {
        item.id: int(item.id == best.id) for item in again
    }


def test_an_observation_of_another_question_leaves_the_recall_alone(memory):
    ask(memory)
    memory.observe("who sleeps?", "a cat")
    assert [event[:2] for event in events(memory)] == [("", None), ("who sleeps?", "a cat")]


def test_an_observation_of_what_was_not_recalled_is_a_query_of_its_own(memory):
    (cat,) = ask(memory, "a cat sleeps", k=1, record=False)
    ask(memory, k=1)
    memory.observe(QUESTION, "on the sofa", [cat])
    assert len(events(memory)) == 2


@pytest.mark.parametrize("kind", [EntropicMemory, MemoryAdmin])
def test_every_method_has_an_async_form(kind):
    methods = {
        name
        for name, value in vars(kind).items()
        if not name.startswith("_") and inspect.isfunction(value)
    }
    forms = {name for name in methods if inspect.iscoroutinefunction(vars(kind)[name])}
    lacking = {
        name
        for name in methods - forms
        if not {f"a{name}", f"a{name.rstrip('_')}", f"a{name}_"} & forms  # `await` is taken
    }
    assert lacking == set()


def test_a_recall_that_another_process_wrote_is_completed(memory, open_memory):
    used = ask(memory)
    memory.close()
    later = open_memory(store=StoreConfig(sleep="manual"))
    later.observe(QUESTION, "in the harbour", used)
    assert len(events(later)) == 1
