"""Fixtures of adapters: an open memory in a file and its contents."""

import threading

import pytest
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler

from ecs_plugins.memory import EntropicMemory
from ecs_plugins.ranking.embedder import FakeEmbedder


@pytest.fixture
def memory(tmp_path, located):
    with EntropicMemory.open(located(tmp_path / "m.db"), embedder=FakeEmbedder()) as opened:
        yield opened


@pytest.fixture
def db(memory):
    """The memory's file."""
    return memory.path


@pytest.fixture
def threads(memory, monkeypatch):
    """Return a record of the threads of database and embedder: "loop" or "worker"."""
    seen = set()

    def watch(owner, name):
        real = getattr(owner, name)

        def call(*args, **kwargs):
            main = threading.current_thread() is threading.main_thread()
            seen.add("loop" if main else "worker")
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    for name in ("read", "write"):
        watch(memory._store.database, name)
    for name in ("embed_documents", "embed_query"):
        watch(FakeEmbedder, name)
    return seen


@pytest.fixture
def dispatched():
    """The events that LlamaIndex dispatches from now on."""
    seen = []

    class Listener(BaseEventHandler):
        def handle(self, event, **kwargs):
            seen.append(event)

    root = get_dispatcher()
    before = list(root.event_handlers)
    root.add_event_handler(Listener())
    yield seen
    root.event_handlers = before


@pytest.fixture(params=["LangChain", "LlamaIndex"])
def kind(request):
    """Return the constructor and caller of a framework's routers."""
    from tests.integration import routing_setup

    return getattr(routing_setup, request.param)()


@pytest.fixture
def frontier():
    """Return the frontier of the routers."""
    from ecs_plugins.frontier import EfficiencyFrontier
    from tests.integration.routing_setup import points

    return EfficiencyFrontier(points())


@pytest.fixture
def ledger(tmp_path):
    """A ledger of the routers."""
    from ecs_plugins.frontier import ReuseLedger

    return ReuseLedger(tmp_path / "reuse.db")
