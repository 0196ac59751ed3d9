"""The tools, as the client of the MCP SDK calls them."""

import sys

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.server.tools import mcp_app, mcp_server
from ecs_plugins.shaping import ContextShaper

FACT, QUESTION = "The ferry leaves at nine.", "When does the ferry leave?"
TOKENS = {"a" * 16: "ana", "b" * 16: "ben"}


def server(memory, **options):
    return mcp_server(memory, lambda: ContextShaper(FakeLanguageModel()), **options)


def as_client(url, token):
    http = create_mcp_http_client(headers={"Authorization": f"Bearer {token}"})
    return Client(streamable_http_client(f"{url}/mcp", http_client=http))


async def called(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    return result.structured_content


async def test_a_client_remembers_recalls_explains_and_forgets(memory):
    async with Client(server(memory, client="ana")) as client:
        id = (await called(client, "remember", text=FACT))["id"]
        (found,) = (await called(client, "recall", question=QUESTION))["recollections"]
        assert found["text"] == FACT
        assert (await called(client, "explain", id=id))["id"] == id
        assert (await called(client, "forget", id=id))["messages"] == [id]
        assert (await called(client, "recall", question=QUESTION))["recollections"] == []
    assert memory.namespaces() == [("mcp", "ana")]


async def test_a_client_shapes(memory):
    async with Client(server(memory, client="ana")) as client:
        passages = ["Gulls nest on the roof.", FACT]
        shaped = await called(client, "shape", question=QUESTION, passages=passages, top_k=1)
    assert shaped["kept"] == [1]
    assert [each["verdict"] for each in shaped["verdicts"]] == ["neutral", "selected"]


async def test_every_tool_says_what_it_does_and_none_takes_a_namespace(memory):
    async with Client(server(memory, client="ana")) as client:
        tools = (await client.list_tools()).tools
    assert {tool.name for tool in tools} == {"remember", "recall", "forget", "explain", "shape"}
    for tool in tools:
        assert tool.description
        properties = tool.input_schema["properties"]
        assert "namespace" not in properties
        assert all(each.get("description") for each in properties.values())


@pytest.mark.parametrize(
    ("tool", "arguments", "says"),
    [
        ("remember", {"text": "  "}, "needs text"),
        ("remember", {}, "text"),
        ("recall", {"question": QUESTION, "k": 0}, "k"),
        ("forget", {"id": "unknown"}, "unknown"),
        ("explain", {"id": "unknown"}, "unknown"),
        ("shape", {"question": "", "passages": ["a"]}, "query"),
    ],
)
async def test_a_bad_call_is_told_in_words_and_the_server_goes_on(memory, tool, arguments, says):
    async with Client(server(memory, client="ana")) as client:
        refused = await client.call_tool(tool, arguments)
        assert refused.is_error
        assert says in refused.content[0].text
        assert (await called(client, "recall", question=QUESTION))["recollections"] == []


async def test_clients_over_http_see_nothing_of_each_other(memory, serve):
    url = serve(mcp_app(server(memory), TOKENS))
    async with as_client(url, "a" * 16) as ana, as_client(url, "b" * 16) as ben:
        id = (await called(ana, "remember", text=FACT))["id"]
        assert (await called(ben, "recall", question=QUESTION))["recollections"] == []
        for tool in ("forget", "explain"):
            assert (await ben.call_tool(tool, {"id": id})).is_error
        assert len((await called(ana, "recall", question=QUESTION))["recollections"]) == 1
    assert memory.namespaces() == [("mcp", "ana")]


async def test_a_stranger_over_http_is_refused(memory, serve):
    url = serve(mcp_app(server(memory), TOKENS))
    with pytest.raises(Exception):  # noqa: B017, PT011 (the SDK raises groups of errors)
        async with as_client(url, "c" * 16):
            pass
    assert memory.namespaces() == []


@pytest.mark.slow
async def test_the_command_serves_over_stdio(tmp_path):
    arguments = ["-m", "ecs_plugins", "mcp", "--db", str(tmp_path / "agent.db")]
    async with Client(StdioServerParameters(command=sys.executable, args=arguments)) as client:
        await called(client, "remember", text=FACT)
        (found,) = (await called(client, "recall", question=QUESTION))["recollections"]
    assert found["text"] == FACT
