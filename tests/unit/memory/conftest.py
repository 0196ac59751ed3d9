"""Fixtures of the memory tests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ecs_plugins.memory import EntropicMemory, StoreConfig
from ecs_plugins.ranking.embedder import FakeEmbedder

Opener = Callable[..., EntropicMemory]


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
def open_memory(tmp_path: Path, located) -> Iterator[Opener]:
    """Open the test's file with a fake embedder, and close all memories afterwards."""
    opened: list[EntropicMemory] = []

    def open_(**options) -> EntropicMemory:
        options.setdefault("embedder", FakeEmbedder(32))
        options.setdefault("path", tmp_path / "memory.db")
        options.setdefault("store", StoreConfig(sleep="manual"))
        memory = EntropicMemory.open(located(options.pop("path")), **options)
        opened.append(memory)
        return memory

    yield open_
    for memory in opened:
        memory.close()
