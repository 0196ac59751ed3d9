"""Results of tools that are lists of content blocks, as those of MCP tools are."""

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool

from ecs_plugins.langchain import ECSContextMiddleware, ECSDocumentCompressor
from ecs_plugins.lm import FakeLanguageModel
from tests.integration.scripted_model import ScriptedModel, call

FERRY = "Line 77: the ferry leaves at 18:40 on day 77."
LINES = [f"Line {n}: the tram was late and it rained on the lot on day {n}." for n in range(120)]
LONG = "\n".join([*LINES[:77], FERRY, *LINES[78:]])
RAIN = "\n".join(LINES)
PICTURE = {"type": "image", "source_type": "url", "url": "http://x/y.png"}
JSON = {"type": "text", "text": '{"ferry": ["18:40"]}'}


def text(words):
    return {"type": "text", "text": words}


async def read(content, mode):
    """Content of the tool's result as the agent reads it."""

    @tool
    def look(query: str):
        """Look something up."""
        return content

    question = "When does the ferry leave?"
    compressor = ECSDocumentCompressor(model=FakeLanguageModel(), top_k=2)
    agent = create_agent(
        ScriptedModel(replies=[call("look", query=question), "ok"]),
        [look],
        middleware=[ECSContextMiddleware(compressor, tools=["look"])],
    )
    given = {"messages": [HumanMessage(question)]}
    result = await agent.ainvoke(given) if mode == "async" else agent.invoke(given)
    (message,) = [each for each in result["messages"] if isinstance(each, ToolMessage)]
    return message.content


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize(
    "content",
    [
        [text(LONG)],
        [text(LONG), PICTURE],
        [PICTURE, text(LONG)],
        [text(RAIN), PICTURE, text(LONG)],
        [JSON, text(LONG)],
    ],
)
async def test_texts_are_shaped_and_other_blocks_stay_in_order(content, mode):
    shown = await read(content, mode)
    assert [block["type"] for block in shown] == [block["type"] for block in content]
    assert FERRY in str(shown)
    assert len(str(shown)) < len(str(content)) / 2
    for before, after in zip(content, shown, strict=True):
        if before in (PICTURE, JSON):
            assert {**after, "id": None} == {**before, "id": None}


async def test_one_short_block_is_unchanged():
    (block,) = await read([text("The ferry leaves at nine.")], "sync")
    assert block["text"] == "The ferry leaves at nine."
