"""Export and import of memories and key-value items."""

import hashlib
import json
import time

import pytest

from ecs_plugins.errors import InvalidInputError, StorageError
from ecs_plugins.memory import MemoryConfig
from ecs_plugins.memory.store.items import NewItem
from ecs_plugins.ranking.embedder import FakeEmbedder
from tests.unit.memory.factories import SECRET, leftovers

NOTES = ("notes", "acme")

BOTH_ENGINES = True


def put(memory, namespace=NOTES, key="k", text="the boat is blue", **options):
    item = NewItem(namespace, key, {"text": text, "n": [1, None]}, {"text": text}, **options)
    memory.items.write([item])


class Shown:
    """Return the visible fields of an item."""

    def __init__(self, item, score):
        self.namespace = item.namespace
        self.key = item.key
        self.value = item.value
        self.rest = (item.created, item.ttl, item.message, score)

    def __eq__(self, other):
        return vars(self) == vars(other)

    __hash__ = None


def addresses(items):
    return sorted((each.namespace, each.key) for each in items)


def places(memory):
    """The namespaces with an item that a search finds."""
    return {each.namespace for each in found(memory)}


def found(memory, query="which boat is blue", prefix=()):
    vector = memory.items.embed_query(query)
    with memory.items.view(search=True) as view:
        hits = view.search(prefix, query, vector)
    return [Shown(item, score) for item, score in hits]


@pytest.fixture
def filled(open_memory):
    """A memory with everything in it."""
    memory = open_memory(config=MemoryConfig(cold_capacity=2))
    memory.add(["the boat is blue"] * 3 + ["cats chase birds"] * 2, metadata={"k": 1})
    memory.add("pinned for good", pinned=True)
    memory.sleep()
    memory.add(["snow falls in winter"] * 2 + ["a single thing"], role="tool", writer="w")
    put(memory)
    put(memory, key="later", text="cats chase birds", ttl=600)
    put(memory, ("notes", "acme", "deep"), text="snow falls")
    put(memory, ("notes", "acmes"), text="a neighbour")
    (said,) = memory.add("the mill burned down", namespace=("chat",))
    value = {"content": "the mill burned down", "by": "Q"}
    item = NewItem(("chat",), "m", value, message=said, text_key="content")
    memory.items.write([item])
    return memory


def exported(memory, folder, **options):
    path = folder / "export.jsonl"
    memory.admin.export(path, **options)
    return path


def dump_of(memory, folder):
    """Return an export without its time."""
    lines = exported(memory, folder).read_text().splitlines()
    return lines[1:-1]


@pytest.mark.parametrize(("reembedded", "dimension"), [(None, 32), (None, 64), (64, 64)])
def test_an_import_equals_its_export(filled, open_memory, tmp_path, reembedded, dimension):
    if reembedded:
        filled.admin.reembed(FakeEmbedder(reembedded))
    file = exported(filled, tmp_path)
    progress = []
    copy = open_memory(path=tmp_path / "copy.db", embedder=FakeEmbedder(dimension))
    counts = copy.admin.import_(file, progress=lambda *done: progress.append(done))
    assert counts["messages"] == 10
    assert copy.admin.verify().ok
    held = found(copy)
    there = found(filled)
    assert len(held) == 5
    for first, *_ in (held, there):
        assert first.key == "k"
        assert first.value == {"text": "the boat is blue", "n": [1, None]}
    assert addresses(held) == addresses(there)
    for kept in filled.memories():
        best, *_ = copy.recall(kept.text, tiers="cold")
        assert best.text == kept.text
    if dimension == (reembedded or 32):
        assert held == there
        assert dump_of(copy, tmp_path) == dump_of(filled, tmp_path)
    else:
        assert progress[-1] == (8, 8)  # different texts


@pytest.mark.parametrize("there", ["messages", "items"])
def test_an_import_into_used_namespaces_is_refused(filled, open_memory, tmp_path, there):
    copy = open_memory(path=tmp_path / "copy.db")
    namespace = None
    if there == "items":
        namespace = NOTES
        put(copy, text="mine")
    else:
        copy.add("mine", namespace=("default",))
    file = exported(filled, tmp_path, namespace=namespace)
    items = found(copy)
    messages = copy.messages()
    with pytest.raises(InvalidInputError, match="forget it first"):
        copy.admin.import_(file)
    assert found(copy) == items
    assert copy.messages() == messages


def test_a_namespace_is_exported_with_its_items_but_not_those_of_other_messages(
    filled, open_memory, tmp_path
):
    (said,) = filled.add("elsewhere", namespace=("other",))
    item = NewItem(NOTES, "m", {"content": "elsewhere"}, message=said, text_key="content")
    filled.items.write([item])
    copy = open_memory(path=tmp_path / "copy.db")
    file = exported(filled, tmp_path, namespace=NOTES)
    copy.admin.import_(file)
    assert places(copy) == {NOTES, (*NOTES, "deep")}
    assert "m" not in {each.key for each in found(copy)}


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
def test_an_export_that_is_not_whole_is_refused(filled, tmp_path, open_memory, how):
    whole = exported(filled, tmp_path).read_bytes()
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(DAMAGED[how](whole))
    copy = open_memory(path=tmp_path / "copy.db")
    with pytest.raises(InvalidInputError):
        copy.admin.import_(broken)
    assert copy.namespaces() == []


def test_an_export_that_cannot_be_written_leaves_nothing(filled, tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    before = sorted(tmp_path.iterdir())
    target = tmp_path / "never.jsonl"
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StorageError, match="free some space") as caught:
        filled.admin.export(target)
    assert sorted(tmp_path.iterdir()) == before
    said = str(caught.value)
    assert str(target) in said
    assert "/." not in said


@pytest.mark.parametrize(
    "change",
    [
        ("messages", {"created": "2025-01-01"}),
        ("messages", {"step": 1.5}),
        ("messages", {"created": float("inf")}),
        ("messages", {"metadata": "[1]"}),
        ("messages", {"asker": "stranger"}),
        ("messages", {"vector": "strewn"}),
        ("messages", {"step": 2**70}),
        ("tiers", {"evidence": "{}"}),
        ("tiers", {"tier": "warm"}),
        ("tiers", {"pinned": "yes"}),
        ("tiers", {"namespace": 0}),
        ("sleeps", {"report": "{}"}),
        ("provenance", {"message": "stranger"}),
        ("items", {"message": "stranger"}),
        # Without a checksum:
        ("namespaces", {"step": 1.5}),
        ("namespaces", {"cycle": True}),
        ("items", {"value": "[1]"}),
        ("items", {"created": "today"}),
    ],
    ids=str,
)
def test_an_import_of_another_format_is_refused(filled, open_memory, tmp_path, change):
    kind, values = change
    there = open_memory(path=tmp_path / "there.db")
    (stranger,) = there.add("The safe opens with 4711.", namespace=("somebody",))
    put(there, namespace=("somebody",))
    *written, _ = exported(filled, tmp_path).read_text().splitlines()
    lines = [json.loads(line) for line in written]
    first = next(line for line in lines if line["kind"] == kind)
    for column, value in values.items():
        told = {"stranger": stranger, "strewn": f"!{first[column]}"}
        first[column] = told.get(value, value)
    edited = tmp_path / "edited.jsonl"
    edited.write_text(sealed(lines))
    with pytest.raises(InvalidInputError):
        there.admin.import_(edited)
    assert there.namespaces() == [("somebody",)]
    assert there.admin.verify().ok


def sealed(lines):
    """An export of some lines, with the footer that belongs to them."""
    content = "".join(json.dumps(line) + "\n" for line in lines)
    footer = {
        "kind": "end",
        "lines": len(lines),
        "sha256": hashlib.sha256(content.encode()).hexdigest(),
    }
    return content + json.dumps(footer) + "\n"


# Items


def test_an_expired_item_is_neither_counted_nor_exported(filled, tmp_path):
    put(filled, key="short", ttl=0.01)
    time.sleep(0.02)
    assert filled.admin.stats().items == 5
    assert "short" not in exported(filled, tmp_path).read_text()


def test_forgetting_a_namespace_erases_its_items_and_no_others(filled):
    deep = (*NOTES, "deep")
    neighbour = ("notes", "acmes")
    chat = ("chat",)
    assert filled.forget(NOTES, filter={"n": 1}).items == 0
    assert filled.admin.stats(NOTES).items == 3
    assert filled.forget(NOTES).items == 2
    assert places(filled) == {deep, neighbour, chat}
    assert filled.forget(("notes",), below=True).items == 2
    assert places(filled) == {chat}
    filled.forget(chat)  # whose item goes with its message
    assert found(filled) == []
    assert filled.admin.verify().ok


@pytest.mark.parametrize("how", ["forget", "delete", "purge", "sleep"])
def test_an_erased_item_is_in_no_file(open_memory, how):
    memory = open_memory()
    place = ("secret", "place")
    expires = how in ("purge", "sleep")
    for number in range(30):
        padding = "padding " * 7 * number
        put(memory, key=f"other {number}", text=f"subject{number} {padding}")
    put(memory, place, text=SECRET, ttl=0.05 if expires else None)
    memory.add("the boat is blue", namespace=NOTES)
    assert leftovers(memory)
    if expires:
        time.sleep(0.06)
    if how == "forget":
        memory.forget(place)
    elif how == "delete":
        memory.items.write(deletes=[(place, "k")])
    elif how == "sleep":
        assert memory.sleep(NOTES)
    else:
        assert memory.admin.purge().items == 1
    assert leftovers(memory) == []
    assert memory.admin.stats().items == 30
