"""Files that version 0.1.0 wrote open, answer as they did then, and can be worked with."""

import gzip
import json
from pathlib import Path

import pytest

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory import EntropicMemory, StoreConfig
from ecs_plugins.memory.store.schema import MEMORY_FILE
from ecs_plugins.ranking.embedder import FakeEmbedder
from tests.unit.memory.factories import FIXTURES

ANSWERS = json.loads((FIXTURES / "answers.json").read_text())


def unpacked(name, target):
    target.write_bytes(gzip.decompress((FIXTURES / f"{name}.gz").read_bytes()))
    return target


@pytest.fixture
def old(tmp_path):
    file = unpacked("memory.db", tmp_path / "memory.db")
    store = StoreConfig(sleep="manual")
    with EntropicMemory.open(file, embedder=FakeEmbedder(16), store=store) as memory:
        yield memory


def recalled(memory, space, question):
    found = memory.recall(question, namespace=space, threshold=-1.0, k=50, record=False)
    return {
        r.id: (r.text, round(r.similarity, 4), r.tier, dict(r.metadata), r.support,
               sorted(r.provenance), r.pinned)
        for r in found
    }  # fmt: skip


def test_an_old_file_answers_what_it_answered(old):
    for key, then in ANSWERS["spaces"].items():
        space = tuple(key.split(","))
        assert [
            [m.id, m.step, m.role, m.writer, m.text, m.metadata, m.created, m.expires]
            for m in old.messages(space)
        ] == then["messages"]
        assert [
            [m.id, m.version, m.text, m.metadata, m.support, sorted(m.provenance), m.pinned,
             m.expires]
            for m in old.memories(space)
        ] == [memory[:-1] for memory in then["memories"]]  # fmt: skip
        for question, answers in then["recalled"].items():
            assert recalled(old, space, question) == {
                name: tuple(answer) for name, *answer in answers
            }
        assert [
            [d.undone, d.erased, d.decision.kind, d.decision.candidate_id]
            for d in old.decisions(space)
        ] == [decision[1:] for decision in then["decisions"]]
        assert all(each.agrees for each in old.replay(space))
    assert [list(namespace) for namespace in old.namespaces()] == ANSWERS["namespaces"]
    with old.items.view() as view:
        items = [[list(i.namespace), i.key, i.value, i.message] for i in view.find(())]
    assert items == ANSWERS["items"]
    assert old.admin.verify().problems == ()


def test_an_old_file_tells_the_history_of_its_memories(tmp_path):
    file = unpacked("memory.db", tmp_path / "memory.db")
    with EntropicMemory.open(file, embedder=FakeEmbedder(16)) as memory:
        for name, versions in ANSWERS["spaces"]["default"]["histories"].items():
            assert [
                [m.version, m.live, m.text, sorted(m.provenance)] for m in memory.history(name)
            ] == versions


def test_an_old_file_can_be_added_to_slept_and_erased(old):
    hot = [r for r in old.recall("A last hot one.", record=False) if r.tier == "hot"]
    old.add("A last hot one.")
    (again,) = [r for r in old.recall("A last hot one.") if r.text == "A last hot one."]
    assert (again.id, again.support) == (hot[0].id, hot[0].support + 1)
    assert old.sleep() is not None
    receipt = old.delete(again.provenance[0])
    assert receipt.memories_derived
    old.update(old.messages()[0].id, text="Ada lives in Lyon.")
    old.forget(("acme",), below=True)
    assert old.namespaces() == [("default",)]
    assert old.admin.verify().problems == ()


@pytest.mark.parametrize(
    ("name", "stays"),
    [(".index/1-hot-abc.hnsw", False), (".index/notes.txt", True), (".hnsw", False)],
)
def test_old_index_snapshots_are_removed_and_nothing_else(tmp_path, name, stays):
    file = unpacked("memory.db", tmp_path / "memory.db")
    inside = Path(f"{file}{name}")
    inside.parent.mkdir(exist_ok=True)
    inside.write_text("vectors, or somebody's notes")
    EntropicMemory.open(file, embedder=FakeEmbedder(16)).close()
    assert (inside.exists(), Path(f"{file}.index").exists()) == (stays, stays)


def test_a_file_of_the_first_schema_opens(tmp_path):
    file = unpacked("first-schema.db", tmp_path / "first.db")
    with EntropicMemory.open(file, embedder=FakeEmbedder(32)) as memory:
        assert memory.admin.stats().schema == MEMORY_FILE.version
        assert [item.text for item in memory.recall("an old fact")] == ["an old fact"]
        memory.add("a new fact")
        memory.sleep()
        assert memory.admin.verify().problems == ()


def test_an_old_export_is_refused_and_says_what_to_open(old, tmp_path):
    with pytest.raises(InvalidInputError, match="open"):
        old.admin.import_(unpacked("export.jsonl", tmp_path / "export.jsonl"))
