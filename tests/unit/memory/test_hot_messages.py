"""Hot items that are messages in the log, and when they get a row of their own."""

import numpy as np
import pytest

from ecs_plugins.memory import MemoryConfig, StoreConfig
from ecs_plugins.memory.store import spaces
from ecs_plugins.memory.store.open_indexes import OpenIndexes
from ecs_plugins.ranking.embedder import FakeEmbedder
from tests.unit.memory.streams import stream

MANUAL = StoreConfig(sleep="manual")


@pytest.fixture
def memory(open_memory):
    return open_memory(store=MANUAL)


def steps(memory, sql):
    with memory._store.database.read() as connection:
        return [row[0] for row in connection.execute(sql)]


def by_themselves(memory):
    """The steps of the messages that are hot items by being in the log."""
    return steps(
        memory, "SELECT step FROM hot_messages JOIN messages ON seq = message ORDER BY step"
    )


def written(memory):
    """The first steps of the live hot items that have a row."""
    return steps(memory, "SELECT first FROM hot_items WHERE live = 1 ORDER BY first")


def test_a_message_is_a_hot_item_without_a_row(memory):
    memory.add(["the ferry leaves at nine", "gulls eat chips"])
    assert by_themselves(memory) == [1, 2]
    assert written(memory) == []
    assert [item.text for item in memory.recall("gulls eat chips")] == ["gulls eat chips"]


def test_a_repeat_and_a_pin_are_no_items_by_themselves(memory):
    memory.add(["gulls eat chips", "gulls eat chips"])
    memory.add("a pinned fact about puffins", pinned=True)
    memory.add("puffins dive for sand eels")
    assert by_themselves(memory) == [4]
    assert written(memory) == [1]
    assert memory.admin.verify().ok


def test_a_hit_is_written_under_the_same_row_number(memory):
    memory.add(["the ferry leaves at nine", "gulls eat chips"])
    before = steps(memory, "SELECT message FROM hot_messages ORDER BY message")
    memory.recall("gulls eat chips")
    memory.add("puffins dive for sand eels")  # writes the hit
    assert by_themselves(memory) == [1, 3]
    assert steps(memory, "SELECT row FROM hot_items WHERE live = 1") == before[1:]
    assert memory.admin.verify().ok


def test_a_sleep_phase_leaves_no_message_a_hot_item_by_itself(open_memory):
    memory = open_memory(store=MANUAL, config=MemoryConfig(min_support=2))
    memory.add(["gulls eat chips", "gulls eat chips", "puffins dive for sand eels"])
    before = {item.text for item in memory.recall("eat", threshold=-1, k=9, record=False)}
    report = memory.sleep()
    assert by_themselves(memory) == []
    assert written(memory) == [3]
    memory.add("crabs walk sideways")
    assert by_themselves(memory) == [4]
    memory.undo(report.id)
    assert {item.text for item in memory.recall("eat", threshold=-1, k=9, record=False)} == {
        *before,
        "crabs walk sideways",
    }
    assert memory.admin.verify().ok


def test_what_leaves_a_full_tier_is_no_hot_item_any_more(open_memory):
    memory = open_memory(store=MANUAL, config=MemoryConfig(hot_capacity=3))
    for number in range(6):
        memory.add(f"subject{number} does thing{number}")
    assert len(by_themselves(memory)) == 3
    assert memory.admin.verify().ok


def test_a_message_that_is_changed_becomes_another_row(memory):
    (name,) = memory.add("the ferry leaves at nine")
    before = steps(memory, "SELECT message FROM hot_messages")
    memory.update(name, text="the ferry leaves at ten")
    assert by_themselves(memory) == []
    assert steps(memory, "SELECT row FROM hot_items WHERE live = 1") > before
    memory.add("gulls eat chips")
    assert memory.admin.verify().ok
    assert memory.recall("the ferry leaves at ten")[0].id == name


def test_of_an_imported_log_only_the_hot_tier_is_hot(open_memory, tmp_path):
    memory = open_memory(store=MANUAL)
    memory.add(["gulls eat chips", "gulls eat chips", "puffins dive for sand eels"])
    memory.sleep()
    memory.add("crabs walk sideways")
    memory.admin.export(tmp_path / "all.jsonl")
    other = open_memory(path=tmp_path / "other.db", store=MANUAL)
    other.admin.import_(tmp_path / "all.jsonl")
    other.add("seals sleep on the sand")
    assert by_themselves(other) == [5]
    assert other.admin.stats().namespaces[0].hot == 2
    assert other.admin.verify().ok


@pytest.mark.parametrize("seed", range(3))
def test_an_index_that_follows_holds_what_one_that_reads_does(open_memory, seed):
    config = MemoryConfig(merge_threshold=0.8, hot_capacity=60, cold_capacity=30)
    embedder = FakeEmbedder(160)
    first, second = (open_memory(config=config, store=MANUAL, embedder=embedder) for _ in "12")
    said = stream(seed, 120)
    for start in range(0, 120, 12):
        first.add(said[start : start + 5])
        first.add(said[start + 5])
        second.add(said[start + 6 : start + 12])  # as another process would
        if start == 48:
            second.sleep()
        assert_current(first)
        assert_current(second)


def assert_current(memory):
    core = memory._store
    with core.database.read() as connection:
        (space,) = spaces.listed(connection)
        fresh = OpenIndexes(core.database, core.dimension, core.store.index)
        for tier in ("hot", "cold"):
            known, read = (each.current(connection, space, tier) for each in (core.indexes, fresh))
            entries = read.entries()
            assert sorted(known.entries()) == sorted(entries)
            for query in np.eye(core.dimension, dtype=np.float32)[:4]:
                near = [dict(zip(*each.search(query, 500), strict=True)) for each in (known, read)]
                assert near[0] == pytest.approx(near[1], abs=1e-6)
