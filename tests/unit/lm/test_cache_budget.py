"""Default memory budget of the cache."""

from types import SimpleNamespace

import psutil
import pytest
import torch
from tiny_models import local, request

from ecs_plugins.lm.scoring.prefix import default_cache_bytes, free_bytes

pytestmark = pytest.mark.model

GIB = 2**30
CPU = torch.device("cpu")
CARD = torch.device("cuda")


@pytest.fixture
def free(monkeypatch, tmp_path):
    """Sets the free memory of a machine without a container."""
    monkeypatch.setattr("ecs_plugins.lm.scoring.prefix._GROUP", tmp_path)

    def set_to(available):
        memory = SimpleNamespace(available=available)
        monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)

    return set_to


@pytest.mark.parametrize(
    ("available", "budget"),
    [
        (GIB // 10, GIB // 16),
        (8 * GIB, GIB),
        (1024 * GIB, 16 * GIB),
    ],
)
def test_on_a_processor_the_cache_is_an_eighth_of_free_memory(free, available, budget) -> None:
    free(available)
    assert default_cache_bytes(CPU) == budget


def test_on_a_card_it_is_a_quarter_of_its_free_memory(free, monkeypatch) -> None:
    free(8 * GIB)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (60 * GIB, 80 * GIB))
    assert default_cache_bytes(CARD) == 15 * GIB


def test_a_container_has_no_more_than_its_limit(free, tmp_path) -> None:
    free(64 * GIB)
    (tmp_path / "memory.current").write_text(f"{3 * GIB}\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert free_bytes(tmp_path) == 64 * GIB
    (tmp_path / "memory.max").write_text(f"{4 * GIB}\n")
    assert free_bytes(tmp_path) == GIB
    (tmp_path / "memory.max").write_text(f"{2 * GIB}\n")
    assert free_bytes(tmp_path) == 0


def test_the_statistics_say_the_budget_before_and_after_something_is_kept(free) -> None:
    free(2 * GIB)
    lm = local()
    assert lm.cache_statistics.max_bytes == GIB // 4
    lm.score([request()])
    statistics = lm.cache_statistics
    assert 0 < statistics.nbytes <= statistics.max_bytes
    assert GIB // 4 - 2**16 < statistics.max_bytes <= GIB // 4


def test_a_budget_that_is_given_is_the_budget(free) -> None:
    free(2 * GIB)
    lm = local(cache_bytes=2**20)
    lm.score([request()])
    assert lm.cache_statistics.max_bytes == 2**20
