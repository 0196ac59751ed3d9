"""What the session memories of both frameworks do alike: a whole log, a shared memory, erasure."""

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables.history import RunnableWithMessageHistory
from llama_index.core.base.llms.types import (
    ChatMessage,
    ImageBlock,
    TextBlock,
    ToolCallBlock,
)

from ecs_plugins.langchain import EntropicChatMessageHistory
from ecs_plugins.llama_index import EntropicChatMemory
from ecs_plugins.memory import EntropicMemory, MemoryConfig
from ecs_plugins.ranking.embedder import FakeEmbedder
from tests.integration.langchain.scripted_model import ScriptedModel

USER = ("u1",)
FACT = "My sister Quilla keeps bees in Tarrow."
QUESTION = "Where does my sister Quilla keep her bees?"


class History:
    every_kind = (
        SystemMessage("Be terse."),
        HumanMessage("Hello", id="h1", name="Ada"),
        AIMessage("", tool_calls=[{"name": "f", "args": {"x": 1}, "id": "c", "type": "tool_call"}]),
        ToolMessage("result", tool_call_id="c", artifact={"a": [1]}),
        HumanMessage([{"type": "text", "text": "see"}, {"type": "image", "url": "http://x/y"}]),
        AIMessage("  padded \n", usage_metadata=None, response_metadata={"m": 1}),
        HumanMessage(""),
    )

    def open(self, memory, session="s1", user=USER, **fields):
        return EntropicChatMessageHistory(memory, user, session, **fields)

    def messages(self, *pairs):
        kinds = {"user": HumanMessage, "assistant": AIMessage, "system": SystemMessage}
        return [kinds[role](text) for role, text in pairs]

    def put(self, log, messages):
        log.add_messages(messages)

    def read(self, log):
        return log.messages

    async def aput(self, log, messages):
        await log.aadd_messages(messages)

    async def aread(self, log):
        return await log.aget_messages()

    async def aclear(self, log):
        await log.aclear()

    def text(self, message):
        return message.text


class ChatMemory:
    every_kind = (
        ChatMessage(role="system", content="Be terse."),
        ChatMessage(role="user", content="Hello"),
        ChatMessage(
            role="assistant",
            blocks=[
                TextBlock(text=""),
                ToolCallBlock(tool_call_id="c", tool_name="f", tool_kwargs={"x": 1}),
            ],
        ),
        ChatMessage(role="tool", content="result", additional_kwargs={"tool_call_id": "c"}),
        ChatMessage(role="user", blocks=[TextBlock(text="see"), ImageBlock(url="http://x/y")]),
        ChatMessage(role="assistant", content="  padded \n"),
        ChatMessage(role="user", content=""),
    )

    def open(self, memory, session="s1", user=USER, **fields):
        return EntropicChatMemory.from_defaults(
            memory, namespace=user, session_id=session, count_tokens=len, **fields
        )

    def messages(self, *pairs):
        return [ChatMessage(role=role, content=text) for role, text in pairs]

    def put(self, log, messages):
        log.put_messages(messages)

    def read(self, log):
        return log.get_all()

    async def aput(self, log, messages):
        await log.aput_messages(messages)

    async def aread(self, log):
        return await log.aget_all()

    async def aclear(self, log):
        await log.areset()

    def text(self, message):
        return str(message.content)


@pytest.fixture(params=[History, ChatMemory], ids=lambda kind: kind.__name__)
def kind(request):
    return request.param()


@pytest.fixture
def say(kind):
    def say(log, *pairs):
        kind.put(log, kind.messages(*pairs))

    return say


@pytest.fixture
def texts(kind):
    return lambda log: [kind.text(message) for message in kind.read(log)]


def remembered(memory) -> list[str]:
    return [message.text for message in memory.messages(USER)]


def test_messages_of_every_kind_come_back_as_they_were(kind, memory):
    log = kind.open(memory)
    kind.put(log, kind.every_kind[:3])
    kind.put(log, kind.every_kind[3:])
    assert kind.read(log) == list(kind.every_kind)
    assert remembered(memory) == ["Hello", "see", "padded"]


def test_sessions_have_their_own_log_and_share_the_users_memory(kind, memory, say, texts):
    say(kind.open(memory, "s1"), ("system", "sys"), ("user", FACT), ("assistant", "Lovely."))
    other = kind.open(memory, "s2")
    say(other, ("user", "Hello again."))
    assert texts(other) == ["Hello again."]
    assert other.recall(QUESTION)[0].text == FACT
    assert other.recall(QUESTION, k=1)[0].metadata["role"] == "user"
    assert kind.open(memory, user=("u10",)).recall(QUESTION) == []


def test_the_log_stays_whole_while_the_memory_is_bounded(kind, tmp_path, say, texts):
    config = MemoryConfig(hot_capacity=5, cold_capacity=5, sleep_every=5)
    said = [f"word{n} other{n} thing{n}" for n in range(40)]
    with EntropicMemory.open(tmp_path / "m", embedder=FakeEmbedder(), config=config) as memory:
        log = kind.open(memory)
        for text in said:
            say(log, ("user", text))
        assert texts(log) == said
        assert len(memory.memories(USER)) <= 10


def test_erasing_a_session_erases_it_everywhere_and_leaves_the_others(
    kind, memory, tmp_path, say, texts
):
    first, second = kind.open(memory, "s1"), kind.open(memory, "s2")
    say(first, ("user", "My safe word is heliotrope."))
    say(second, ("user", FACT))
    memory.sleep(USER)
    assert len(first.erase().messages) == 1
    assert texts(first) == []
    assert texts(second) == [FACT]
    assert remembered(memory) == [FACT]
    for file in tmp_path.iterdir():
        assert b"heliotrope" not in file.read_bytes()


def test_deleting_or_changing_a_message_does_so_in_the_log(kind, memory, say, texts):
    log = kind.open(memory)
    say(log, ("user", "I live in Bern."), ("assistant", "Lovely."))
    first, second = memory.messages(USER)
    memory.update(first.id, text="I live in Basel.")
    memory.delete(second.id)
    assert texts(log) == ["I live in Basel."]


async def test_async_methods_run_off_the_event_loop(kind, memory, threads):
    log = kind.open(memory)
    await kind.aput(log, kind.messages(("user", FACT)))
    assert [kind.text(message) for message in await kind.aread(log)] == [FACT]
    await kind.aclear(log)
    assert await kind.aread(log) == []
    assert threads == {"worker"}


def test_half_of_a_surrogate_pair_does_not_fail_the_turn(kind, memory, say, texts):
    log = kind.open(memory)
    say(log, ("user", f"{FACT} \ud83d"))
    assert texts(log) == remembered(memory) == [f"{FACT} \ufffd"]
    assert log.recall(f"{QUESTION} \ude42")[0].text == texts(log)[0]


@pytest.mark.parametrize("keys", [{"history_messages_key": "history"}, {}])
def test_a_chain_with_history_stores_each_turn_once(memory, keys):
    model = ScriptedModel()
    if keys:
        prompt = ChatPromptTemplate.from_messages(
            [("system", "Be terse."), MessagesPlaceholder("history"), ("human", "{input}")]
        )
        chain = RunnableWithMessageHistory(
            prompt | model, lambda session_id: History().open(memory, session_id),
            input_messages_key="input", **keys,
        )  # fmt: skip
    else:
        chain = RunnableWithMessageHistory(
            model, lambda session_id: History().open(memory, session_id)
        )
    config = {"configurable": {"session_id": "s1"}}
    for text in (FACT, "Hello?", "Where are the bees?"):
        chain.invoke({"input": text} if keys else [HumanMessage(text)], config)
    assert [message.text for message in History().open(memory).messages] == [
        FACT, "Noted.", "Hello?", "Noted.", "Where are the bees?", "Noted.",
    ]  # fmt: skip
    assert FACT in model.prompt


def test_what_no_user_typed_is_logged_and_not_remembered(memory):
    said = [
        HumanMessage("A summary.", additional_kwargs={"lc_source": "summarization"}),
        HumanMessage("A task has ended.", additional_kwargs={"lc_source": "async_subagent"}),
        SystemMessage("Be terse."),
        ToolMessage("result", tool_call_id="c"),
        HumanMessage("Hello."),
    ]
    History().open(memory).add_messages(said)
    assert History().open(memory).messages == said
    assert remembered(memory) == ["Hello."]
