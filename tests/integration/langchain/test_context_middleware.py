import threading

import pytest
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import create_retriever_tool, tool
from scripted_model import ScriptedModel

from ecs_plugins.langchain import ECSContextMiddleware, ECSDocumentCompressor
from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.shaping import ShapingConfig

QUESTION = "In which city does Maria live now?"
EVIDENCE = "The city in which Maria does live now is Lisbon."
TEXTS = (
    "The ferry to the island leaves at nine.",
    "Grilled sardines taste best in June.",
    EVIDENCE,
    "A kettle stands on the stove.",
)
GIVEN_ORDER = ShapingConfig(ranker=None, redundancy_similarity=None)


class EveryDocument(BaseRetriever):
    def _get_relevant_documents(self, query, *, run_manager):
        return [Document(page_content=text, id=f"d{i}") for i, text in enumerate(TEXTS)]


search = create_retriever_tool(
    EveryDocument(), "search", "Search.", response_format="content_and_artifact"
)


@tool
def read_page(query: str) -> str:
    """A long page."""
    return "\n".join(f"{text} " + "Nothing else is known about it. " * 25 for text in TEXTS)


def calls(name, **args) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": "c1", "type": "tool_call"}])


def compressor(**fields) -> ECSDocumentCompressor:
    return ECSDocumentCompressor(
        **{"model": FakeLanguageModel(), "config": GIVEN_ORDER, "top_k": 1, **fields}
    )


def run(middleware, call, *, tools=(search, read_page), messages=(), model=None):
    model = model or ScriptedModel(replies=[call, "done"])
    built = create_agent(model, list(tools), system_prompt="Rules.", middleware=[middleware])
    result = built.invoke({"messages": [*messages, HumanMessage(QUESTION)]})
    return model, result


def test_the_documents_of_a_retriever_tool_are_shaped_once():
    _, result = run(ECSContextMiddleware(compressor()), calls("search", query=QUESTION))
    message = result["messages"][-2]
    assert isinstance(message, ToolMessage)
    assert message.content == EVIDENCE
    assert message.tool_call_id == "c1"
    assert [document.id for document in message.artifact] == ["d2"]
    assert message.artifact[0].metadata["ecs"]["original_rank"] == 3


def test_results_without_documents_are_left_alone_unless_their_tool_is_named():
    _, result = run(ECSContextMiddleware(compressor()), calls("read_page", query=QUESTION))
    assert all(text in result["messages"][-2].content for text in TEXTS)
    named = ECSContextMiddleware(compressor(), tools=["read_page"])
    _, result = run(named, calls("read_page", query=QUESTION))
    content = result["messages"][-2].content
    assert EVIDENCE in content
    assert "sardines" not in content
    _, result = run(named, calls("search", query=QUESTION))
    assert len(result["messages"][-2].artifact) == 4


def test_without_a_query_argument_the_users_question_counts():
    middleware = ECSContextMiddleware(compressor(), query_argument="absent")
    _, result = run(middleware, calls("search", query="sardines in June"))
    assert result["messages"][-2].content == EVIDENCE


def test_when_nothing_helps_the_result_says_so():
    strict = compressor(top_k=None, threshold=1e9)
    _, result = run(ECSContextMiddleware(strict), calls("search", query=QUESTION))
    assert "Nothing in this result" in result["messages"][-2].content
    assert result["messages"][-2].artifact == []


async def test_async_agents_are_shaped_off_the_event_loop():
    threads: set[int] = set()

    class Watched(FakeLanguageModel):
        def score(self, requests):
            threads.add(threading.get_ident())
            return super().score(requests)

    middleware = ECSContextMiddleware(compressor(model=Watched()), history_tokens=60)
    model = ScriptedModel(replies=[calls("search", query=QUESTION), "done"])
    built = create_agent(model, [search], middleware=[middleware])
    messages = [*history(), HumanMessage(QUESTION)]
    result = await built.ainvoke({"messages": messages})
    assert result["messages"][-2].content == EVIDENCE
    assert "sardines" not in model.prompt
    assert threads
    assert threading.get_ident() not in threads


def history() -> list:
    """Four turns; the third holds the evidence, the second a tool call."""
    return [
        HumanMessage(TEXTS[0] + " It is a fine boat."),
        AIMessage("Is it?"),
        HumanMessage(TEXTS[1] + " Will it rain?"),
        AIMessage("", tool_calls=[{"name": "sky", "args": {}, "id": "s1", "type": "tool_call"}]),
        ToolMessage("rain", tool_call_id="s1", name="sky"),
        AIMessage("It will rain."),
        HumanMessage(EVIDENCE),
        AIMessage("Good to know."),
        HumanMessage(TEXTS[3]),
        AIMessage("Noted."),
    ]


def prompts_of(messages, **options):
    model = ScriptedModel(replies=["done"])
    middleware = ECSContextMiddleware(compressor(), **options)
    built = create_agent(model, [], system_prompt="Rules.", middleware=[middleware])
    result = built.invoke({"messages": [*messages, HumanMessage(QUESTION)]})
    return model.prompts[-1], result["messages"]


def test_old_turns_that_do_not_help_are_left_out_of_the_view_only():
    prompt, state = prompts_of(history(), history_tokens=60)
    texts = [message.text for message in prompt]
    assert texts == ["Rules.", EVIDENCE, "Good to know.", TEXTS[3], "Noted.", QUESTION]
    assert len(state) == len(history()) + 2


@pytest.mark.parametrize("budget", [1, 20, 30, 40, 50, 60, 70, 80, 90])
@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_no_call_is_parted_from_its_result_and_no_system_message_dropped(budget, top_k):
    messages = [SystemMessage("A rule in between."), *history()]
    model = ScriptedModel(replies=["done"])
    middleware = ECSContextMiddleware(compressor(top_k=top_k), history_tokens=budget)
    create_agent(model, [], system_prompt="Rules.", middleware=[middleware]).invoke(
        {"messages": [*messages, HumanMessage(QUESTION)]}
    )
    prompt = model.prompts[-1]
    asked = [c["id"] for m in prompt if isinstance(m, AIMessage) for c in m.tool_calls]
    assert asked == [m.tool_call_id for m in prompt if isinstance(m, ToolMessage)]
    assert [m.text for m in prompt if isinstance(m, SystemMessage)] == [
        "Rules.",
        "A rule in between.",
    ]
    assert prompt[-1].text == QUESTION
