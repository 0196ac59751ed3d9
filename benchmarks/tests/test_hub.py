"""A data set's file from the hub, against a hub of our own on loopback."""

import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchmarks.datasets.hub import data_file
from ecs_plugins.errors import InvalidInputError, StorageError

CONTENT = b'{"question": "a?", "answer": "b", "documents": ["b."]}\n'
COMMIT = "0" * 40


class Hub(BaseHTTPRequestHandler):
    def do_HEAD(self):
        self._answer(with_body=False)

    def do_GET(self):
        self._answer(with_body=True)

    def _answer(self, *, with_body):
        self.server.asked.append(self.path)
        there = self.path.endswith("/dev.jsonl")
        self.send_response(200 if there else 404)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", '"abc"')
        if not there:
            self.send_header("X-Error-Code", "EntryNotFound")
        self.send_header("Content-Length", str(len(CONTENT) if there else 0))
        self.end_headers()
        if with_body and there:
            self.wfile.write(CONTENT)

    def log_message(self, *args):
        pass


@contextmanager
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def loopback(monkeypatch, tmp_path):
    from huggingface_hub import constants

    with hub() as server:
        address = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(
            constants,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            address + "/{repo_id}/resolve/{revision}/{filename}",
        )
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        yield server


def test_a_path_stays_as_it_is(tmp_path):
    assert data_file(str(tmp_path / "questions.jsonl")) == tmp_path / "questions.jsonl"


def test_a_file_of_the_hub_is_fetched_once_and_alone(loopback):
    found = data_file("hf://datasets/owner/name@v1/folder/dev.jsonl")
    assert found.read_bytes() == CONTENT
    fetched = {path for path in loopback.asked if "/resolve/" in path}
    assert {re.sub("/resolve/[^/]+", "", path) for path in fetched} == {
        "/datasets/owner/name/folder/dev.jsonl"
    }
    loads = len(loopback.asked)
    assert data_file("hf://datasets/owner/name@v1/folder/dev.jsonl") == found
    assert len(loopback.asked) <= loads + 1  # asked whether it has changed


def test_a_file_that_the_hub_does_not_hold_is_a_storage_error(loopback):
    with pytest.raises(StorageError, match=r"cannot fetch hf://datasets/owner/name/no\.json"):
        data_file("hf://datasets/owner/name/no.json")


@pytest.mark.parametrize(
    "address",
    ["hf://owner/name/dev.json", "hf://datasets/name", "hf://datasets/owner/name/", "hf:/x/y/z"],
)
def test_an_address_of_another_form_says_how_to_write_it(address):
    with pytest.raises(InvalidInputError, match="hf://datasets/OWNER/NAME/FILE"):
        data_file(address)
