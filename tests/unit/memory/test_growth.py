"""Cost of operations in a growing memory, in steps of SQLite and pages."""

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
