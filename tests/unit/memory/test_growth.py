"""Cost of operations in a growing memory, in steps of SQLite and pages."""

import pytest

from ecs_plugins.memory import EntropicMemory, MemoryConfig, StoreConfig, prior
from ecs_plugins.ranking.embedder import FakeEmbedder

STEP = 100
"""Instructions between two calls of the counter."""


@pytest.fixture
def opened(tmp_path):
    """Opens memories with a counter of the instructions that their statements take."""
    memories = []

    def open_(name):
        store = StoreConfig(sleep="manual", synchronous="normal")
        memory = EntropicMemory.open(tmp_path / name, embedder=FakeEmbedder(16), store=store)
        memories.append(memory)
        return memory

    yield open_
    for memory in memories:
        memory.close()


def instructions(memory, action):
    """Count the SQLite instructions of an action."""
    count = 0

    def tick():
        nonlocal count
        count += STEP

    with memory._store.database.connection() as connection:
        connection.set_progress_handler(tick, STEP)
    action()
    with memory._store.database.connection() as connection:
        connection.set_progress_handler(None, 0)
    return count


SAME = "The build server is online."
DIFFERENT = "The server load is {} percent."
ENDED = "The build server is not online."
BY_TURNS = "The build server is {0}line."


def said(text, number):
    """A text for the nth time, of which something else is said by turns."""
    state = ("on", "off")[number % 2]
    return text.format(state if text is BY_TURNS else number)


def cost_of_recall(opened, count, text, *last):
    memory = opened(f"{count}.db")
    for start in range(0, count, 40):
        memory.add([said(text, number) for number in range(start, start + 40)])
    for each in last:
        memory.add(each)
    question = said(text, 3)
    memory.recall(question, threshold=0.0, record=False)
    return instructions(memory, lambda: memory.recall(question, threshold=0.0, record=False))


@pytest.mark.slow
@pytest.mark.parametrize(
    "texts",
    [(SAME,), (DIFFERENT,), (BY_TURNS,), (SAME, ENDED), (SAME, ENDED, SAME)],
    ids=range(5),
)
def test_a_recall_takes_hardly_more_where_more_was_said_again(opened, texts):
    few, many = (cost_of_recall(opened, count, *texts) for count in (80, 480))
    assert many < 3 * few


def cost_of_deleting_half(opened, count):
    memory = opened(f"{count}.db")
    names = memory.add([f"w{number} x{number * 3} y{number * 7}" for number in range(count)])
    return instructions(memory, lambda: memory.delete(*names[::2]))


def test_deleting_many_at_once_takes_each_its_share(opened):
    few, many = (cost_of_deleting_half(opened, count) for count in (50, 300))
    assert many < 9 * few


def cost_of_sleeping(tmp_path, count):
    """Instructions of SQLite for twenty messages and a sleep phase after so many others."""
    config = MemoryConfig(cold_capacity=10_000)
    store = StoreConfig(synchronous="normal")
    path = tmp_path / f"{count}.db"
    with EntropicMemory.open(path, embedder=FakeEmbedder(64), config=config, store=store) as memory:
        for start in range(0, count, 20):
            memory.add([f"w{n} x{n * 3} y{n * 7}" for n in range(start, start + 20)])
        more = [f"v{n} s{n * 3} t{n * 7}" for n in range(20)]
        return instructions(memory, lambda: memory.add(more))


def test_a_sleep_phase_with_room_reads_as_much_of_a_large_cold_tier_as_of_a_small_one(tmp_path):
    few, many = (cost_of_sleeping(tmp_path, count) for count in (100, 1000))
    assert many < 1.5 * few


def test_the_prior_of_a_text_is_computed_once(tmp_path, monkeypatch):
    monkeypatch.setattr(prior, "_known", {})
    read = []
    features = prior._features

    def counted(statement):
        read.append(statement.text)
        return features(statement)

    monkeypatch.setattr(prior, "_features", counted)
    config = MemoryConfig(cold_capacity=30, sleep_every=10)
    with EntropicMemory.open(tmp_path / "a.db", embedder=FakeEmbedder(64), config=config) as memory:
        memory.add([f"w{n} x{n * 3} y{n * 7}" for n in range(200)])
        kinds = {each.decision.kind for each in memory.decisions()}
    assert "reject" in kinds or "replace" in kinds
    assert len(read) == len(set(read))
    assert len(read) > 100
