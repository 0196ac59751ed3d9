"""A server in a thread, on a free port of this machine."""

import contextlib
import threading
import time

import pytest
import uvicorn
from starlette.testclient import TestClient

from ecs_plugins.common.aio import abandoned
from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.server.running import TimedProtocol
from ecs_plugins.shaping import ContextShaper, ShapingConfig


@contextlib.contextmanager
def running(app):
    """The base URL of an ASGI application that is being served."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, http=TimedProtocol, log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)
    try:
        (socket,) = server.servers[0].sockets
        _, port = socket.getsockname()
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)


@pytest.fixture
def serve():
    """Serve applications until the test is over."""
    with contextlib.ExitStack() as stack:
        yield lambda app: stack.enter_context(running(app))


class Patient(FakeLanguageModel):
    """Answers when it is let go, or when nobody waits any more."""

    def __init__(self):
        super().__init__()
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.given_up = threading.Event()

    def score(self, requests):
        self.begun.set()
        left = abandoned()
        while not self.go_on.wait(0.01):
            if left is not None and left.is_set():
                self.given_up.set()
                break
        return super().score(requests)


def shaper_on(model=None):
    """A shaper that ranks by words, on a fake model unless one is given."""
    config = ShapingConfig(ranker="bm25")
    return ContextShaper(model or FakeLanguageModel(), config)


def calling(app, base_url="http://localhost"):
    """A client of an application in this process."""
    return TestClient(app, base_url=base_url)
