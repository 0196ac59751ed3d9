"""Files that version 0.1.0 wrote open, answer as they did then, and can be worked with."""

import gzip
import json
from pathlib import Path

import pytest

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory import EntropicMemory, MemoryConfig, StoreConfig
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
        for name, versions in then["histories"].items():
            assert [
                [m.version, m.live, m.text, sorted(m.provenance)] for m in old.history(name)
            ] == versions
    assert [list(namespace) for namespace in old.namespaces()] == ANSWERS["namespaces"]
    with old.items.view() as view:
        items = [[list(i.namespace), i.key, i.value, i.message] for i in view.find(())]
    assert items == ANSWERS["items"]
    assert old.admin.verify().problems == ()


def test_an_old_file_can_be_added_to_slept_and_erased(old):
    hot = [r for r in old.recall("A last hot one.", record=False) if r.tier == "hot"]
    paris, oslo = (old.recall("Ada lives in Paris.")[0].id, *old.add("Ada lives in Oslo.", at=5e9))
    assert old.history(paris)[-1].superseded_by == oslo
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


def test_an_old_export_is_refused_and_says_what_to_open(old, tmp_path):
    with pytest.raises(InvalidInputError, match="open"):
        old.admin.import_(unpacked("export.jsonl", tmp_path / "export.jsonl"))


# Settings that it recorded

RECORDED_BY_0_1 = {
    "hot_capacity": 100, "cold_capacity": 1000, "sleep_every": 20, "top_k": 3, "threshold": 0.5,
    "search": "both", "on_add": "merge", "merge_threshold": 0.9, "merge_guard": "wording",
    "hot_eviction": "unsupported_first", "clustering": "link", "clusters": 5, "min_support": 1,
    "proposal": "centroid", "reinforce": True, "fill": "all", "keep_hot": False,
    "utility": "informed", "information_weight": 1.0, "newcomer_rate": 1.0,
    "recompute_utility": True, "utility_window": 100, "utility_decay": 0.99, "half_life": 1000.0,
    "entropy": "evidence", "entropy_weight": 1.0, "spread_weight": 1.0, "contradiction": "learned",
    "victim": "free_energy", "schedule": "scaled", "temperature": 0.05, "final_temperature": 0.01,
    "annealing": 0.9, "summary_tokens": 50, "summary_temperature": 0.3, "seed": 0,
}  # fmt: skip
PAPER_OF_0_1 = RECORDED_BY_0_1 | {
    "cold_capacity": 20, "sleep_every": 100, "threshold": 0.7, "search": "cold",
    "on_add": "append", "merge_guard": "none", "hot_eviction": "fifo",
    "clustering": "kmeans", "min_support": 3, "proposal": "medoid", "reinforce": False,
    "fill": "supported", "keep_hot": True, "utility": "query_mean", "half_life": None,
    "newcomer_rate": None, "entropy": "cluster_variance", "contradiction": "never",
    "victim": "utility", "schedule": "constant", "temperature": 1.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("recorded", "config"),
    [
        (MemoryConfig().to_json(), MemoryConfig()),
        (MemoryConfig.paper().to_json(), MemoryConfig.paper()),
        (RECORDED_BY_0_1, MemoryConfig()),
        (PAPER_OF_0_1, MemoryConfig.paper()),
        ({"half_life": 50.0, "threshold": None, "cold_capacity": 7}, MemoryConfig(cold_capacity=7)),
        (RECORDED_BY_0_1 | {"utility": "observed", "entropy": "spectral"}, MemoryConfig()),
        (PAPER_OF_0_1 | {"entropy": "softmax"}, MemoryConfig.paper(entropy="embedding")),
    ],
)
def test_what_this_version_and_0_1_recorded_can_be_read(recorded, config):
    assert MemoryConfig.from_json(json.loads(json.dumps(recorded))) == config
