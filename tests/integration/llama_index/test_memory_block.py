import asyncio

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import Memory
from recording_llm import call

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.llama_index import EntropicMemoryBlock

USER = ("memories", "u1")
FACT = "My sister Quilla keeps bees in Tarrow."
QUESTION = "Where does my sister Quilla keep her bees?"


def block(memory, **fields) -> EntropicMemoryBlock:
    fields = {"namespace": USER, "count_tokens": lambda text: len(str.split(text)), **fields}
    return EntropicMemoryBlock(memory=memory, **fields)


def short_term(memory, session="s1", **fields) -> Memory:
    return Memory.from_defaults(
        session_id=session, token_limit=400, chat_history_token_ratio=0.1, token_flush_size=20,
        tokenizer_fn=str.split, insert_method="user", memory_blocks=[block(memory, **fields)],
    )  # fmt: skip


def say(text, role="user", **kwargs) -> ChatMessage:
    return ChatMessage(role=role, content=text, additional_kwargs=kwargs)


async def test_what_leaves_the_short_term_is_remembered_and_recalled(memory):
    chat = short_term(memory)
    await chat.aput(say(FACT))
    for n in range(6):
        await chat.aput(say(f"word{n} " * 8, "user" if n % 2 else "assistant"))
    assert FACT in [message.text for message in memory.messages(USER)]
    await chat.aput(say(QUESTION))
    view = await chat.aget()
    assert FACT in str(view[-1].content)
    assert {str(message.role.value) for message in view} <= {"user", "assistant"}
    assert FACT not in "".join(str(m.content) for m in view[:-1])


async def test_without_a_question_nothing_is_recalled(memory):
    memory.add(FACT, namespace=USER)
    assert await block(memory).aget() == ""
    assert await block(memory).aget([]) == ""
    assert await block(memory).aget([say("ok", "assistant")]) == ""
    assert await block(memory).aget([say("")]) == ""
    assert FACT in await block(memory).aget([say(QUESTION), say("hm", "assistant")])


async def test_only_user_and_assistant_are_remembered(memory):
    turns = [say("sys", "system"), say(FACT), call("f", x=1), say("result", "tool")]
    await block(memory).aput([*turns, say("Ah.", "assistant")])
    assert [message.text for message in memory.messages(USER)] == [FACT, "Ah."]


@pytest.mark.parametrize(
    ("text", "remembered"),
    [
        ("Thought: hm\nAction: f\nAction Input: {}\nObservation: pay XX99\nAnswer: evil\n"
         "Thought: I know.\nAnswer: It is\nMay.", ["It is\nMay."]),
        ("Thought: hm\nAction: f\nObservation: pay XX99", []),
        ("\n Observation: none.\nObservation: x\nAnswer: y", ["y"]),
        ("Question: when?\nAnswer: in May.", ["Question: when?\nAnswer: in May."]),
    ],
)  # fmt: skip
async def test_of_the_notes_of_a_react_agent_only_the_answer_is_remembered(
    memory, text, remembered
):
    await block(memory).aput([say(text, "assistant")])
    assert [message.text for message in memory.messages(USER)] == remembered


async def test_recalled_text_is_never_remembered_again(memory):
    memory.add(FACT, namespace=USER)
    note = await block(memory).aget([say(QUESTION)])
    await block(memory).aput([say(f"{note}\n\n{QUESTION}"), say(note, "assistant")])
    assert [message.text for message in memory.messages(USER)] == [FACT, QUESTION]


async def test_truncation_keeps_the_best(memory):
    memory.add([FACT, "Quilla has a red bicycle.", "sister of mine"], namespace=USER)
    memory_block = block(memory, threshold=0.0)
    content = await memory_block.aget([say(QUESTION)])
    assert content.count("\n- ") == 3
    size = len(str.split(content))
    shorter = await memory_block.atruncate(content, 1)
    assert shorter.count("\n- ") == 2
    assert len(str.split(shorter)) < size
    assert FACT in shorter
    assert shorter.endswith("</recalled_notes>")
    best = await memory_block.atruncate(content, size - 38)
    assert best is not None
    assert FACT in best
    assert "bicycle" not in best
    assert await memory_block.atruncate(content, size) is None
    assert await memory_block.atruncate(content, 0) == content


async def test_one_block_serves_several_sessions_at_once(memory):
    shared = block(memory, namespace=("memories",), per_session=True)

    async def talk(session: str) -> str:
        await shared.aput([say(f"My code is {session}x.")], session_id=session)
        return await shared.aget([say("What is my code?")], session_id=session)

    sessions = [f"s{n}" for n in range(8)]
    contents = await asyncio.gather(*(talk(session) for session in sessions))
    for session, content in zip(sessions, contents, strict=True):
        assert [other for other in sessions if f"{other}x." in content] == [session]
    with pytest.raises(ConfigurationError, match="session_id"):
        await shared.aget([say("What is my code?")])


def test_a_label_is_never_a_template(memory):
    with pytest.raises(ConfigurationError, match="per_session"):
        block(memory, namespace=("memories", "{session_id}"))


async def test_it_runs_off_the_event_loop(memory, threads):
    await block(memory).aput([say(FACT)])
    assert FACT in await block(memory).aget([say(QUESTION)])
    assert threads == {"worker"}
