import hashlib
import json

import pytest

from ecs_plugins.errors import InvalidInputError, StorageError
from ecs_plugins.memory import EntropicMemory, MemoryConfig
from ecs_plugins.ranking.embedder import FakeEmbedder


@pytest.fixture
def exported(tmp_path, open_memory):
    """A memory with everything in it, and its export."""
    memory = open_memory(config=MemoryConfig(cold_capacity=2))
    memory.add(["the boat is blue"] * 3 + ["cats chase birds"] * 2, metadata={"k": 1})
    memory.add("pinned for good", pinned=True)
    memory.sleep()
    memory.add(["snow falls in winter"] * 2 + ["a single thing"], role="tool", writer="w")
    memory.add("elsewhere", namespace=("other", "place"))
    file = tmp_path / "export.jsonl"
    memory.admin.export(file)
    return memory, file


def content(memory):
    return [
        (
            [m for m in memory.messages(namespace)],
            [(m.id, m.text, m.pinned, m.support, m.provenance, m.metadata, m.free_energy)
             for m in memory.memories(namespace)],
            [d.decision for d in memory.decisions(namespace)],
            [(i.id, i.text, i.support, i.provenance)
             for i in memory.recall("the winter", namespace=namespace, threshold=-1, k=99)],
        )
        for namespace in memory.namespaces()
    ]  # fmt: skip


def test_an_import_holds_what_was_exported(exported, open_memory, tmp_path):
    memory, file = exported
    copy = open_memory(path=tmp_path / "copy.db")
    counts = copy.admin.import_(file)
    assert counts["messages"] == 10
    assert content(copy) == content(memory)
    assert copy.admin.verify().ok
    copy.admin.export(tmp_path / "again.jsonl")
    first, second = (
        [json.loads(line) for line in path.read_text().splitlines()]
        for path in (file, tmp_path / "again.jsonl")
    )
    assert first[1:-1] == second[1:-1]


def test_an_import_with_another_embedder_embeds_anew(exported):
    memory, file = exported
    seen = []
    with EntropicMemory.open(embedder=FakeEmbedder(64)) as copy:
        copy.admin.import_(file, progress=lambda done, total: seen.append((done, total)))
        assert seen[-1] == (10, 10)
        for kept in memory.memories():
            assert copy.recall(kept.text, tiers="cold")[0].text == kept.text
        assert copy.admin.verify().ok


def test_an_import_never_mixes_with_what_is_there(exported):
    memory, file = exported
    before = content(memory)
    with pytest.raises(InvalidInputError, match="forget it first"):
        memory.admin.import_(file)
    assert content(memory) == before


DAMAGED = {
    "truncated": lambda content: b"".join(content.splitlines(keepends=True)[:-3]),
    "altered": lambda content: content.replace(b"boat", b"bout"),
    "torn": lambda content: content[:-10],
    "unversioned": lambda content: content.replace(b'"version"', b'"versio!"'),
    "empty": lambda _: b"",
    "foreign": lambda _: b'{"a": 1}\n',
    "binary": lambda _: b"\xff\xfe\x00",
}


@pytest.mark.parametrize("how", DAMAGED)
def test_an_export_that_is_not_whole_is_refused(exported, tmp_path, open_memory, how):
    _, file = exported
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(DAMAGED[how](file.read_bytes()))
    copy = open_memory(path=tmp_path / "copy.db")
    with pytest.raises(InvalidInputError):
        copy.admin.import_(broken)
    assert copy.namespaces() == []


def test_an_export_that_cannot_be_written_leaves_nothing(exported, tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StorageError, match="free some space") as caught:
        exported[0].admin.export(tmp_path / "never.jsonl")
    assert sorted(tmp_path.iterdir()) == before
    assert str(tmp_path / "never.jsonl") in str(caught.value)
    assert "/." not in str(caught.value)


def test_a_missing_export_is_a_clear_error(open_memory, tmp_path):
    with pytest.raises(StorageError, match="check the path"):
        open_memory().admin.import_(tmp_path / "nothing.jsonl")


def rewritten(file, target, edit):
    """The export with one of its rows edited, whole as far as its footer tells."""
    lines = [json.loads(line) for line in file.read_text().splitlines()][:-1]
    edit(lines)
    content = "".join(json.dumps(line) + "\n" for line in lines).encode()
    digest = hashlib.sha256(content).hexdigest()
    footer = json.dumps({"kind": "end", "lines": len(lines), "sha256": digest})
    target.write_bytes(content + footer.encode() + b"\n")
    return target


def one(lines, kind, number=0):
    return [line for line in lines if line["kind"] == kind][number]


@pytest.mark.parametrize(
    "change",
    [
        ("messages", {"created": "2025-01-01"}),
        ("messages", {"step": 1.5}),
        ("messages", {"created": float("inf")}),
        ("messages", {"metadata": "[1]"}),
        ("messages", {"asker": "stranger"}),
        ("messages", {"step": 2**70}),
        ("tiers", {"evidence": "{}"}),
        ("tiers", {"tier": "warm"}),
        ("tiers", {"pinned": "yes"}),
        ("tiers", {"namespace": 0}),
        ("sleeps", {"report": "{}"}),
        ("provenance", {"message": "stranger"}),
    ],
    ids=str,
)
def test_an_import_of_what_no_memory_wrote_is_refused_and_changes_nothing(
    exported, open_memory, tmp_path, change
):
    _, file = exported
    there = open_memory(path=tmp_path / "there.db")
    (stranger,) = there.add("The safe opens with 4711.", namespace=("somebody",))
    kind, values = change
    values = {name: stranger if each == "stranger" else each for name, each in values.items()}
    edited = rewritten(file, tmp_path / "e.jsonl", lambda lines: one(lines, kind).update(values))
    with pytest.raises(InvalidInputError):
        there.admin.import_(edited)
    assert there.namespaces() == [("somebody",)]
    assert there.admin.verify().ok
