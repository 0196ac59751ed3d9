import asyncio
import threading

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_tests.unit_tests import ChatModelUnitTests
from pydantic import ValidationError

from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.langchain import LocalChatModel
from ecs_plugins.lm import FakeLanguageModel, Generation, Segment


class TestStandard(ChatModelUnitTests):
    @property
    def chat_model_class(self):
        return LocalChatModel

    @property
    def chat_model_params(self):
        return {"model": "some/model"}


class ChatFake(FakeLanguageModel):
    """Renders chats as LocalLM does, and refuses system roles if told to."""

    def __init__(self, *, system_role: bool = True, **kwargs) -> None:
        super().__init__(**kwargs)
        self.system_role = system_role
        self.threads: set[int] = set()

    def render_chat(self, messages):
        if not self.system_role and any(m["role"] == "system" for m in messages):
            raise ConfigurationError("no system role")
        return tuple(Segment(f"<{m['role']}>{m['content']}</>") for m in messages)

    def generate(self, prompts, **options):
        self.threads.add(threading.get_ident())
        return super().generate(prompts, **options)


class StreamingFake(ChatFake):
    def stream(self, prompt, *, max_new_tokens, temperature, top_p, seed, stop):
        for piece in ("All", " aboard", "!"):
            self.threads.add(threading.get_ident())
            yield piece
        return Generation("All aboard!", 7, 3, "stop")


def test_a_reply_comes_with_its_usage_and_how_it_ended():
    model = LocalChatModel(model=ChatFake(replies={"colour": "Blue it is"}))
    message = model.invoke("Name a colour.")
    assert isinstance(message, AIMessage)
    assert message.content == "Blue it is"
    assert message.usage_metadata["output_tokens"] == 3
    assert message.usage_metadata["total_tokens"] == message.usage_metadata["input_tokens"] + 3
    assert message.response_metadata["finish_reason"] == "stop"


def test_options_of_a_call_replace_those_of_the_model():
    model = LocalChatModel(model=ChatFake(replies={"": "one two three four"}), max_tokens=3)
    assert model.invoke("go").content == "one two three"
    assert model.invoke("go", max_tokens=2).content == "one two"
    assert model.invoke("go").response_metadata["finish_reason"] == "length"
    assert model.invoke("go", stop=["three"]).content == "one two "


def test_several_turns_keep_their_roles_and_their_order():
    fake = ChatFake()
    LocalChatModel(model=fake).invoke(
        [
            SystemMessage("Be brief."),
            HumanMessage("Hello"),
            AIMessage("Hi"),
            HumanMessage([{"type": "text", "text": "How are you?"}]),
        ]
    )
    assert fake.prompts == [
        "<system>Be brief.</><user>Hello</><assistant>Hi</><user>How are you?</>"
    ]


def test_neighbours_of_one_role_become_one_turn():
    fake = ChatFake()
    LocalChatModel(model=fake).invoke(
        [
            HumanMessage("Look it up"),
            AIMessage("", tool_calls=[{"name": "find", "args": {"q": "x"}, "id": "1"}]),
            ToolMessage("found", tool_call_id="1", name="find"),
            HumanMessage("And?"),
        ]
    )
    assert fake.prompts == [
        "<user>Look it up</><assistant>[calls find({'q': 'x'})]</>"
        "<user>[result of find]\nfound\n\nAnd?</>"
    ]


def test_a_template_without_a_system_role_gets_the_instruction_as_the_user():
    fake = ChatFake(system_role=False)
    LocalChatModel(model=fake).invoke([SystemMessage("Be brief."), HumanMessage("Hello")])
    assert fake.prompts == ["<user>Be brief.\n\nHello</>"]


def test_a_model_that_renders_no_chats_gets_a_transcript():
    fake = FakeLanguageModel()
    model = LocalChatModel(model=fake)
    model.invoke("Hello")
    model.invoke([HumanMessage("Hello"), AIMessage("Hi"), HumanMessage("Bye")])
    assert fake.prompts == ["Hello\n", "User: Hello\nAssistant: Hi\nUser: Bye\n"]


def test_streamed_pieces_join_to_the_reply_and_the_last_carries_the_usage():
    model = LocalChatModel(model=ChatFake(replies={"": " one  two\nthree "}))
    whole = model.invoke("go")
    chunks = list(model.stream("go"))
    assert len(chunks) > 3
    joined = sum(chunks[1:], chunks[0])
    assert isinstance(joined, AIMessageChunk)
    assert joined.content == whole.content
    assert joined.usage_metadata == whole.usage_metadata
    assert joined.response_metadata["finish_reason"] == "stop"


async def test_a_model_that_streams_is_streamed_off_the_event_loop():
    fake = StreamingFake()
    model = LocalChatModel(model=fake)
    chunks = [chunk async for chunk in model.astream("go")]
    assert [chunk.content for chunk in chunks if chunk.content] == ["All", " aboard", "!"]
    assert sum(chunks[1:], chunks[0]).usage_metadata["output_tokens"] == 3
    assert threading.get_ident() not in fake.threads
    assert [c.content for c in model.stream("go")][:3] == ["All", " aboard", "!"]


async def test_the_model_runs_off_the_event_loop():
    fake = ChatFake()
    model = LocalChatModel(model=fake)
    await asyncio.gather(*(model.ainvoke(f"hello {n}") for n in range(4)))
    _ = [chunk async for chunk in model.astream("hello")]
    assert len(fake.prompts) == 5
    assert threading.get_ident() not in fake.threads


def test_tokens_are_counted_by_the_models_own_tokenizer():
    model = LocalChatModel(model=FakeLanguageModel())
    assert model.get_num_tokens("three little words") == 3
    assert model.get_num_tokens_from_messages([HumanMessage("one two"), AIMessage("three")]) == 3


def test_an_image_is_refused():
    message = HumanMessage([{"type": "image", "url": "https://example.com/a.png"}])
    with pytest.raises(InvalidInputError, match="text only"):
        LocalChatModel(model=FakeLanguageModel()).invoke([message])


def test_tools_are_refused():
    with pytest.raises(InvalidInputError, match="does not call tools"):
        LocalChatModel(model=FakeLanguageModel()).invoke("hi", tools=[{"type": "function"}])


def test_options_out_of_range_are_refused_at_construction():
    for options in ({"max_tokens": 0}, {"temperature": -1}, {"top_p": 0}):
        with pytest.raises(ValidationError):
            LocalChatModel(model="some/model", **options)


@pytest.mark.model
def test_the_bundled_model_holds_a_conversation(bundled_lm):
    model = LocalChatModel(model=bundled_lm, max_tokens=24)
    turns = [
        HumanMessage("My name is Quillon."),
        AIMessage("Nice to meet you, Quillon."),
        HumanMessage("Repeat my name. Answer with the name only."),
    ]
    message = model.invoke(turns)
    assert "Quillon" in message.content
    assert 0 < message.usage_metadata["output_tokens"] <= 24
    chunks = list(model.stream(turns))
    assert sum(chunks[1:], chunks[0]).content == message.content
