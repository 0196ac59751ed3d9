"""Parts of the store by themselves, where a whole memory would hide a fault in them."""

from types import SimpleNamespace

import numpy as np
import pytest

from ecs_plugins.errors import InvalidInputError, StorageError
from ecs_plugins.memory import MemoryConfig
from ecs_plugins.memory.relevance import DEFAULT, read
from ecs_plugins.memory.store import sleeps, tiers
from ecs_plugins.memory.store.engines import restore
from ecs_plugins.memory.store.erasing import ERASED, without
from ecs_plugins.memory.store.inspection import _is_damaged
from ecs_plugins.memory.store.items import NewItem
from ecs_plugins.memory.store.seam import Candidates, JudgedRows, judge
from ecs_plugins.memory.store.values import pack, packed, packed_half, unpack
from ecs_plugins.ranking.embedder import FakeEmbedder
from ecs_plugins.storage.sqlite import Database
from tests.unit.values import changeable, unslotted


def test_shared_objects_are_immutable():
    allowed = {"ErasureReceipt", "MessageBatch", "RowIndex", "Space", "_Turn"}
    assert changeable("memory") == allowed


def test_no_attribute_is_taken_that_nobody_declared():
    assert unslotted("memory") == set()


@pytest.mark.parametrize(
    ("dimension", "is_damaged"), [(0, False), (4, False), (3, True), (5, True)]
)
def test_a_vector_of_another_length_is_damaged_whatever_its_checksum(dimension, is_damaged):
    content, checksum = packed(np.ones(4))
    row = {"vector": content, "vector_crc": checksum}
    assert _is_damaged(row, "vector", (), dimension) == is_damaged


def test_half_the_precision_takes_half_the_bytes_and_keeps_the_direction():
    vector = FakeEmbedder(384).embed_query("the old mill burned down")
    content, checksum = packed_half(vector)
    assert 2 * len(content) == len(pack(vector))
    read = unpack(content, checksum, 384, "message m")
    assert read @ vector == pytest.approx(1.0, abs=1e-6)
    assert np.linalg.norm(read) == pytest.approx(1.0, abs=1e-6)
    with pytest.raises(StorageError, match="checksum"):
        unpack(content, checksum + 1, 384, "message m")


# What is recalled


def test_the_newest_of_equals_comes_first():
    scores = np.array([0.5, 0.9, 0.5, 0.1])
    judged = JudgedRows(np.arange(4), scores, scores, scores, scores, 0.0, 0.0)
    assert judged.at_least(0.5).rows.tolist() == [1, 2, 0]


def test_the_bound_of_candidates_is_a_weighted_mean():
    candidates = Candidates(np.array([1]), np.ones(1), np.array([1.0]), (0.4, 0.2))
    opened = SimpleNamespace(candidates=lambda *_, **__: candidates)
    question = read("which boat")
    judged = judge(opened, question, np.ones(1), DEFAULT, count=1, allowed=None, items=5)
    assert judged.fits == pytest.approx([1.0])
    assert judged.rest == pytest.approx(0.3)


def test_only_newly_pinned_items_need_capacity(open_memory):
    memory = open_memory(config=MemoryConfig(cold_capacity=2))
    memory.add(["the boat is blue"] * 2)
    memory.sleep()
    (plain,) = memory.memories()
    memory.add("cats chase birds", pinned=True)
    memory.add("snow falls in winter", pinned=True)
    (held,) = [each for each in memory.memories() if each.text == "cats chase birds"]
    memory.update(held.id, pinned=True)
    memory.update(plain.id, pinned=False)
    with pytest.raises(InvalidInputError, match="pin"):
        memory.update(plain.id, pinned=True)


# An index in the process


def test_an_index_that_followed_a_commit_is_not_read_anew(open_memory):
    memory = open_memory()
    memory.add("the boat is blue")
    memory.recall("a boat")
    memory.add("the mill is red")
    store = memory._store
    with store.reading(("default",)) as (_, read):
        opened = store.indexes._open.find(read.id)
        assert opened.revision == read.revision


def test_no_other_row_is_nearer_than_the_last_candidate(open_memory):
    memory = open_memory()
    memory.add(["the boat is blue", "the mill is red", "cats chase birds", "snow falls"])
    store = memory._store
    query = "a blue boat at the mill"
    vector = store.embedder.embed_query(query)
    with store.reading(("default",)) as (connection, read):
        opened = store.indexes.current(connection, read)
        candidates = opened.candidates(query, vector, 3)
    nearest = np.sort(candidates.cosines)[::-1]
    assert candidates.rest[0] == pytest.approx(nearest[2])


def test_an_erased_item_is_named_nowhere_in_a_decision_and_the_others_are():
    record = {"candidate_id": "a", "target_id": "b", "members": ["a", "c"]}
    told = without(record, {"a"})
    assert told == {"candidate_id": ERASED, "target_id": "b", "members": [ERASED, "c"]}


def test_a_delete_of_an_item_is_finished_by_whoever_opens_the_file_next(open_memory, monkeypatch):
    memory = open_memory()
    noted = []
    monkeypatch.setattr(memory._store, "note_scrub", noted.append)
    monkeypatch.setattr(memory._store, "scrub", lambda: None)
    item = NewItem(("notes",), "k", {"text": "the boat is blue"}, {"text": "the boat is blue"})
    memory.items.write([item])
    assert len(noted) == 0
    memory.items.write(deletes=[(("notes",), "k")])
    assert len(noted) == 1


def test_a_damaged_backup_is_refused_with_its_fault(open_memory, db, monkeypatch):
    open_memory().close()
    monkeypatch.setattr(Database, "integrity", lambda *_: ["row 3 is missing from an index"])
    with pytest.raises(StorageError, match="damaged: row 3 is missing"):
        restore(db, db.with_name("restored.db"))


# An index on a server, without one


def seen_of_both_tiers(memory):
    """Both tiers as a sleep phase sees them, and as they are stored."""
    store = memory._store
    with store.reading(("default",)) as (connection, space):
        view = sleeps.view(store, connection, space)
        stored = [*tiers.tier_rows(connection, space.id, "hot", store.dimension)]
        cold = tiers.tier_rows(connection, space.id, "cold", store.dimension)
    return (list(view.hot), view.cold), (stored, {row.row: row.item for row in cold})


def test_a_sleep_phase_sees_changes_of_another_opening(open_memory):
    config = MemoryConfig(cold_capacity=3)
    first = open_memory(config=config)
    second = open_memory(config=config)
    names = first.add(["the boat is blue", "the mill is red", "cats chase birds"])
    first.sleep()
    first.add(["snow falls", "a ferry sails"])
    kept = {each.text: each.id for each in first.memories()}
    for change in (
        lambda: second.recall("the boat is blue"),
        lambda: second.update(kept["the mill is red"], pinned=True),
        lambda: second.delete(names[2]),
        lambda: second.add(["snow falls", "the boat is blue"]),
        lambda: second.sleep(),
    ):
        change()
        second._store.flush(("default",))
        seen, stored = seen_of_both_tiers(first)
        assert seen == stored
