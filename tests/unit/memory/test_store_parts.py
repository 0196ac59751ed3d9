"""Parts of the store by themselves, where a whole memory would hide a fault in them."""

from contextlib import contextmanager
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest

from ecs_plugins.errors import InvalidInputError, StorageError
from ecs_plugins.memory import MemoryConfig
from ecs_plugins.memory.relevance import DEFAULT, read
from ecs_plugins.memory.store import sleeps, tiers
from ecs_plugins.memory.store.embedder_record import measured_scale
from ecs_plugins.memory.store.engines import restore
from ecs_plugins.memory.store.erasing import ERASED, without
from ecs_plugins.memory.store.index import search_width
from ecs_plugins.memory.store.index_postgres import ServerIndexes
from ecs_plugins.memory.store.inspection import _is_damaged
from ecs_plugins.memory.store.items import NewItem
from ecs_plugins.memory.store.namespaces import Space
from ecs_plugins.memory.store.seam import Candidates, JudgedRows, judge
from ecs_plugins.memory.store.values import pack, packed, packed_half, unpack
from ecs_plugins.ranking.embedder import FakeEmbedder
from ecs_plugins.storage.sqlite import Database
from tests.unit.memory.factories import DIMENSION
from tests.unit.values import changeable, unslotted

EYE = np.eye(DIMENSION, dtype=np.float32)


class Answering:
    """A connection that answers every statement alike, and notes them."""

    def __init__(self, rows=()):
        self.rows = rows
        self.statements = []
        self.written = []

    def executemany(self, _sql, values):
        self.written += values

    def execute(self, sql, _values=()):
        self.statements.append(sql)
        return self

    def __iter__(self):
        return iter(self.rows)

    def fetchall(self):
        return [*self.rows]

    def fetchone(self):
        return self.rows[0]


def space(items=0):
    return Space(
        id=1,
        namespace=("default",),
        epoch=0,
        step=0,
        since_sleep=0,
        cycle=0,
        revision=0,
        count={"hot": items, "cold": 0},
        messages=items,
        bytes=0,
    )


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


def test_the_scale_is_that_of_the_cosines_of_all_pairs():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(60, DIMENSION)).astype(np.float32)
    rows = [(f"m{at}", *packed(vector)) for at, vector in enumerate(vectors)]
    scale = measured_scale(Answering(rows), DIMENSION)
    cosines = [a @ b for a, b in combinations(vectors, 2)]
    assert scale.mean == pytest.approx(np.mean(cosines), rel=1e-4)
    assert scale.deviation == pytest.approx(np.std(cosines), rel=1e-4)


def test_the_bound_of_candidates_is_a_weighted_mean():
    rest = (0.4, 0.2)
    candidates = Candidates(np.array([1]), EYE[0, :1], np.array([1.0]), rest)
    opened = SimpleNamespace(candidates=lambda *_, **__: candidates)
    question = read("which boat")
    judged = judge(opened, question, EYE[0], DEFAULT, count=1, allowed=None, items=5)
    assert judged.fits == pytest.approx([1.0])
    assert judged.rest == pytest.approx(0.3)


def test_an_erased_item_is_named_nowhere_in_a_decision_and_the_others_are():
    record = {"candidate_id": "a", "target_id": "b", "members": ["a", "c"]}
    told = without(record, {"a"})
    assert told == {"candidate_id": ERASED, "target_id": "b", "members": [ERASED, "c"]}


def test_only_newly_pinned_items_need_capacity(open_memory):
    memory = open_memory(config=MemoryConfig(cold_capacity=2))
    memory.add(["the boat is blue"] * 2)
    memory.sleep()
    (plain,) = memory.memories()
    memory.add("cats chase birds", pinned=True)
    memory.add("snow falls in winter", pinned=True)
    (held,) = [each for each in memory.memories() if each.text == "cats chase birds"]
    memory.update(held.id, pinned=True)
    memory.update(plain.id, metadata={"k": 1})
    with pytest.raises(InvalidInputError, match="pin"):
        memory.update(plain.id, pinned=True)


# An index in the process


def test_a_small_graph_is_searched_as_widely_as_one_of_thousands_and_none_without_end():
    assert [search_width(linked) for linked in (0, 2844, 40_000, 10**7)] == [64, 64, 240, 512]


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


@pytest.mark.parametrize(("dimension", "is_made"), [(2000, True), (2001, False)])
def test_vectors_get_a_graph_as_far_as_the_server_indexes_them(dimension, is_made):
    connection = Answering()
    ServerIndexes(None, dimension)._make(connection)
    graphs = [sql for sql in connection.statements if "hnsw" in sql]
    assert bool(graphs) == is_made


@pytest.mark.parametrize(("items", "is_large"), [(1999, 0), (2000, 1)])
def test_rows_of_a_large_namespace_are_written_to_the_graph(items, is_large):
    connection = Answering([(1, *packed(EYE[0]), "m", "", "the boat")])
    ServerIndexes(None, DIMENSION).settle(connection, space(items))
    assert [entry[2] for entry in connection.written] == [is_large]


def test_a_namespace_is_cleared_without_the_others():
    connection = Answering([("entries_8",)])
    indexes = ServerIndexes(SimpleNamespace(schema="public"), DIMENSION)
    indexes.clear(connection, 7)
    assert [sql.split()[0] for sql in connection.statements] == ["DELETE"] * 3
    indexes.clear(connection)
    assert connection.statements[-2:] == ["DROP TABLE entries_8", "TRUNCATE words, postings"]


@pytest.mark.parametrize("read_only", [True, False])
def test_only_a_writer_creates_the_table_of_a_dimension(read_only):
    written = []

    class Server:
        def has_table(self, _connection, _table):
            return False

        @contextmanager
        def read(self):
            yield Answering()

        @contextmanager
        def write(self):
            connection = Answering()
            yield connection
            written.extend(connection.statements)

    server = Server()
    server.read_only = read_only
    ServerIndexes(server, DIMENSION).prepare()
    assert bool(written) != read_only


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
