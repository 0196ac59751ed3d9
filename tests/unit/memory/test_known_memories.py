"""A sleep phase that knows rows from before does what one that reads everything does."""

import sqlite3

import numpy as np
import pytest

from ecs_plugins.memory import EntropicMemory, MemoryConfig, StoreConfig
from ecs_plugins.memory.store import spaces
from ecs_plugins.memory.store.cold_memories import cold_rows, cold_tier
from ecs_plugins.memory.store.known_memories import KnownMemories
from ecs_plugins.ranking.embedder import FakeEmbedder
from tests.unit.memory.streams import rows_of, stream

CONFIG = MemoryConfig(merge_threshold=0.8, cold_capacity=15, hot_capacity=40)


def recall_and_observe(memory, other):
    found = memory.recall("the boat is blue", k=5)
    memory.observe("the boat is blue", "yes", [each.id for each in found], outcome="yes")


def pin_and_unpin(memory, other):
    for each in memory.memories()[:2]:
        memory.update(each.id, pinned=not each.pinned)


def delete_a_message(memory, other):
    memory.delete(memory.messages()[3].id)


def undo_the_last_sleep(memory, other):
    memory.undo(memory.sleeps()[0].id)


def sleep_elsewhere(memory, other):
    other.add(stream(77, 10))
    other.sleep()


def recall_elsewhere(memory, other):
    other.recall("snow falls in winter", k=5)
    other.sleep()


EVENTS = [
    recall_and_observe,
    pin_and_unpin,
    delete_a_message,
    undo_the_last_sleep,
    sleep_elsewhere,
    recall_elsewhere,
]


def decided(memory):
    return [
        (d.kind, d.support, d.candidate, d.victim, d.similarity, d.probability, d.draw)
        for d in (recorded.decision for recorded in memory.decisions())
    ]


@pytest.mark.parametrize("event", EVENTS)
def test_knowing_what_was_read_before_changes_nothing(open_memory, tmp_path, event):
    outcomes = []
    for knowing in (True, False):
        path = tmp_path / f"{knowing}.db"
        memory, other = (
            open_memory(path=path, config=CONFIG, store=StoreConfig(sleep="manual"))
            for _ in range(2)
        )
        for turn in range(6):
            memory.add(stream(turn, 25))
            memory.sleep()
            if turn in (2, 3):
                event(memory, other)
            if not knowing:
                memory._store.known = KnownMemories()
        assert memory.admin.verify().ok
        assert all(each.agrees for each in memory.replay())
        outcomes.append((rows_of(memory), decided(memory)))
    assert outcomes[0] == outcomes[1]
    assert len(outcomes[0][1]) > 30


@pytest.fixture
def slept(open_memory):
    memory = open_memory(config=CONFIG, store=StoreConfig(sleep="manual"))
    for turn in range(3):
        memory.add(stream(turn, 25))
        memory.sleep()
    return memory


def known_and_read(memory):
    core = memory._store
    with core.database.read() as connection:
        space = spaces.listed(connection)[0]
        known = core.known.tier(connection, space, core.dimension).rows
        return known, cold_tier(connection, space.id, core.dimension)


def test_what_is_known_is_what_a_reading_gives(slept):
    known, read = known_and_read(slept)
    assert known == read
    for one, other in zip(known, read, strict=True):
        np.testing.assert_array_equal(one.memory.vector, other.memory.vector, strict=True)


def test_what_a_sleep_phase_wrote_is_not_read_by_the_next_one(slept, monkeypatch):
    asked = []

    def cold_rows_asked(connection, rows, dimension):
        asked.extend(rows)
        return cold_rows(connection, rows, dimension)

    monkeypatch.setattr("ecs_plugins.memory.store.known_memories.cold_rows", cold_rows_asked)
    known, _ = known_and_read(slept)
    written = {row.row for row in known if row.born == slept.sleeps()[0].id}
    assert written
    assert not written & set(asked)


def texts_known(memory):
    return [
        entry.row.memory.text
        for known in memory._store.known._known.values()
        for entry in known.entries.values()
    ]


def test_what_was_erased_is_not_kept_in_memory(slept):
    name = slept.memories()[0]
    assert name.text in texts_known(slept)
    slept.delete(name.id, evidence=True)
    assert name.text not in texts_known(slept)


def test_what_another_process_erased_is_not_handed_out(slept, open_memory):
    other = open_memory(config=CONFIG, store=StoreConfig(sleep="manual"))
    erased = slept.memories()[0]
    other.delete(erased.id, evidence=True)
    known, read = known_and_read(slept)
    assert known == read
    assert erased.id not in [row.memory.id for row in known]
    assert erased.text not in texts_known(slept)


def test_a_row_of_a_rolled_back_sleep_phase_is_not_known(slept, monkeypatch):
    slept.add(stream(9, 25))

    def fail(*_):
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as broken:
        broken.setattr("ecs_plugins.memory.store.sleeping.asdict", fail)
        with pytest.raises(OSError, match="disk I/O error"):
            slept.sleep()
    known = [e.row.row for k in slept._store.known._known.values() for e in k.entries.values()]
    assert set(known) == {row.row for row in known_and_read(slept)[1]}
    slept.sleep()
    known, read = known_and_read(slept)
    assert known == read


def test_another_embedder_makes_everything_unknown(slept):
    slept.admin.reembed(FakeEmbedder(16))
    known, read = known_and_read(slept)
    assert known == read
    assert {row.memory.vector.shape for row in known} == {(16,)}
    slept.add(stream(5, 25))
    assert slept.sleep() is not None


def test_no_more_is_known_than_the_budget_allows(tmp_path):
    with EntropicMemory.open(
        tmp_path / "memory.db", embedder=FakeEmbedder(32), config=CONFIG,
        store=StoreConfig(sleep="manual"),
    ) as memory:  # fmt: skip
        for name in ("a", "b", "c"):
            memory.add(stream(1, 30), namespace=(name,))
            memory.sleep((name,))
            memory.sleep((name,))
        tier = memory._store.known.size // 3
        known = KnownMemories(budget=int(2.5 * tier))
        with memory._store.database.read() as connection:
            for space in spaces.listed(connection):
                rows = known.tier(connection, space, 32).rows
                assert rows == cold_tier(connection, space.id, 32)
                assert 0 < known.size <= int(2.5 * tier)
            assert list(known._known) == [space.id for space in spaces.listed(connection)[1:]]
            tiny = KnownMemories(budget=10)
            assert tiny.tier(connection, space, 32).rows == rows
            assert tiny.size == 0
