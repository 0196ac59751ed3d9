"""A batch does what its messages do one after the other."""

import json

import numpy as np
import pytest

from ecs_plugins.memory import IndexConfig, MemoryConfig, StoreConfig
from ecs_plugins.memory.store.index import VectorIndex
from ecs_plugins.memory.store.messages import new_ids
from ecs_plugins.memory.store.nearest import Nearest
from ecs_plugins.memory.store.rows import dump_evidence, evidence_of
from ecs_plugins.memory.store.screening import screened
from ecs_plugins.memory.store.vectors import pack, pack_all
from ecs_plugins.memory.types import Evidence
from tests.unit.memory.streams import rows_of, stream


def both(open_memory, tmp_path, config, batch, before=(), **options):
    """The same messages added together and one by one, after the same past; both memories."""
    filled = []
    for together in (True, False):
        memory = open_memory(
            path=tmp_path / f"{together}.db",
            config=config,
            store=StoreConfig(sleep="manual", **options),
        )
        for message in before:
            memory.add(message)
        if before:
            memory.sleep()
            for message in before[: len(before) // 2]:
                memory.add(message)
        if together:
            memory.add(batch)
        else:
            for message in batch:
                memory.add(message)
        filled.append(memory)
    return filled


@pytest.mark.parametrize("rule", ["default", "paper"])
@pytest.mark.parametrize("seed", range(4))
def test_a_batch_equals_its_messages_one_by_one(open_memory, tmp_path, rule, seed):
    config = MemoryConfig(rule=rule, merge_threshold=0.8, hot_capacity=500)
    together, one_by_one = both(
        open_memory, tmp_path, config, stream(seed, 150), before=stream(seed + 100, 40)
    )
    assert rows_of(together) == rows_of(one_by_one)
    assert together.admin.verify().ok


def test_the_batches_of_the_test_repeat_hot_items_memories_and_one_another(open_memory, tmp_path):
    config = MemoryConfig(merge_threshold=0.8, hot_capacity=500)
    memory, _ = both(open_memory, tmp_path, config, stream(0, 150), before=stream(100, 40))
    with memory._store.database.read() as connection:
        count = lambda sql: connection.execute(sql).fetchone()[0]  # noqa: E731
        assert count("SELECT max(support) FROM hot_items WHERE live = 1") > 3
        assert count("SELECT max(version) FROM memories WHERE live = 1") > 3
        assert count("SELECT count(*) FROM hot_items WHERE live = 1 AND vector IS NULL") > 0
        assert count("SELECT count(*) FROM hot_items WHERE evidence LIKE '%negation%'") > 0


def test_the_next_sleep_phase_decides_the_same(open_memory, tmp_path):
    config = MemoryConfig(merge_threshold=0.8, hot_capacity=500)
    memories = both(open_memory, tmp_path, config, stream(7, 150), before=stream(107, 40))
    for memory in memories:
        memory.sleep()
    kinds = [
        [(d.decision.kind, d.decision.support, d.decision.probability) for d in m.decisions()]
        for m in memories
    ]
    assert kinds[0] == kinds[1]
    assert kinds[0]


def test_a_batch_is_indexed_like_its_messages_one_by_one(open_memory, tmp_path):
    memories = both(
        open_memory,
        tmp_path,
        MemoryConfig(merge_threshold=1.0, hot_capacity=1000),
        stream(3, 120),
        before=stream(4, 60),
        index=IndexConfig(exact_limit=20, links=8),
    )
    found = []
    for memory in memories:
        memory.admin.compact()
        memory.add(stream(5, 30))
        found.append([(i.text, i.score) for i in memory.recall("the boat is blue", k=5)])
    assert found[0] == found[1]


def test_a_batch_that_fails_leaves_nothing(open_memory):
    memory = open_memory(config=MemoryConfig(cold_capacity=2), store=StoreConfig(sleep="manual"))
    with pytest.raises(ValueError, match="pinned"):
        memory.add(["one thing", "another thing", "a third thing"], pinned=True)
    assert memory.messages() == []


def test_ids_of_a_batch_ascend_and_differ():
    ids = new_ids(500)
    assert ids == sorted(set(ids))


def brute_force(index, written, vectors, at, floor):
    """The nearest of everything that is there, computed without blocks."""
    rows = [*index, *written]
    scores = np.array([vectors[at] @ vector for vector in [*index.values(), *written.values()]])
    if not len(scores) or scores.max() < floor:
        return None
    return min(row for row, score in zip(rows, scores, strict=True) if score >= scores.max() - 1e-6)


@pytest.mark.parametrize("size", [16, 160], ids=["compared", "screened"])
@pytest.mark.parametrize("linked", [False, True], ids=["scanned", "graph"])
def test_the_nearest_row_is_that_of_a_search_of_everything(linked, size):
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(12, size))
    draw = lambda n: centres[rng.integers(12, size=n)] + 0.2 * rng.normal(size=(n, size))  # noqa: E731
    unit = lambda m: np.float32(m / np.linalg.norm(m, axis=1, keepdims=True))  # noqa: E731
    stored, vectors = unit(draw(60)), unit(draw(200))
    index = VectorIndex(size, IndexConfig(exact_limit=20 if linked else 1000, ef_search=200))
    index.add(np.arange(60), stored)
    index.maintain()
    assert bool(index.linked) is linked
    left, written = dict(enumerate(stored)), {}
    nearest = Nearest(index, screened(vectors), 0.9)
    for at, vector in enumerate(vectors):
        row = nearest.find(at)
        assert row == brute_force(left, written, vectors, at, 0.9)
        if row is None or at % 7 == 0:  # a near message may found an item, too
            nearest.founded(1000 + at, at)
        else:
            old = left.pop(row) if row in left else written.pop(row)
            vector = unit((old + vector)[None])[0]
            nearest.changed(row, 1000 + at, vector, at)
        written[1000 + at] = vector


@pytest.mark.parametrize(
    "evidence",
    [
        Evidence(created=3, updated=3, last_seen=3),
        Evidence(created=-1, updated=-1, last_seen=-1),
        Evidence(created=1, updated=9, last_seen=4, support=3, demand=0.5, hits=2, resultant=2.5),
        Evidence(
            created=0, updated=0, last_seen=0, agreements=1.0, contradictions=0.25,
        ),
    ],
)  # fmt: skip
def test_stored_evidence_is_read_as_it_was_written(evidence):
    stored = dump_evidence(evidence)
    assert evidence_of(stored) == evidence
    assert len(stored) <= len(json.dumps(evidence.to_json()))


def test_evidence_of_an_older_file_is_read_whole():
    evidence = Evidence(created=3, updated=3, last_seen=3)
    assert evidence_of(json.dumps(evidence.to_json())) == evidence


@pytest.mark.parametrize("shape", [(0, 3), (1, 4), (6, 5)])
def test_vectors_are_packed_together_as_one_by_one(shape):
    vectors = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    assert pack_all(vectors) == [pack(vector) for vector in vectors]
    assert pack_all(vectors[:, ::-1]) == [pack(vector) for vector in vectors[:, ::-1]]
