"""What an operation costs as a memory grows, counted in steps of SQLite's machine and in pages."""

import pytest

from ecs_plugins.memory import EntropicMemory, StoreConfig
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
    """How many instructions of SQLite an action takes."""
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


def cost_of_recall(opened, count, text, *last):
    memory = opened(f"{count}.db")
    memory.add([text.format(number) for number in range(count)])
    for each in last:
        memory.add(each)
    question = text.format(3)
    memory.recall(question, threshold=0.0, record=False)
    return instructions(memory, lambda: memory.recall(question, threshold=0.0, record=False))


@pytest.mark.parametrize(
    "said", [(SAME,), (DIFFERENT,), (SAME, ENDED), (SAME, ENDED, SAME)], ids=range(4)
)
def test_a_recall_takes_no_more_than_its_share_of_what_was_said_again(opened, said):
    few, many = (cost_of_recall(opened, count, *said) for count in (100, 800))
    assert many < 9 * few
