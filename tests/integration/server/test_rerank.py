"""The rerank endpoint, as the clients of other services call it."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from langchain_cohere import CohereRerank as LangChainCohereRerank
from langchain_core.documents import Document
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.postprocessor.cohere_rerank import CohereRerank
from llama_index.postprocessor.jinaai_rerank import JinaRerank
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

from ecs_plugins.errors import (
    ConfigurationError,
    ModelBusyError,
    ModelTimeoutError,
    ScoringError,
    StorageError,
)
from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.server.access import check_host, read_tokens
from ecs_plugins.server.requests import LONGEST_QUERY
from ecs_plugins.server.rerank import PATHS, rerank_app
from ecs_plugins.server.running import Loading
from ecs_plugins.server.service import Bounds
from tests.integration.server.conftest import calling, shaper_on

QUESTION = "When does the ferry leave?"
TEXTS = ["Gulls nest on the roof.", "The ferry does leave at nine, when the bell rings.", "Tea."]
ANSWER = 1
TOKEN = "0123456789abcdef"


def app(model=None, **options):
    return rerank_app(shaper_on(model), **options)


def post(client, path="/v1/rerank", **body):
    return client.post(path, json={"query": QUESTION, **body})


def ranked(client, path="/v1/rerank", **body):
    """The results for the question, best first."""
    answer = post(client, path, **body)
    return answer.json()["results"]


def indices(results):
    return [each["index"] for each in results]


@pytest.mark.parametrize(
    "make",
    [
        lambda url: JinaRerank(base_url=url, api_key=TOKEN, top_n=2),
        lambda url: JinaRerank(base_url=f"{url}/v1", api_key=TOKEN, top_n=2),
        lambda url: CohereRerank(base_url=url, api_key=TOKEN, top_n=2),
        lambda url: TextEmbeddingInference(base_url=url, auth_token=f"Bearer {TOKEN}", top_n=2),
    ],
)
def test_clients_of_llama_index_rerank(serve, make):
    nodes = [NodeWithScore(node=TextNode(text=text)) for text in TEXTS]
    url = serve(app(tokens={TOKEN: "ana"}))
    client = make(url)
    best, second = client.postprocess_nodes(nodes, query_str=QUESTION)
    assert best.node.text == TEXTS[ANSWER]
    assert best.score > second.score


def test_a_client_of_langchain_reranks(serve):
    url = serve(app(tokens={TOKEN: "ana"}))
    client = LangChainCohereRerank(base_url=url, cohere_api_key=TOKEN, model="any", top_n=1)
    documents = [Document(text) for text in TEXTS]
    (found,) = client.compress_documents(documents, QUESTION)
    assert found.page_content == TEXTS[ANSWER]
    assert 0 < found.metadata["relevance_score"] < 1


@pytest.mark.parametrize("path", PATHS)
def test_both_forms_are_answered_on_every_path(path):
    client = calling(app())
    asked = {"documents": TEXTS, "model": "any", "return_documents": True}
    cohere = post(client, path, **asked).json()
    tei = post(client, path, texts=TEXTS, return_text=True).json()
    assert indices(cohere["results"]) == indices(tei)
    best = cohere["results"][0]
    assert best["document"] == {"text": TEXTS[ANSWER]}
    assert tei[0]["text"] == TEXTS[ANSWER]
    assert all(0 <= each["score"] <= 1 for each in tei)
    assert cohere["model"] == FakeLanguageModel().name


def test_documents_may_be_objects_with_a_text_and_none_at_all():
    client = calling(app())
    documents = [{"text": text} for text in TEXTS]
    (found,) = ranked(client, documents=documents, top_n=1)
    assert found["index"] == ANSWER
    assert "document" not in found
    assert ranked(client, documents=[]) == []


def test_every_document_is_ranked_also_empty_repeated_and_passed_over_ones():
    others = [f"Nothing of note on day {day}." for day in range(60)]
    texts = ["", *TEXTS, TEXTS[ANSWER], *others]
    found = ranked(calling(app()), documents=texts)
    order = indices(found)
    assert sorted(order) == list(range(len(texts)))
    assert order[:2] == [ANSWER + 1, len(TEXTS) + 1]
    best, second, *_, last = found
    assert best["relevance_score"] == second["relevance_score"]
    assert last == {"index": 0, "relevance_score": 0.0}


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"{", 422, "JSON"),
        (b'{"query": "q"}', 422, "documents"),
        (b'{"query": "q", "documents": ["a", 5]}', 422, "documents.1"),
        (b'{"query": "q", "documents": [{"title": "a"}]}', 422, "documents.0: send a text"),
        (
            b'{"query": "' + b"q" * 9000 + b'", "documents": ["a"]}',
            422,
            "at most 8000",
        ),
        (b'{"query": "q", "texts": [1]}', 422, "texts.0"),
        (b'{"query": " ", "documents": ["a"]}', 422, "query"),
        (b'{"query": "q", "documents": ["a"], "top_n": 0}', 422, "top_n"),
        (b'{"query": "q", "documents": [' + b'"a",' * 1000 + b'"a"]}', 422, "at most 1000"),
        (b'{"query": "q", "documents": ["' + b"a" * 30000 + b'"]}', 413, "20,000 bytes"),
        (b'{"query": "\\ud800", "documents": ["a"]}', 422, "JSON"),
        (b'{"query": "q", "documents": ["a"], "texts": ["a"]}', 422, "either"),
    ],
)
def test_a_bad_request_is_explained(body, status, says):
    bounds = Bounds(bytes=20_000)
    client = calling(app(bounds=bounds))
    answer = client.post("/rerank", content=body)
    assert answer.status_code == status
    assert says in answer.json()["detail"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ModelBusyError, 503),
        (ModelTimeoutError, 504),
        (ScoringError, 500),
    ],
)
def test_a_model_that_cannot_answer_is_a_status_and_not_a_guess(monkeypatch, error, status):
    def score(model, requests):
        raise error("not now")

    monkeypatch.setattr(FakeLanguageModel, "score", score)
    answer = post(calling(app()), documents=TEXTS)
    assert answer.status_code == status
    assert ("retry-after" in answer.headers) == (status == 503)


@pytest.mark.parametrize("name", ["top_n", "return_documents", "return_text"])
def test_null_is_as_if_it_were_not_sent(name):
    client = calling(app())
    plain = ranked(client, documents=TEXTS)
    nothing = {name: None}
    assert ranked(client, documents=TEXTS, **nothing) == plain


def test_objects_are_ranked_by_their_text_and_come_back_whole():
    client = calling(app())
    documents = [{"text": text, "id": number} for number, text in enumerate(TEXTS)]
    best, *_ = ranked(client, documents=documents, return_documents=True)
    assert best["document"] == documents[ANSWER]


def test_a_query_that_is_too_long_costs_nothing():
    model = FakeLanguageModel()
    query = "w " * LONGEST_QUERY
    client = calling(app(model))
    answer = post(client, query=query, documents=TEXTS * 300)
    assert answer.status_code == 422
    assert model.requests == []


def test_a_page_of_another_site_cannot_drive_a_server_without_tokens():
    body = json.dumps({"query": QUESTION, "texts": TEXTS})
    client = calling(app())

    def status(**headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return client.post("/rerank", content=body, headers=named).status_code

    assert status(content_type="text/plain") == 422
    assert status(origin="https://evil.example") == 403
    assert status(origin="null") == 403
    assert status(origin="http://localhost:3000") == 200
    assert status(content_type="application/json") == 200
    stranger = calling(app(), "http://testserver")
    assert post(stranger, texts=TEXTS).status_code == 421
    named = calling(app(hosts=["ecs"]), "http://ecs")
    assert post(named, texts=TEXTS).status_code == 200


def test_a_server_lives_before_it_is_ready():
    loading = Loading(shaper_on)
    client = calling(rerank_app(loading))
    health = client.get("/health")
    assert health.json() == {"status": "ok", "model": None}
    assert client.get("/ready").status_code == 503
    assert post(client, texts=TEXTS).status_code == 503
    loading.start()
    while not loading.ready:
        time.sleep(0.01)
    assert client.get("/ready").status_code == 200
    assert post(client, texts=TEXTS).status_code == 200


def test_only_a_known_token_is_served():
    bens = "f" * 16
    client = calling(app(tokens={TOKEN: "ana", bens: "ben"}))
    for header in ("", TOKEN, f"Basic {TOKEN}", "Bearer wrong", "Bearer \xff"):
        client.headers = {"Authorization": header.encode("latin-1")}
        assert post(client, texts=["a"]).status_code == 401
        assert client.get("/metrics").status_code == 401
        health = client.get("/health")
        assert health.json()["status"] == "ok"
    for token in (TOKEN, bens):
        client.headers = {"Authorization": f"Bearer {token}"}
        assert post(client, texts=["a"]).status_code == 200


def test_without_tokens_only_names_of_this_machine_are_answered():
    stranger = calling(app(), "http://evil.example")
    assert post(stranger, texts=["a"]).status_code == 421
    check_host("127.0.0.1", None)
    check_host("0.0.0.0", {TOKEN: "ana"})
    for host in ("0.0.0.0", "::", "example.org"):
        with pytest.raises(ConfigurationError, match="--tokens"):
            check_host(host, None)


def test_tokens_are_read_from_a_file_and_never_repeated(tmp_path):
    file = tmp_path / "tokens"
    file.write_text(f"# clients\n\nana {TOKEN}\nben {'f' * 16}\n")
    assert read_tokens(file) == {TOKEN: "ana", "f" * 16: "ben"}
    for text in ("", "ana", f"ana {TOKEN} more", "ana short", f"ana {TOKEN}\nben {TOKEN}"):
        file.write_text(text)
        with pytest.raises(ConfigurationError) as raised:
            read_tokens(file)
        assert TOKEN not in str(raised.value)
    with pytest.raises(StorageError):
        read_tokens(tmp_path / "missing")


@pytest.mark.skipif(os.name != "posix", reason="file modes of POSIX")
@pytest.mark.parametrize(("mode", "warnings"), [(0o600, 0), (0o640, 1), (0o604, 1)])
def test_a_token_file_that_others_can_read_gets_a_warning(tmp_path, caplog, mode, warnings):
    file = tmp_path / "tokens"
    file.write_text(f"ana {TOKEN}\n")
    file.chmod(mode)
    assert read_tokens(file)
    assert len(caplog.records) == warnings
    assert TOKEN not in caplog.text


def test_metrics_count_work():
    client = calling(app())
    post(client, documents=TEXTS)
    client.post("/rerank", content=b"{")
    shown = client.get("/metrics").text
    assert 'ecs_rerank_requests_total{status="200"} 1.0' in shown
    assert 'ecs_rerank_requests_total{status="422"} 1.0' in shown
    assert f"ecs_rerank_documents_total {len(TEXTS)}.0" in shown
    read = re.search(r"^ecs_rerank_tokens_total (\S+)$", shown, re.MULTILINE)
    assert float(read[1]) > 0
    assert "ecs_rerank_waiting 0.0" in shown


@pytest.mark.slow
def test_64_clients_at_once_get_the_answers_of_one_alone(serve):
    url = serve(app())
    bodies = []
    for number in range(64):
        texts = [*TEXTS, f"number {number}"]
        bodies.append({"query": QUESTION, "texts": texts})

    def asked(body):
        answer = httpx.post(f"{url}/rerank", json=body, timeout=60)
        return answer.json()

    alone = [asked(body) for body in bodies]
    with ThreadPoolExecutor(64) as pool:
        together = list(pool.map(asked, bodies))
    assert together == alone


async def test_scoring_leaves_the_event_loop_free():
    begun = asyncio.Event()
    go_on = threading.Event()
    loop = asyncio.get_running_loop()

    class Slow(FakeLanguageModel):
        def score(self, requests):
            loop.call_soon_threadsafe(begun.set)
            go_on.wait(20)
            return super().score(requests)

    transport = httpx.ASGITransport(app(Slow()))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        slow = asyncio.create_task(post(client, texts=["The boat left."]))
        await begun.wait()
        assert (await client.get("/health")).status_code == 200
        go_on.set()
        assert (await slow).status_code == 200


SERVER = """
import sys, time
from ecs_plugins.cli import serve, main
from ecs_plugins.lm import FakeLanguageModel

class Slow(FakeLanguageModel):
    def score(self, requests):
        print("scoring", flush=True)
        time.sleep(1)
        return super().score(requests)

serve.load_model = lambda name, **how: Slow()
main()
"""


def address_in(log):
    """The first address that a server names."""
    for line in log:
        named = re.search(rb"http:\S+", line)
        if named:
            return named[0].decode()
    raise AssertionError("the server named no address")


@pytest.mark.slow
def test_the_command_finishes_running_requests_when_stopped():
    command = [sys.executable, "-c", SERVER, "serve", "--port", "0"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        url = address_in(server.stderr)
        while httpx.get(f"{url}/ready", timeout=120).status_code != 200:
            time.sleep(0.5)
        body = {"query": QUESTION, "texts": TEXTS}
        asked = pool.submit(httpx.post, f"{url}/rerank", json=body, timeout=30)
        assert any(line == b"scoring\n" for line in server.stdout)  # behind the log of requests
        server.send_signal(signal.SIGTERM)
        assert asked.result(30).status_code == 200
        server.communicate(timeout=30)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")
