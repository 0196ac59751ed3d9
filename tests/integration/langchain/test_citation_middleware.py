"""Citations inside an agent: of what its tools returned and its memory recalled."""

import pytest
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.langchain import (
    ECSCitationMiddleware,
    ECSCitations,
    EntropicMemoryMiddleware,
)
from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.memory import EntropicMemory
from tests.integration import scripted_model
from tests.integration.citing_setup import ANSWER, PASSAGES, QUESTION, QUOTE, Failing
from tests.integration.scripted_model import FACT, ScriptedModel, asked, call

USER = ("u1",)
THREAD = {"configurable": {"thread_id": "t"}}
SEARCH = call("search", query="tower")


@tool(response_format="content_and_artifact")
def search(query: str):
    """Searches."""
    documents = [Document(text, id=f"d{number}") for number, text in enumerate(PASSAGES)]
    return "2 documents", documents


@tool
def read_prices(query: str) -> str:
    """Reads a page."""
    return PASSAGES[0]


@tool
def read_history(query: str) -> str:
    """Reads another page."""
    return PASSAGES[1]


def agent(model, memory=None, scorer=None, marks=False):
    memories = []
    if memory is not None:
        memories.append(EntropicMemoryMiddleware(memory, namespace=USER))
    citations = ECSCitations(model=scorer or FakeLanguageModel(), marks=marks)
    citing = ECSCitationMiddleware(citations, memories=memories)
    return create_agent(
        model,
        [search, read_prices, read_history],
        middleware=[*memories, citing],
        checkpointer=InMemorySaver(),
    )


def citation_in(state):
    """The one citation of the last message."""
    (block,) = state["messages"][-1].content_blocks
    (citation,) = block["annotations"]
    return citation


async def test_what_a_tool_returned_is_cited_in_the_answer_alone():
    model = ScriptedModel(replies=[SEARCH, ANSWER] * 2)
    built = agent(model)
    states = [built.invoke(asked(QUESTION), THREAD), await built.ainvoke(asked(QUESTION), THREAD)]
    for state in states:
        citation = citation_in(state)
        assert citation["cited_text"] == QUOTE
        assert citation["extras"]["document_id"] == "d1"
    messages = states[-1]["messages"]
    assert len({message.id for message in messages}) == 8
    with_citations = [message for message in messages if "ecs" in message.response_metadata]
    assert [message.text for message in with_citations] == [ANSWER, ANSWER]


def test_the_text_of_a_tool_is_cited_by_the_tools_name():
    prices = call("read_prices", query="x")
    history = call("read_history", query="x")
    model = ScriptedModel(replies=[prices, history, ANSWER])
    citation = citation_in(agent(model).invoke(asked(QUESTION), THREAD))
    assert citation["title"] == "read_history"
    assert citation["cited_text"] == QUOTE


def test_what_a_memory_recalled_is_cited_and_neither_citations_nor_marks_come_back(memory):
    ids = memory.add([FACT, "My sister Quilla paints."], namespace=USER)
    reply = "Your sister Quilla keeps her bees in Tarrow."
    model = ScriptedModel(replies=[reply, "You are welcome."])
    built = agent(model, memory, marks=True)
    state = built.invoke(asked(scripted_model.QUESTION), THREAD)
    citation = citation_in(state)
    assert citation["cited_text"] == FACT
    assert citation["extras"]["document_id"] in ids
    assert "[1]" in state["messages"][-1].text
    built.invoke(asked("Thank you."), THREAD)
    _, earlier, _ = model.prompts[-1]
    assert earlier.content == reply
    log = [message.text for message in memory.messages(USER)]
    assert reply in log
    assert "[1]" not in " ".join(log)


def test_an_agent_without_anything_to_rest_on_is_left_alone():
    model = ScriptedModel(replies=[ANSWER])
    state = agent(model).invoke(asked(QUESTION), THREAD)
    message = state["messages"][-1]
    assert message.content == ANSWER
    assert "ecs" not in message.response_metadata


def test_an_agents_answer_is_never_held_back(caplog):
    model = ScriptedModel(replies=[SEARCH, ANSWER])
    state = agent(model, scorer=Failing()).invoke(asked(QUESTION), THREAD)
    message = state["messages"][-1]
    assert message.content == ANSWER
    assert "not finite" in message.response_metadata["ecs"]["error"]
    assert "without citations" in caplog.text


def test_a_stream_shows_the_answer_and_then_its_citations():
    model = ScriptedModel(replies=[SEARCH, ANSWER])
    updates = list(agent(model).stream(asked(QUESTION), THREAD, stream_mode="updates"))
    *_, plain, with_citations = updates
    assert plain["model"]["messages"][-1].content == ANSWER
    (update,) = with_citations.values()
    assert citation_in(update)["cited_text"] == QUOTE


@pytest.mark.parametrize("wrong", [{"citations": "x"}, {"memories": ["x"]}, {"memory": None}])
def test_what_it_is_made_of_is_checked(wrong):
    with pytest.raises(ConfigurationError):
        ECSCitationMiddleware(**wrong)


@pytest.mark.parametrize("teach", [False, True])
def test_an_answers_citations_teach_the_memory_if_asked(memory, monkeypatch, teach):
    told = []
    observe = EntropicMemory.observe

    def watched(self, *args, **options):
        told.append(options["shares"])
        observe(self, *args, **options)

    monkeypatch.setattr(EntropicMemory, "observe", watched)
    memory.add([FACT, "My sister Quilla paints."], namespace=USER)
    remembering = EntropicMemoryMiddleware(memory, namespace=USER, teach=teach)
    citations = ECSCitations(model=FakeLanguageModel())
    citing = ECSCitationMiddleware(citations, memories=[remembering])
    model = ScriptedModel(replies=["Your sister Quilla keeps her bees in Tarrow."])
    built = create_agent(model, [], middleware=[remembering, citing])
    built.invoke(asked(scripted_model.QUESTION))
    (shares,) = told
    if not teach:
        assert shares is None
        return
    by_text = {memory.get(id).text: share for id, share in shares.items()}
    assert by_text[FACT] > 0.3
    assert by_text["My sister Quilla paints."] < by_text[FACT]
