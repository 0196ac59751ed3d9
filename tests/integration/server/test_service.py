"""Limits of requests, and silent, slow and vanished clients."""

import asyncio
import socket
import threading
import time

import httpx
import pytest
import uvicorn

from ecs_plugins.errors import ModelBusyError, StorageError
from ecs_plugins.memory import EntropicMemory
from ecs_plugins.ranking.embedder import FakeEmbedder
from ecs_plugins.server import running, service
from ecs_plugins.server.rerank import rerank_app
from ecs_plugins.server.service import Bounds
from ecs_plugins.server.tools import mcp_app, mcp_server
from ecs_plugins.server.turns import LARGE, Turns
from tests.integration.server.conftest import Patient, calling, shaper_on

BODY = {
    "query": "When does the ferry leave?",
    "texts": ["The ferry leaves at nine.", "Tea."],
}
ANAS = "a" * 16
BENS = "b" * 16
TOKENS = {ANAS: "ana", BENS: "ben"}


def app(model=None, **options):
    return rerank_app(shaper_on(model), **options)


def ask(url):
    return httpx.post(f"{url}/rerank", json=BODY, timeout=30)


def connected(url, sent=b""):
    """A connection on which this is sent and no more."""
    host, port = url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=10)
    connection.sendall(sent)
    return connection


def is_closed(connection):
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


HEAD = b"POST /rerank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def test_silent_connections_stop_nobody_and_are_closed(serve, monkeypatch):
    monkeypatch.setattr(running, "SILENT_SECONDS", 0.5)
    url = serve(app(bounds=Bounds(requests=4)))
    silent = [connected(url) for _ in range(20)]
    silent += [connected(url, HEAD) for _ in range(20)]
    assert ask(url).status_code == 200
    for connection in silent:
        assert is_closed(connection)


def test_too_many_connections_close_the_most_silent(serve, monkeypatch):
    monkeypatch.setattr(running, "CONNECTIONS", 4)
    url = serve(app())
    silent = [connected(url) for _ in range(6)]
    assert ask(url).status_code == 200
    assert is_closed(silent[0])


def test_a_body_that_does_not_arrive_is_not_waited_for(serve):
    url = serve(app(bounds=Bounds(body_seconds=0.2)))
    slow = connected(url, HEAD + b"Content-Length: 100\r\n\r\n{")
    assert b" 408 " in slow.recv(1000)


def test_work_stops_when_its_client_hangs_up(serve):
    model = Patient()
    url = serve(app(model))
    impatient = httpx.Timeout(5, read=0.5)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{url}/rerank", json=BODY, timeout=impatient)
    assert model.begun.is_set()
    assert model.given_up.wait(5)
    metrics = httpx.get(f"{url}/metrics").text
    assert 'ecs_rerank_requests_total{status="499"} 1.0' in metrics


def test_an_answer_that_takes_too_long_is_504_and_its_work_stops(serve):
    model = Patient()
    bounds = Bounds(seconds=0.3)
    url = serve(app(model, bounds=bounds))
    answer = ask(url)
    assert answer.status_code == 504
    assert "0.3 seconds" in answer.json()["detail"]
    assert model.given_up.wait(5)


async def together(url, tokens):
    """The statuses of requests that are sent at once, each with a token."""
    sent = []
    async with httpx.AsyncClient(timeout=30) as client:
        for token in tokens:
            headers = {"Authorization": f"Bearer {token}"}
            sent.append(client.post(f"{url}/rerank", json=BODY, headers=headers))
        answers = await asyncio.gather(*sent)
    return sorted(answer.status_code for answer in answers)


async def test_one_client_cannot_take_every_place(serve):
    model = Patient()
    bounds = Bounds(requests=4)
    url = serve(app(model, tokens=TOKENS, bounds=bounds))
    let_go = threading.Timer(1.0, model.go_on.set)
    let_go.start()
    tokens = [ANAS] * 6 + [BENS]
    statuses = await together(url, tokens)
    assert statuses == [200] * 4 + [503] * 3


async def test_a_service_that_stops_refuses_and_gives_up_in_time(serve, monkeypatch):
    monkeypatch.setattr(service, "STOP_SECONDS", 0.5)
    application = app(Patient())
    stopping = []
    rest = application._app

    async def stop_at_once(scope, receive, send):
        if scope["type"] == "http" and not stopping:
            stopping.append(True)
            asyncio.get_running_loop().call_later(0.2, application.stop)
        await rest(scope, receive, send)

    application._app = stop_at_once
    url = serve(application)
    begun = time.monotonic()
    statuses = await together(url, ["x"] * 12)
    assert statuses == [503] * 12
    assert time.monotonic() - begun < 5
    ready = httpx.get(f"{url}/ready")
    assert ready.json() == {"status": "stopping"}
    last = ask(url)
    assert (last.status_code, last.headers["connection"]) == (503, "close")


def test_an_answer_while_stopping_closes_its_connection(serve):
    model = Patient()
    application = app(model)
    url = serve(application)
    loops = []
    rest = application._app

    async def seen(scope, receive, send):
        loops.append(asyncio.get_running_loop())
        await rest(scope, receive, send)

    application._app = seen
    answers = []
    asking = threading.Thread(target=lambda: answers.append(ask(url)))
    asking.start()
    assert model.begun.wait(5)
    loops[0].call_soon_threadsafe(application.stop)
    while httpx.get(f"{url}/ready").status_code == 200:
        time.sleep(0.01)
    model.go_on.set()
    asking.join(10)
    (answer,) = answers
    assert (answer.status_code, answer.headers["connection"]) == (200, "close")


# Turns


async def order_of(turns, wanted):
    """In which order requests of (client, size) are served, if all come while one is computed."""
    served = []
    begin = threading.Event()

    async def first():
        await turns.compute("first", 1, begin.wait)

    async def request(client, size):
        await turns.compute(client, size, served.append, (client, size))

    busy = asyncio.create_task(first())
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(request(*each)) for each in wanted]
    await asyncio.sleep(0)
    begin.set()
    await asyncio.gather(busy, *waiting)
    return served


async def test_clients_take_turns():
    wanted = [("ana", 10)] * 5 + [("ben", 10)] * 2
    served = await order_of(Turns(slots=1), wanted)
    clients = [client for client, _ in served]
    assert clients == ["ana", "ben", "ana", "ben", "ana", "ana", "ana"]


async def test_a_small_request_goes_before_the_large_ones_of_the_same_client():
    large = 10 * LARGE
    wanted = [("ana", large), ("ana", large), ("ana", 10)]
    served = await order_of(Turns(slots=1), wanted)
    sizes = [size for _, size in served]
    assert sizes == [10, large, large]


async def test_only_one_large_request_is_computed_at_a_time():
    turns = Turns(slots=4)
    at_once = []
    running_now = []

    def work():
        running_now.append(1)
        at_once.append(len(running_now))
        time.sleep(0.05)
        running_now.pop()

    async def request(size):
        await turns.compute("ana", size, work)

    large = [request(2 * LARGE) for _ in range(4)]
    await asyncio.gather(*large)
    assert max(at_once) == 1
    small = [request(10) for _ in range(4)]
    await asyncio.gather(*small)
    assert max(at_once) == 4


async def test_a_request_that_is_given_up_while_it_waits_takes_no_place():
    turns = Turns(slots=1)
    held = asyncio.create_task(hold(turns, 0.1))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(hold(turns, 0))
    await asyncio.sleep(0)
    waiting.cancel()
    await held
    async with asyncio.timeout(1):
        await hold(turns, 0)


async def test_a_turn_lasts_until_its_thread_is_free():
    turns = Turns(slots=1)
    go_on = threading.Event()
    left = asyncio.create_task(turns.compute("ana", 10, go_on.wait, 20))
    await asyncio.sleep(0.05)
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    waiting = asyncio.create_task(hold(turns, 0))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    go_on.set()
    async with asyncio.timeout(5):
        await waiting


async def hold(turns, seconds):
    await turns.compute("ana", 10, time.sleep, seconds)


async def test_whoever_waits_is_refused_when_turns_are_closed():
    turns = Turns(slots=1)
    held = asyncio.create_task(hold(turns, 0.1))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(hold(turns, 0))
    await asyncio.sleep(0)
    turns.close()
    with pytest.raises(ModelBusyError):
        await waiting
    with pytest.raises(ModelBusyError):
        await hold(turns, 0)
    await held


# What an operator sees


@pytest.mark.parametrize(
    ("tool", "arguments", "status", "kind", "ready"),
    [
        ("remember", {"text": "x y z"}, 507, "StorageError", 503),
        ("remember", {"text": 5}, 422, "InvalidInputError", 200),
        ("forget", {"id": "no such id"}, 422, "InvalidInputError", 200),
        ("no_such_tool", {}, 422, "InvalidInputError", 200),
        ("shape", {"question": "q", "passages": ["a"]}, 500, "EcsPluginsError", 200),
    ],
)
async def test_a_failing_tool_counts_under_its_own_status(tool, arguments, status, kind, ready):
    memory = EntropicMemory.open(":memory:", embedder=FakeEmbedder(8))

    async def full(*_args, **_keywords):
        raise StorageError("the disk is full")

    memory.aadd = full
    application = mcp_app(mcp_server(memory, lambda: None))
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments},
    }
    headers = {"Accept": "application/json, text/event-stream"}
    transport = httpx.ASGITransport(application)
    async with (
        application._app.router.lifespan_context(application._app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        assert (await client.get("/ready")).status_code == 200
        answer = await client.post("/mcp", headers=headers, json=call)
        shown = (await client.get("/metrics")).text
        assert answer.status_code == 200
        assert f'ecs_mcp_requests_total{{status="{status}"}} 1.0' in shown
        assert f'ecs_mcp_errors_total{{kind="{kind}"}} 1.0' in shown
        assert 'le="120.0"' in shown
        assert (await client.get("/ready")).status_code == ready


async def test_a_closed_memory_is_not_ready():
    memory = EntropicMemory.open(":memory:", embedder=FakeEmbedder(8))
    server = mcp_server(memory, lambda: None)
    assert server.is_ready()
    memory.close()
    assert not server.is_ready()


def test_bodies_under_way_are_bounded_in_sum(serve):
    model = Patient()
    url = serve(app(model, bounds=Bounds(waiting_bytes=150)))
    asking = threading.Thread(target=ask, args=(url,))
    asking.start()
    assert model.begun.wait(5)
    refused = ask(url)
    model.go_on.set()
    asking.join(10)
    assert refused.status_code == 503
    assert "under way" in refused.json()["detail"]
    assert ask(url).status_code == 200


def test_connections_are_bounded_by_the_file_descriptors(monkeypatch):
    resource = pytest.importorskip("resource")
    for limit, most in [(256, 128), (10_000, 768), (resource.RLIM_INFINITY, 768)]:
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        assert running.most_connections() == most


def test_errors_of_new_connections_are_logged_once_a_minute(caplog):
    server = running._Server(uvicorn.Config(None), None, None)
    context = {"message": "socket.accept() out of system resource", "exception": OSError(24)}
    for _ in range(100):
        server._report(None, context)
    assert len(caplog.records) == 1


def test_an_attribution_that_reads_too_much_is_refused_before_it_begins():
    body = {
        "query": "x" * 8_000,
        "answer": "It leaves at nine. " * 1_000,
        "documents": ["word " * 1_000] * 1_000,
    }
    answer = calling(app()).post("/v1/attribute", json=body)
    assert answer.status_code == 422
    assert "pass fewer" in answer.json()["detail"]
