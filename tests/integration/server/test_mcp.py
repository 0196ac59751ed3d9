"""The tools, as the client of the MCP SDK calls them."""

import re
import sys
import time
from contextlib import asynccontextmanager
from datetime import datetime

import httpx
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.server.quota import Quota
from ecs_plugins.server.tools import mcp_app, mcp_server
from ecs_plugins.shaping import ContextShaper

FACT, QUESTION = "The ferry leaves at nine.", "When does the ferry leave?"
TOKENS = {"a" * 16: "ana", "b" * 16: "ben"}


def server(memory, **options):
    return mcp_server(memory, lambda: ContextShaper(FakeLanguageModel()), **options)


def as_client(url, token):
    http = create_mcp_http_client(headers={"Authorization": f"Bearer {token}"})
    return Client(streamable_http_client(f"{url}/mcp", http_client=http))


async def recalled(client, **arguments):
    """What a client recalls about the question."""
    found = await called(client, "recall", question=QUESTION, **arguments)
    return found["recollections"]


@asynccontextmanager
async def two_clients(url):
    """Ana and Ben, each with a token."""
    first, second = TOKENS
    async with as_client(url, first) as ana, as_client(url, second) as ben:
        yield ana, ben


async def called(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    return result.structured_content


async def test_a_client_remembers_recalls_explains_and_forgets(memory):
    async with Client(server(memory, client="ana")) as client:
        id = (await called(client, "remember", text=FACT))["id"]
        (found,) = await recalled(client)
        assert found["text"] == FACT
        explained = await called(client, "explain", id=id)
        assert explained["id"] == id
        receipt = await called(client, "forget", id=id)
        assert receipt["messages"] == [id]
        assert await recalled(client) == []
    assert memory.namespaces() == [("mcp", "ana")]


async def test_a_client_shapes(memory):
    async with Client(server(memory, client="ana")) as client:
        passages = ["Gulls nest on the roof.", FACT]
        shaped = await called(client, "shape", question=QUESTION, passages=passages, top_k=1)
    assert shaped["kept"] == [1]
    verdicts = [each["verdict"] for each in shaped["verdicts"]]
    assert verdicts == ["neutral", "selected"]


async def test_every_tool_says_what_it_does_and_none_takes_a_namespace(memory):
    async with Client(server(memory, client="ana")) as client:
        tools = (await client.list_tools()).tools
    names = {tool.name for tool in tools}
    assert names == {"remember", "recall", "forget", "explain", "shape"}
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
        assert await recalled(client) == []


async def test_clients_over_http_see_nothing_of_each_other(memory, serve):
    url = serve(mcp_app(server(memory), TOKENS))
    async with two_clients(url) as (ana, ben):
        id = (await called(ana, "remember", text=FACT))["id"]
        assert await recalled(ben) == []
        for tool in ("forget", "explain"):
            result = await ben.call_tool(tool, {"id": id})
            assert result.is_error
        assert len(await recalled(ana)) == 1
    assert memory.namespaces() == [("mcp", "ana")]


async def test_a_stranger_over_http_is_refused(memory, serve):
    url = serve(mcp_app(server(memory), TOKENS))
    with pytest.raises(Exception):  # noqa: B017, PT011 (the SDK raises groups of errors)
        async with as_client(url, "c" * 16):
            pass
    assert memory.namespaces() == []


async def test_what_is_recalled_says_who_said_it_and_when(memory):
    async with Client(server(memory, client="ana")) as client:
        await called(client, "remember", text=FACT, speaker="Osric")
        (found,) = await recalled(client, k=None)
    assert found["role"] == "user"
    assert found["speaker"] == "Osric"
    said_at = datetime.fromisoformat(found["time"])
    assert said_at.timestamp() == pytest.approx(time.time(), abs=60)


async def test_a_client_has_a_quota_of_its_own(memory, serve):
    quota = Quota(items=2, bytes=60, bytes_of_one=40)
    url = serve(mcp_app(server(memory, quota=quota), TOKENS))

    async def refused(client, text):
        result = await client.call_tool("remember", {"text": text})
        return result.content[0].text if result.is_error else None

    async with two_clients(url) as (ana, ben):
        assert "40 bytes" in await refused(ana, "x" * 41)
        id = (await called(ana, "remember", text="x" * 40))["id"]
        assert "60" in await refused(ana, "y" * 30)
        await called(ana, "remember", text="tea")
        assert "2 statements" in await refused(ana, "ink")
        await called(ben, "remember", text="ink")
        await called(ana, "forget", id=id)
        await called(ana, "remember", text="ink")


PING = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:8081", 200),
        ("127.0.0.1", 200),
        ("memory.example.org", 200),
        ("memory.example.org:443", 200),
        ("evil.example", 421),
        ("evil.localhost", 421),
    ],
)
def test_it_is_called_by_the_names_that_it_was_given(memory, serve, host, status):
    url = serve(mcp_app(server(memory), TOKENS, hosts=["memory.example.org"]))
    headers = {
        "Authorization": f"Bearer {'a' * 16}",
        "Accept": "application/json, text/event-stream",
        "Host": host,
    }
    answer = httpx.post(f"{url}/mcp", json=PING, headers=headers)
    assert answer.status_code == status
    health = httpx.get(f"{url}/health", headers={"Host": host})
    assert health.json() == {"status": "ok"}
    headers["Origin"] = "https://a.example"
    page = httpx.post(f"{url}/mcp", json=PING, headers=headers)
    assert page.status_code == (403 if status == 200 else status)


async def test_what_it_does_is_measured(memory, serve):
    url = serve(mcp_app(server(memory), TOKENS))
    async with as_client(url, "a" * 16) as ana:
        await called(ana, "remember", text=FACT)
    assert httpx.get(f"{url}/metrics").status_code == 401
    shown = httpx.get(f"{url}/metrics", headers={"Authorization": f"Bearer {'a' * 16}"}).text
    assert float(re.search(r'ecs_mcp_requests_total{status="200"} (\S+)', shown)[1]) > 0


@pytest.mark.slow
async def test_the_command_serves_over_stdio(tmp_path):
    arguments = ["-m", "ecs_plugins", "mcp", "--db", str(tmp_path / "agent.db")]
    async with Client(StdioServerParameters(command=sys.executable, args=arguments)) as client:
        await called(client, "remember", text=FACT)
        (found,) = await recalled(client)
    assert found["text"] == FACT
