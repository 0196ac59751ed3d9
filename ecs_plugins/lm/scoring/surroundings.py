"""What surrounds a computation: nothing that the caller's process has set changes its numbers.

* No autocast: a model computes in the dtype that it was loaded in.
* float32 is float32. Torch can be told, for the whole process, to multiply float32 matrices in
  TensorFloat-32 (CUDA) or bfloat16 (CPU); that costs three digits and raises nothing. The setting
  is put back when the last computation ends.
* A model on ``cuda:1`` computes with that card as the current one, in a worker's thread too.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch


@contextlib.contextmanager
def undisturbed(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Inference in the dtype of the model, whatever the process prefers."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode())
        if torch.is_autocast_enabled(device.type):
            stack.enter_context(torch.autocast(device.type, enabled=False))
        if device.type == "cuda":
            stack.enter_context(torch.cuda.device(device))
        if dtype == torch.float32:
            stack.enter_context(_FULL)
        yield


class _FullFloat32:
    """While anybody is inside, float32 matrices are multiplied in float32, in the whole process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._put_back: Callable[[], None] = _nothing

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._put_back = _demand_float32()
            self._inside += 1

    def __exit__(self, *_error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._put_back()


def _demand_float32() -> Callable[[], None]:
    """Set what has to be set; what puts it back."""
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:  # set by backend, which torch allows in another place
        return _demand_by_backend()
    if before == "highest" and not _reduced():
        return _nothing
    if before == "highest":
        return _demand_by_backend()
    torch.set_float32_matmul_precision("highest")
    return lambda: torch.set_float32_matmul_precision(before)


def _demand_by_backend() -> Callable[[], None]:
    before = _reduced()
    for backend in before:
        backend.fp32_precision = "ieee"

    def put_back() -> None:
        for backend, precision in before.items():
            backend.fp32_precision = "none"  # what it has from the general setting follows that
            if backend.fp32_precision != precision:
                backend.fp32_precision = precision

    return put_back


def _reduced() -> dict[Any, str]:
    """The backends that do not multiply in full precision, and how they do."""
    backends = (torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul", None))
    found = {backend: getattr(backend, "fp32_precision", "ieee") for backend in backends}
    return {backend: how for backend, how in found.items() if how not in ("ieee", "none")}


def _nothing() -> None:
    """Nothing was changed."""


_FULL = _FullFloat32()
