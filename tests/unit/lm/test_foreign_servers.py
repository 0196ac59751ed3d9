"""Servers that cannot score are recognised, and the error says what works."""

import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from http_servers import serving
from tiny_models import model, tokenizer

from ecs_plugins.errors import ConfigurationError, ModelError
from ecs_plugins.lm.base import ScoreRequest, Segment
from ecs_plugins.lm.remote.model import RemoteLM

pytestmark = [pytest.mark.timeout(60), pytest.mark.model]

REQUEST = ScoreRequest((Segment("Ann"),), ((),), ((Segment(" Paris", scored=True),),))


def models(owner):
    return {"object": "list", "data": [{"id": "small", "object": "model", "owned_by": owner}]}


LLAMA_CPP = {
    "/v1/models": models("llamacpp"),
    "/props": {"default_generation_settings": {}, "total_slots": 1},
    "/tokenize": {"tokens": []},
}
OLLAMA = {
    "/v1/models": models("library"),
    "/api/tags": {"models": [{"name": "small"}]},
}
LM_STUDIO = {
    "/v1/models": models("organization_owner"),
    "/api/v0/models": {"object": "list", "data": []},
}
UNKNOWN_PATH = {"error": "Unexpected endpoint or method."}


def under_a_users_name(routes):
    return routes | {"/v1/models": models("ann")}


class Handler(BaseHTTPRequestHandler):
    """Answers from the server's table; LM Studio says 200 to every path."""

    def log_message(self, *args) -> None:
        pass

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        answer = self.server.routes.get(self.path)
        self.send_response(200 if answer or self.server.always_200 else 404)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer or UNKNOWN_PATH).encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()


@contextmanager
def running(routes, *, always_200=False):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.routes = routes
    server.always_200 = always_200
    server.paths = []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def remote(server, kind):
    address = f"http://127.0.0.1:{server.server_address[1]}"
    return RemoteLM(address, server=kind, tokenizer=tokenizer("byte_level"), max_retries=0)


@pytest.mark.parametrize("kind", ["sglang", "vllm"])
@pytest.mark.parametrize(
    ("name", "routes", "always_200"),
    [
        ("llama.cpp's server", LLAMA_CPP, False),
        ("Ollama", OLLAMA, False),
        ("LM Studio", LM_STUDIO, True),
        ("llama.cpp's server", under_a_users_name(LLAMA_CPP), False),
        ("Ollama", under_a_users_name(OLLAMA), False),
        ("LM Studio", under_a_users_name(LM_STUDIO), True),
    ],
)
def test_a_server_that_cannot_score_is_named_with_what_works(
    kind, name, routes, always_200
) -> None:
    with running(routes, always_200=always_200) as server:
        with pytest.raises(ConfigurationError) as caught:
            remote(server, kind).score([REQUEST])
        asked_for = set(server.paths)
    message = str(caught.value)
    assert f" is {name}, " in message
    for remedy in ("SGLang", "vLLM", "LocalLM.from_pretrained", "LangChain"):
        assert remedy in message
    assert not re.search(r"[.!?]\s", message.removeprefix(name)), "one sentence"
    assert asked_for <= {"/v1/models", "/props", "/api/tags", "/api/v0/models"}


@pytest.mark.parametrize("kind", ["sglang", "vllm"])
def test_a_proxy_before_a_server_that_scores_is_not_taken_for_one_that_cannot(kind) -> None:
    with serving(model("llama"), tokenizer("byte_level")) as server:
        server.owner = "a-proxy"
        lm = RemoteLM(server.url, server=kind, tokenizer=tokenizer("byte_level"))
        assert lm.score([REQUEST])
        lm.close()


def test_no_foreign_path_is_asked_of_a_server_that_scores() -> None:
    with serving(model("llama"), tokenizer("byte_level")) as server:
        lm = RemoteLM(server.url, server="vllm", tokenizer=tokenizer("byte_level"))
        lm.score([REQUEST])
        lm.close()
        paths = {path for path, _ in server.requests}
    assert paths.isdisjoint({"/props", "/api/tags", "/api/v0/models"})


def test_another_server_that_answers_everything_is_refused_without_a_wrong_name() -> None:
    routes = {"/v1/models": models("somebody")}
    wrong_form = pytest.raises(ModelError, match="not of the form")
    with running(routes, always_200=True) as server, wrong_form:
        remote(server, "vllm").score([REQUEST])
