import threading

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables.history import RunnableWithMessageHistory
from scripted_model import ScriptedModel

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.langchain import EntropicChatMessageHistory
from ecs_plugins.memory import EntropicMemory, MemoryConfig
from ecs_plugins.ranking.embedder import FakeEmbedder

USER = ("u1",)
FACT = "My sister Quilla keeps bees in Tarrow."


@pytest.fixture
def memory(tmp_path):
    with EntropicMemory.open(tmp_path / "m.db", embedder=FakeEmbedder()) as opened:
        yield opened


def history(memory, session="s1", user=USER) -> EntropicChatMessageHistory:
    return EntropicChatMessageHistory(memory, user, session)


def texts(log) -> list[str]:
    return [message.text for message in log.messages]


def test_messages_of_every_kind_come_back_as_they_were(memory):
    messages = [
        SystemMessage("Be terse."),
        HumanMessage("Hello", id="h1", name="Ada"),
        AIMessage("", tool_calls=[{"name": "f", "args": {"x": 1}, "id": "c", "type": "tool_call"}]),
        ToolMessage("result", tool_call_id="c", artifact={"a": [1]}),
        HumanMessage([{"type": "text", "text": "see"}, {"type": "image", "url": "http://x/y"}]),
        AIMessage("  padded \n", usage_metadata=None, response_metadata={"m": 1}),
        HumanMessage(""),
    ]
    log = history(memory)
    log.add_messages(messages[:3])
    log.add_messages(messages[3:])
    assert log.messages == messages


def test_only_what_user_and_assistant_said_is_remembered(memory):
    log = history(memory)
    log.add_messages([SystemMessage("sys"), HumanMessage(FACT), ToolMessage("t", tool_call_id="c")])
    log.add_ai_message("Lovely.")
    assert [(m.text, m.role) for m in memory.messages(USER)] == [
        (FACT, "user"),
        ("Lovely.", "assistant"),
    ]
    assert log.recall("Where does sister Quilla keep bees?", k=1)[0].text == FACT


def test_sessions_have_their_own_log_and_share_the_users_memory(memory):
    history(memory, "s1").add_user_message(FACT)
    history(memory, "s2").add_user_message("Hello again.")
    assert texts(history(memory, "s2")) == ["Hello again."]
    assert history(memory, "s2").recall("bees of sister Quilla")[0].text == FACT
    assert history(memory, "s1", ("u10",)).recall("bees of sister Quilla") == []


def test_the_log_stays_whole_while_the_memory_is_bounded(tmp_path):
    config = MemoryConfig(hot_capacity=5, cold_capacity=5, sleep_every=5)
    with EntropicMemory.open(tmp_path / "m", embedder=FakeEmbedder(), config=config) as memory:
        log = history(memory)
        for n in range(40):
            log.add_user_message(f"word{n} other{n} thing{n}")
        assert texts(log) == [f"word{n} other{n} thing{n}" for n in range(40)]
        (stats,) = memory.admin.stats().namespaces
        assert stats.hot + stats.cold <= 10


def test_clearing_a_session_erases_it_everywhere_and_leaves_the_others(memory, tmp_path):
    first, second = history(memory, "s1"), history(memory, "s2")
    first.add_user_message("My safe word is heliotrope.")
    second.add_user_message(FACT)
    memory.sleep(USER)
    receipt = first.erase()
    assert len(receipt.messages) == 1
    assert texts(first) == []
    assert texts(second) == [FACT]
    assert [m.text for m in memory.messages(USER)] == [FACT]
    for file in tmp_path.iterdir():
        assert b"heliotrope" not in file.read_bytes()
    second.clear()
    assert memory.recall(FACT, namespace=USER) == []


def test_what_repeats_in_two_sessions_survives_the_clearing_of_one(memory):
    history(memory, "s1").add_user_message(FACT)
    history(memory, "s2").add_user_message(FACT)
    history(memory, "s1").clear()
    (found,) = history(memory, "s2").recall("bees of sister Quilla")
    assert (found.text, found.support) == (FACT, 1)


def test_deleting_a_message_takes_it_out_of_the_log(memory):
    log = history(memory)
    log.add_messages([HumanMessage(FACT), AIMessage("Lovely.")])
    memory.delete(memory.messages(USER)[0].id)
    assert texts(log) == ["Lovely."]


def test_changing_a_message_changes_the_log(memory):
    log = history(memory)
    log.add_user_message("I live in Bern.")
    memory.update(memory.messages(USER)[0].id, text="I live in Basel.")
    assert texts(log) == ["I live in Basel."]


@pytest.mark.parametrize("keys", [{"history_messages_key": "history"}, {}])
def test_a_chain_with_history_stores_each_turn_once(memory, keys):
    model = ScriptedModel()
    if keys:
        prompt = ChatPromptTemplate.from_messages(
            [("system", "Be terse."), MessagesPlaceholder("history"), ("human", "{input}")]
        )
        chain = RunnableWithMessageHistory(
            prompt | model, lambda session_id: history(memory, session_id),
            input_messages_key="input", **keys,
        )  # fmt: skip
    else:
        chain = RunnableWithMessageHistory(model, lambda session_id: history(memory, session_id))
    config = {"configurable": {"session_id": "s1"}}
    for text in (FACT, "Hello?", "Where are the bees?"):
        chain.invoke({"input": text} if keys else [HumanMessage(text)], config)
    assert texts(history(memory)) == [
        FACT, "Noted.", "Hello?", "Noted.", "Where are the bees?", "Noted.",
    ]  # fmt: skip
    assert FACT in model.prompt


async def test_async_methods_run_off_the_event_loop(memory, monkeypatch):
    threads = set()
    real = memory._store.database.read

    def watched():
        threads.add(threading.get_ident())
        return real()

    monkeypatch.setattr(memory._store.database, "read", watched)
    log = history(memory)
    await log.aadd_messages([HumanMessage(FACT)])
    assert [m.text for m in await log.aget_messages()] == [FACT]
    assert (await log.arecall("bees of sister Quilla"))[0].text == FACT
    await log.aclear()
    assert await log.aget_messages() == []
    assert threading.get_ident() not in threads


def test_a_bad_namespace_is_refused(memory):
    for namespace, session in (("u1", "s"), ((), "s"), (("u1",), "")):
        with pytest.raises(InvalidInputError):
            EntropicChatMessageHistory(memory, namespace, session)
