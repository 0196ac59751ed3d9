"""An addition that is repeated with its idempotency key is stored once."""

import pytest

from ecs_plugins.errors import InvalidInputError, StorageError
from ecs_plugins.memory import EntropicMemory, MemoryConfig, StoreConfig
from ecs_plugins.memory.store import intake
from ecs_plugins.ranking.embedder import FakeEmbedder

BOTH_ENGINES = True
TEXTS = [f"subject{number} does thing{number}" for number in range(5)]


def said(memory) -> list[str]:
    return [message.text for message in memory.messages()]


def test_an_addition_that_raised_after_its_commit_is_repeated_and_stored_once(
    open_memory, monkeypatch
):
    memory = open_memory()

    def lost(_):
        raise StorageError("the connection is lost")

    with monkeypatch.context() as patched:
        patched.setattr(EntropicMemory, "_tend", lost)
        with pytest.raises(StorageError, match="lost"):
            memory.add(TEXTS, idempotency_key="first")
    ids = memory.add(TEXTS, idempotency_key="first")
    assert said(memory) == TEXTS
    assert ids == [message.id for message in memory.messages()]
    assert memory.add(TEXTS, idempotency_key="second") != ids
    assert said(memory) == TEXTS * 2


def test_an_interrupted_addition_is_completed(open_memory, monkeypatch):
    memory = open_memory(store=StoreConfig(sleep="caller"), config=MemoryConfig(sleep_every=2))
    add = intake.add
    calls = []

    def ending(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise StorageError("the disk is full")
        return add(*arguments)

    monkeypatch.setattr(intake, "add", ending)
    with pytest.raises(StorageError, match="full"):
        memory.add(TEXTS, idempotency_key="key")
    assert said(memory) == TEXTS[:2]
    ids = memory.add(TEXTS, idempotency_key="key")
    assert said(memory) == TEXTS
    assert ids == [message.id for message in memory.messages()]


def test_other_messages_under_a_known_key_are_refused(open_memory):
    memory = open_memory()
    memory.add(TEXTS, idempotency_key="key")
    for other in (TEXTS[:2], [{"content": TEXTS[0], "role": "tool"}, *TEXTS[1:]]):
        with pytest.raises(InvalidInputError, match="idempotency key"):
            memory.add(other, idempotency_key="key")
    assert said(memory) == TEXTS
    memory.add(TEXTS[0], idempotency_key="key", namespace=("elsewhere",))
    assert len(memory.messages(("elsewhere",))) == 1


@pytest.mark.parametrize("key", ["", "k" * 256, 7])
def test_a_key_is_a_short_text(open_memory, key):
    memory = open_memory()
    with pytest.raises(InvalidInputError, match="1 to 255 characters"):
        memory.add("a text", idempotency_key=key)
    assert said(memory) == []


def test_a_key_is_known_for_a_day_and_stands_nowhere(open_memory, monkeypatch):
    memory = open_memory()
    memory.add(TEXTS[0], idempotency_key="xyzzysecret")
    with memory._store.database.read() as connection:
        (row,) = connection.execute("SELECT * FROM additions").fetchall()
    assert "xyzzysecret" not in str(row)
    monkeypatch.setattr(intake, "REMEMBERED", 0.0)
    memory.add(TEXTS[1], idempotency_key="xyzzysecret")
    assert said(memory) == TEXTS[:2]


def test_whoever_is_overtaken_by_a_repeat_returns_the_ids_of_that(open_memory):
    rivals = []

    class Slow(FakeEmbedder):
        """While the first call embeds, a repeat overtakes it."""

        def embed_documents(self, texts):
            if not rivals:
                rivals.append([])
                rivals[0] = memory.add(TEXTS, idempotency_key="key")
            return super().embed_documents(texts)

    memory: EntropicMemory = open_memory(embedder=Slow(32))
    ids = memory.add(TEXTS, idempotency_key="key")
    assert ids == rivals[0]
    assert said(memory) == TEXTS
