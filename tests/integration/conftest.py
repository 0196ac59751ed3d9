"""What most adapters are tried with: an open memory in a file."""

import threading

import pytest

from ecs_plugins.memory import EntropicMemory
from ecs_plugins.ranking.embedder import FakeEmbedder


@pytest.fixture
def memory(tmp_path):
    with EntropicMemory.open(tmp_path / "m.db", embedder=FakeEmbedder()) as opened:
        yield opened


@pytest.fixture
def threads(memory, monkeypatch):
    """Where the memory's database and embedder work from now on: "loop" or "worker"."""
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
