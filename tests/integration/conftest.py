"""What most adapters are tried with: an open memory in a file."""

import pytest

from ecs_plugins.memory import EntropicMemory
from ecs_plugins.ranking.embedder import FakeEmbedder


@pytest.fixture
def memory(tmp_path):
    with EntropicMemory.open(tmp_path / "m.db", embedder=FakeEmbedder()) as opened:
        yield opened
