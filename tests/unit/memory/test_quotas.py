"""A namespace holds as many messages and bytes as its quota has, and no more."""

import pytest

from ecs_plugins.errors import QuotaError
from ecs_plugins.memory import StoreConfig
from ecs_plugins.memory.store import messages as log

BOTH_ENGINES = True


def open_with(open_memory, **quota):
    return open_memory(store=StoreConfig(sleep="manual", **quota))


def used(memory):
    (stats,) = memory.admin.stats().namespaces
    return stats.messages, stats.bytes


def test_a_batch_for_which_there_is_no_room_is_refused_before_it_is_embedded(open_memory):
    memory = open_with(open_memory, max_messages=3)
    memory.add(["one thing", "another thing"])
    memory._store.embed = None
    with pytest.raises(QuotaError, match="holds 2 messages and may hold 3, got 2 more"):
        memory.add(["a third", "a fourth"])
    assert len(memory.messages()) == 2


def test_another_namespace_has_room_and_so_has_one_of_which_something_was_erased(open_memory):
    memory = open_with(open_memory, max_messages=1)
    (name,) = memory.add("one thing")
    memory.add("one thing", namespace=("other",))
    memory.delete(name)
    memory.add("another thing")
    with pytest.raises(QuotaError):
        memory.add("a third thing")


def test_a_quota_filled_meanwhile_is_noticed_before_writing(open_memory):
    memory = open_with(open_memory, max_messages=1)
    embed = memory._store.embed

    def overtaken(texts):
        memory._store.embed = embed
        memory.add("a rival's")
        return embed(texts)

    memory._store.embed = overtaken
    with pytest.raises(QuotaError):
        memory.add("one thing")
    assert [message.text for message in memory.messages()] == ["a rival's"]


def test_texts_and_metadata_count_in_bytes_and_an_update_may_shrink_but_not_grow(open_memory):
    memory = open_with(open_memory, max_bytes=40)
    (name,) = memory.add("größer", metadata={"a": "ü"})
    assert used(memory) == (1, log.size_of("größer", '{"a":"ü"}'))
    with pytest.raises(QuotaError, match="bytes"):
        memory.add("x" * 30)
    with pytest.raises(QuotaError, match="bytes"):
        memory.update(name, text="x" * 40)
    memory.update(name, text="klein")
    assert used(memory) == (1, log.size_of("klein", '{"a":"ü"}'))


@pytest.mark.parametrize("quota", [{"max_messages": 1}, {"max_bytes": 40}])
def test_a_memory_that_says_something_else_needs_room_for_it(open_memory, quota):
    memory = open_with(open_memory, **quota)
    memory.add("the boat is blue")
    memory.sleep()
    (kept,) = memory.memories()
    with pytest.raises(QuotaError):
        memory.update(kept.id, text="the boat is green, as it was in May")
    assert used(memory)[0] == 1
    (kept,) = memory.memories()
    assert kept.text == "the boat is blue"


def test_counts_equal_rows_and_verify_reports_differences(open_memory, tmp_path):
    memory = open_memory(store=StoreConfig(sleep="manual", log_retention=1e9))
    ids = memory.add(["one", "two", "three", "four"], metadata={"k": 1})
    memory.add("expired", at=1e9, ttl=1.0)
    memory.add("out of the log", at=1.0)
    memory.sleep()  # which purges
    memory.delete(ids[0])
    memory.update(ids[1], text="longer than before")
    memory.forget(("default",), filter={"k": 2})
    counted = used(memory)
    assert memory.admin.verify().ok
    memory.admin.export(tmp_path / "dump.jsonl")
    copy = open_memory(path=tmp_path / "copy.db")
    copy.admin.import_(tmp_path / "dump.jsonl")
    assert used(copy) == counted
    with copy._store.database.write() as connection:
        connection.execute("UPDATE namespaces SET bytes = bytes + 1")
    assert any("and counts" in problem for problem in copy.admin.verify().problems)
