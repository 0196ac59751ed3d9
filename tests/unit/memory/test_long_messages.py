import pytest

from ecs_plugins.memory import MemoryConfig
from ecs_plugins.memory.store.items import PARTS
from ecs_plugins.memory.store.messages import LONG, parts_of
from ecs_plugins.ranking.embedder import FakeEmbedder
from tests.unit.memory.factories import SECRET, leftovers

BOTH_ENGINES = True
WORK = "of the stairs was planed by hand, sanded twice, oiled in the evening and dried in the yard"
FILLER = "".join(f"Board {n} {WORK} of the workshop until the wind turned. " for n in range(15))
FACT = "My daughter Ottilie eats no peanuts."
QUESTION = "What does my daughter Ottilie not eat?"


class ShortSighted(FakeEmbedder):
    """Reads the first hundred characters of a text."""

    def embed_documents(self, texts):
        return super().embed_documents([text[:100] for text in texts])


@pytest.fixture
def memory(open_memory):
    return open_memory(embedder=ShortSighted(64), config=MemoryConfig(merge_threshold=1.0))


def part_count(memory) -> int:
    with memory.items.view(kind=PARTS) as view:
        found = view.find(())
    with memory._store.database.read() as connection:
        (vectors,) = connection.execute("SELECT count(*) FROM item_vectors").fetchone()
    assert bool(found) == bool(vectors)
    return int(vectors)


@pytest.mark.parametrize("text", ["short", "é" * 300, "x " * 299, "木" * 199])
def test_a_short_text_has_no_parts(text):
    assert parts_of(text) == []


@pytest.mark.parametrize(
    "text", [FILLER, "x" * 5000, "word " * 900, "木材在星期四到。" * 200, "a\n" * 900, "x" * 10**6]
)
def test_parts_of_a_long_text_cover_it(text):
    parts = parts_of(text)
    assert "".join(parts).split() == text.split()
    assert 1 < len(parts) <= 130
    largest = max(len(part.encode()) for part in parts)
    assert largest <= max(LONG, len(text.encode()) / 20)


@pytest.mark.parametrize("place", [0, len(FILLER) // 2, len(FILLER)])
def test_a_fact_is_found_anywhere_in_a_long_message(memory, place):
    start = FILLER.find("Board", place) if place < len(FILLER) else place
    (name,) = memory.add(FILLER[:start] + FACT + " " + FILLER[start:])
    memory.add(["We had soup for lunch.", "The train was late."])
    best, *_ = memory.recall(QUESTION)
    assert best.provenance == (name,)
    assert best.similarity > 0.4
    memory.sleep()
    best, *_ = memory.recall(QUESTION, filter={})
    assert best.provenance == (name,)
    assert memory.admin.verify().ok


def test_a_filter_holds_for_parts(memory):
    memory.add({"content": FILLER + FACT, "metadata": {"k": 1}})
    assert memory.recall(QUESTION, filter={"k": 1})
    assert not memory.recall(QUESTION, filter={"k": 2})


def test_a_namespace_finds_no_parts_of_another(memory):
    memory.add(FILLER + FACT, namespace=("a", "b"))
    memory.add(["We had soup for lunch."], namespace=("a",))
    assert not memory.recall(QUESTION, namespace=("a",))
    assert memory.recall(QUESTION, namespace=("a", "b"))


def test_parts_go_with_their_message(memory):
    (name,) = memory.add(FILLER + SECRET)
    assert part_count(memory) > 10
    assert memory.admin.stats().items == 0
    receipt = memory.delete(name)
    memory.admin.compact()
    assert receipt.items == 0
    assert part_count(memory) == 0


def test_erased_parts_are_in_no_file(db, open_memory):
    memory = open_memory()
    memory.add(FILLER + SECRET)
    assert memory.forget(("default",)).items == 0
    memory.admin.compact()
    assert leftovers(memory) == []


def test_parts_are_those_of_the_present_text(memory):
    (name,) = memory.add(FILLER + FACT)
    memory.update(name, text=FILLER + "We named the puppy Biscuit.")
    best, *_ = memory.recall("What is the puppy named?")
    assert best.similarity > 0.4
    assert all(each.similarity < 0.4 for each in memory.recall(QUESTION, threshold=0.0))
    memory.update(name, text="The puppy is asleep.")
    assert part_count(memory) == 0
    memory.sleep()
    (kept,) = memory.memories()
    memory.update(kept.id, text=FILLER + FACT)
    assert memory.recall(QUESTION)[0].similarity > 0.4
    assert memory.admin.verify().ok


def test_parts_are_exported_and_embedded_anew(memory, open_memory, tmp_path):
    memory.add(FILLER + FACT)
    memory.admin.export(tmp_path / "all.jsonl")
    copy = open_memory(path=tmp_path / "copy.db", embedder=ShortSighted(48))
    copy.admin.import_(tmp_path / "all.jsonl")
    assert part_count(copy) == part_count(memory)
    assert copy.recall(QUESTION)[0].similarity > 0.4
    memory.admin.reembed(ShortSighted(32))
    assert memory.recall(QUESTION)[0].similarity > 0.4
    assert memory.admin.verify().ok
