"""Key-value items go through export, import, checks, counts and erasure like all else."""

import time

import pytest

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.store.items import NewItem
from ecs_plugins.ranking.embedder import FakeEmbedder
from tests.unit.memory.factories import SECRET, leftovers

NOTES = ("notes", "acme")


def put(memory, namespace=NOTES, key="k", text="the boat is blue", **options):
    item = NewItem(namespace, key, {"text": text, "n": [1, None]}, {"text": text}, **options)
    memory.items.write([item])


def found(memory, query="which boat is blue", prefix=()):
    with memory.items.view(search=True) as view:
        pairs = view.nearest(prefix, memory.items.embed_query(query))
        return [(i.namespace, i.key, i.value, i.created, i.ttl, i.message, s) for i, s in pairs]


@pytest.fixture
def filled(open_memory):
    memory = open_memory()
    put(memory)
    put(memory, key="later", text="cats chase birds", ttl=600)
    put(memory, ("notes", "acme", "deep"), text="snow falls")
    put(memory, ("notes", "acmes"), text="a neighbour")
    (said,) = memory.add("the mill burned down", namespace=("chat",))
    item = NewItem(
        ("chat",), "m", {"content": "the mill burned down", "by": "Q"},
        message=said, text_key="content",
    )  # fmt: skip
    memory.items.write([item])
    return memory


def copied(memory, open_memory, folder, *, dimension=32, **options):
    """A second memory with what is exported of the first."""
    memory.admin.export(folder / "export.jsonl", **options)
    copy = open_memory(path=folder / "copy.db", embedder=FakeEmbedder(dimension))
    copy.admin.import_(folder / "export.jsonl")
    return copy


@pytest.mark.parametrize(
    ("reembedded", "dimension"),
    [(None, 32), (None, 64), (64, 64)],
    ids=["as it is", "by another embedder", "while its vectors are to be replaced"],
)
def test_an_import_holds_the_items_that_were_exported(
    filled, open_memory, tmp_path, reembedded, dimension
):
    if reembedded:
        filled.admin.reembed(FakeEmbedder(reembedded))
    copy = copied(filled, open_memory, tmp_path, dimension=dimension)
    assert copy.admin.verify().ok
    held, there = found(copy), found(filled)
    assert len(held) == 5
    if (reembedded or 32) == dimension:
        assert held == there
    assert held[0][1:3] == there[0][1:3] == ("k", {"text": "the boat is blue", "n": [1, None]})
    assert sorted(each[:2] for each in held) == sorted(each[:2] for each in there)


def test_a_namespace_is_exported_with_its_items_but_not_those_of_other_messages(
    filled, open_memory, tmp_path
):
    (said,) = filled.add("elsewhere", namespace=("other",))
    item = NewItem(NOTES, "m", {"content": "elsewhere"}, message=said, text_key="content")
    filled.items.write([item])
    held = found(copied(filled, open_memory, tmp_path, namespace=NOTES))
    assert {each[0] for each in held} == {NOTES, (*NOTES, "deep")}
    assert "m" not in {each[1] for each in held}


def test_an_import_does_not_overwrite_an_item(filled, open_memory, tmp_path):
    filled.admin.export(tmp_path / "part.jsonl", namespace=NOTES)
    copy = open_memory(path=tmp_path / "copy.db")
    put(copy, text="mine")
    before = found(copy)
    with pytest.raises(InvalidInputError, match="forget it first"):
        copy.admin.import_(tmp_path / "part.jsonl")
    assert found(copy) == before


def test_an_expired_item_is_neither_counted_nor_exported(filled, tmp_path):
    put(filled, key="short", ttl=0.01)
    time.sleep(0.02)
    assert filled.admin.stats().items == 5
    filled.admin.export(tmp_path / "export.jsonl")
    assert "short" not in (tmp_path / "export.jsonl").read_text()


def test_forgetting_a_namespace_erases_its_items_and_no_others(filled):
    assert filled.forget(NOTES, filter={"n": 1}).items == 0
    assert filled.admin.stats(NOTES).items == 3
    assert filled.forget(NOTES).items == 2
    assert {each[0] for each in found(filled)} == {(*NOTES, "deep"), ("notes", "acmes"), ("chat",)}
    assert filled.forget(("notes",), below=True).items == 2
    assert {each[0] for each in found(filled)} == {("chat",)}
    filled.forget(("chat",))  # whose item goes with its message
    assert found(filled) == []
    assert filled.admin.verify().ok


@pytest.mark.parametrize("how", ["forget", "delete", "purge", "sleep"])
def test_an_erased_item_is_in_no_file(db, open_memory, how):
    memory = open_memory()
    for number in range(30):
        put(memory, key=f"other {number}", text=f"subject{number} " + "padding " * 7 * number)
    put(memory, ("secret", "place"), text=SECRET, ttl=0.05 if how in ("purge", "sleep") else None)
    memory.add("the boat is blue", namespace=NOTES)
    assert leftovers(db.parent)
    if how == "forget":
        memory.forget(("secret", "place"))
    elif how == "delete":
        memory.items.write(deletes=[(("secret", "place"), "k")])
    else:
        time.sleep(0.06)
        assert memory.sleep(NOTES) if how == "sleep" else memory.admin.purge().items == 1
    assert leftovers(db.parent) == []
    assert memory.admin.stats().items == 30
