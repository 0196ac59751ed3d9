"""A server in a thread, on a free port of this machine."""

import contextlib
import socket
import threading
import time

import pytest
import uvicorn


@contextlib.contextmanager
def running(app):
    """The base URL of an ASGI application that is being served."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=5))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        deadline = time.monotonic() + 20
        while not server.started and thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(20)


@pytest.fixture
def serve():
    """Serve applications until the test is over."""
    with contextlib.ExitStack() as stack:
        yield lambda app: stack.enter_context(running(app))
