"""A server in a thread, on a free port of this machine."""

import contextlib
import threading
import time

import pytest
import uvicorn
from starlette.testclient import TestClient

from ecs_plugins.server.running import TimedProtocol


@contextlib.contextmanager
def running(app):
    """The base URL of an ASGI application that is being served."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, http=TimedProtocol, log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)


@pytest.fixture
def serve():
    """Serve applications until the test is over."""
    with contextlib.ExitStack() as stack:
        yield lambda app: stack.enter_context(running(app))


def calling(app, base_url="http://localhost"):
    """A client of an application in this process."""
    return TestClient(app, base_url=base_url)
