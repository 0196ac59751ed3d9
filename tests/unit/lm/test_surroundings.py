"""Settings of the process do not change scores, and stay."""

import threading

import numpy as np
import pytest
import torch
from tiny_models import engine, ids, token_request

from ecs_plugins.lm.scoring.runner import is_out_of_memory, undisturbed

pytestmark = pytest.mark.model

CPU, FLOAT32 = torch.device("cpu"), torch.float32


def by_backend():
    return torch.backends.cuda.matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision


@pytest.fixture
def settings():
    yield
    torch.backends.fp32_precision = "none"
    torch.backends.cuda.matmul.fp32_precision = "none"
    torch.backends.mkldnn.matmul.fp32_precision = "none"
    torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize(
    ("backend", "precision"),
    [(None, "high"), (None, "medium"), ("cuda", "tf32"), ("mkldnn", "bf16")],
)
def test_float32_is_computed_in_float32_whatever_is_set(settings, backend, precision) -> None:
    if backend:
        getattr(torch.backends, backend).matmul.fp32_precision = precision
    else:
        torch.set_float32_matmul_precision(precision)
    before = by_backend()
    with undisturbed(CPU, FLOAT32):
        assert set(by_backend()) <= {"ieee", "none"}
    assert by_backend() == before


def test_general_settings_are_restored(settings) -> None:
    torch.backends.cuda.matmul.fp32_precision = "none"
    torch.backends.mkldnn.matmul.fp32_precision = "none"
    torch.backends.fp32_precision = "tf32"
    with undisturbed(CPU, FLOAT32):
        assert set(by_backend()) <= {"ieee", "none"}
    assert by_backend() == ("tf32", "tf32")
    torch.backends.fp32_precision = "ieee"
    assert by_backend() == ("ieee", "ieee")


def test_a_setting_is_put_back_when_the_last_of_several_threads_leaves(settings) -> None:
    torch.set_float32_matmul_precision("high")
    inside, leave = threading.Event(), threading.Event()

    def other():
        with undisturbed(CPU, FLOAT32):
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with undisturbed(CPU, FLOAT32):
        thread.start()
        assert inside.wait(10)
    assert set(by_backend()) <= {"ieee", "none"}
    leave.set()
    thread.join()
    assert torch.get_float32_matmul_precision() == "high"


def test_a_callers_autocast_does_not_reach_the_model(settings) -> None:
    under_test, request = engine(), token_request(ids(1, 36))
    (wanted,) = under_test.score([request])
    torch.set_float32_matmul_precision("medium")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under_test.forget()
        (found,) = under_test.score([request])
        assert torch.is_autocast_enabled("cpu")
    for key, logprobs in wanted.scores.items():
        np.testing.assert_array_equal(found.scores[key], logprobs)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"),
        RuntimeError("CUDA error: out of memory"),
        MemoryError(),
    ],
)
def test_every_way_to_run_out_of_memory_is_known(error) -> None:
    assert is_out_of_memory(error)
    assert not is_out_of_memory(RuntimeError("CUDA error: an illegal memory access"))
