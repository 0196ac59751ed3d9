import pickle
import threading

import pytest
from llama_index.core import Settings, SummaryIndex
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.schema import TextNode

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.llama_index import LocalLLM
from ecs_plugins.lm import FakeLanguageModel, Segment


class ChatFake(FakeLanguageModel):
    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self.threads: set[int] = set()
        self.trusted: list[bool] = []

    def render_chat(self, messages):
        return tuple(Segment(f"<{m['role']}>{m['content']}</>") for m in messages)

    def generate(self, prompts, **options):
        self.threads.add(threading.get_ident())
        self.trusted += [prompt[0].trusted for prompt in prompts]
        return super().generate(prompts, **options)


CONVERSATION = [
    ChatMessage(role="system", content="Be brief."),
    ChatMessage(role="user", content="Hello"),
    ChatMessage(role="assistant", content="Hi"),
    ChatMessage(role="tool", content="42", additional_kwargs={"name": "count"}),
]
RENDERED = "<system>Be brief.</><user>Hello</><assistant>Hi</><user>[result of count]\n42</>"


def test_a_chat_keeps_roles_and_counts_tokens():
    fake = ChatFake(replies={"Hello": "Good day"})
    response = LocalLLM(model=fake).chat(CONVERSATION)
    assert fake.prompts == [RENDERED]
    assert response.message.role == "assistant"
    assert response.message.content == "Good day"
    assert response.additional_kwargs["completion_tokens"] == 2


def test_options_of_a_call_replace_those_of_the_model():
    llm = LocalLLM(model=ChatFake(replies={"": "one two three"}), max_tokens=2)
    assert llm.complete("go").text == "one two"
    assert llm.complete("go", max_tokens=1).text == "one"
    assert llm.complete("go").additional_kwargs["finish_reason"] == "length"


def test_a_completion_is_a_user_turn_unless_it_is_formatted():
    fake = ChatFake()
    llm = LocalLLM(model=fake, system_prompt="Be kind.")
    llm.complete("Hello")
    llm.complete("<raw>Hello", formatted=True)
    assert fake.prompts == ["<system>Be kind.</><user>Hello</>", "<raw>Hello"]
    assert fake.trusted == [False, True]


def test_streams_join_to_the_whole_reply():
    llm = LocalLLM(model=ChatFake(replies={"": "one  two\nthree"}))
    chat = list(llm.stream_chat(CONVERSATION))
    assert "".join(part.delta for part in chat) == chat[-1].message.content == "one  two\nthree"
    assert chat[-1].additional_kwargs["completion_tokens"] == 3
    completion = list(llm.stream_complete("go"))
    assert "".join(part.delta for part in completion) == completion[-1].text == "one  two\nthree"


async def test_the_model_runs_off_the_event_loop():
    fake = ChatFake(replies={"": "one two"})
    llm = LocalLLM(model=fake)
    assert (await llm.achat(CONVERSATION)).message.content == "one two"
    assert (await llm.acomplete("go")).text == "one two"
    chat = [part async for part in await llm.astream_chat(CONVERSATION)]
    completion = [part async for part in await llm.astream_complete("go")]
    assert chat[-1].message.content == completion[-1].text == "one two"
    assert threading.get_ident() not in fake.threads


def test_an_image_and_tools_are_refused():
    message = ChatMessage(role="user", blocks=[TextBlock(text="see"), ImageBlock(url="http://x/y")])
    with pytest.raises(InvalidInputError, match="text only"):
        LocalLLM(model=ChatFake()).chat([message])
    with pytest.raises(InvalidInputError, match="does not call tools"):
        LocalLLM(model=ChatFake()).chat(CONVERSATION, tools=[{}])


def test_it_serialises_as_its_name_and_loads_nothing():
    llm = LocalLLM(model="some/model", max_tokens=7)
    back = LocalLLM.from_dict(llm.to_dict())
    assert (back.model, back.max_tokens) == ("some/model", 7)


def test_it_answers_in_a_query_engine(monkeypatch):
    monkeypatch.setattr(Settings, "_embed_model", MockEmbedding(embed_dim=8))
    fake = ChatFake(replies={"harbour": "at nine"})
    index = SummaryIndex([TextNode(text="The ferry leaves the harbour at nine.")])
    engine = index.as_query_engine(llm=LocalLLM(model=fake))
    assert str(engine.query("When does the ferry leave?")) == "at nine"
    assert "The ferry leaves the harbour at nine." in fake.prompts[-1]


@pytest.mark.model
def test_the_bundled_model_holds_a_conversation(bundled_lm):
    llm = LocalLLM(model=bundled_lm, max_tokens=24)
    turns = [
        ChatMessage(role="user", content="My name is Quillon."),
        ChatMessage(role="assistant", content="Nice to meet you, Quillon."),
        ChatMessage(role="user", content="Repeat my name. Answer with the name only."),
    ]
    assert "Quillon" in llm.chat(turns).message.content


def test_a_model_that_cannot_be_pickled_is_an_error_and_stays_in_place():
    model = FakeLanguageModel(replies=lambda prompt: "one")
    llm = LocalLLM(model=model)
    with pytest.raises((pickle.PicklingError, AttributeError), match="pickle"):
        pickle.dumps(llm)
    assert llm.model is model


def test_it_pickles_as_its_configuration():
    llm = LocalLLM(model=FakeLanguageModel(replies={"colour": "blue"}), max_tokens=7, stop=["."])
    back = pickle.loads(pickle.dumps(llm))
    assert (back.max_tokens, back.stop) == (7, ["."])
    assert str(back.complete("Name a colour.")) == "blue"
