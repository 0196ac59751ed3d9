"""Calls of the model's forward: devices, precision, memory, log-probabilities.

* Log-softmax is taken in float32 whatever the model's dtype, as gather minus logsumexp in chunks,
  so that no ``[rows, vocabulary]`` float32 copy of everything exists at once.
* Settings of the caller's process do not change a model's numbers (`undisturbed`).
* Work is done in packs under a token budget (see ``packs``).
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ecs_plugins.lm.scoring.tensors import on_device, rows_at_once

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_LOGITS_AT_ONCE = 2**26
_LOGITS_AT_ONCE_ON_A_CARD = 2**29
"""Rows of logits of a pack; a card has room for many more."""


class Runner:
    """A causal language model, called for the logits of chosen positions."""

    def __init__(self, model: PreTrainedModel, name: str) -> None:
        self.model = model
        self.name = name
        self.takes = _arguments_of(model)
        """Names of the arguments that the model's forward knows."""
        config = model.config.get_text_config()
        vocabulary = int(getattr(config, "vocab_size", 2**16))
        on_card = model.device.type == "cuda"
        most = _LOGITS_AT_ONCE_ON_A_CARD if on_card else _LOGITS_AT_ONCE
        self.max_rows = max(1, most // vocabulary)
        """Rows whose logits may be held at once."""

    @property
    def device(self) -> torch.device:
        """Torch device on which inputs are placed."""
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        """Return the model's floating-point type."""
        return self.model.dtype

    @property
    def is_spread(self) -> bool:
        """True if the model's layers are on several devices."""
        places = getattr(self.model, "hf_device_map", {}).values()
        return len(set(places)) > 1

    def ids(self, ids: Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
        """Return ids as a ``[batch, length]`` tensor on the model's device."""
        tensor = on_device(ids, self.device)
        return tensor if tensor.ndim == 2 else tensor.unsqueeze(0)

    def logits(
        self,
        input_ids: Tensor,
        rows: Sequence[int] | Tensor,
        *,
        model: PreTrainedModel | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """Compute logits ``[batch, len(rows), vocabulary]``; only these rows reach the LM head.

        ``model`` is a twin to run instead of the model, ``kwargs`` are for its forward.
        """
        model = self.model if model is None else model
        keep: Any = rows
        if self.is_spread:
            keep = list(rows)  # which goes to the last card, wherever that is
        elif not isinstance(rows, Tensor):
            keep = on_device(rows, self.device)
        if "logits_to_keep" in self.takes:
            out = model(input_ids=input_ids, logits_to_keep=keep, **kwargs).logits
            return torch.as_tensor(out)
        whole = model(input_ids=input_ids, **kwargs).logits
        return torch.as_tensor(whole[:, keep])


def _arguments_of(model: PreTrainedModel) -> frozenset[str]:
    """Return the argument names of a model's forward, also inside a wrapper of PEFT."""
    names = set(inspect.signature(model.forward).parameters)
    wrapper: Any = model
    adapter = getattr(wrapper, "active_peft_config", None)
    if adapter is not None and not adapter.is_prompt_learning:
        names.update(inspect.signature(wrapper.get_base_model().forward).parameters)
    return frozenset(names)


def logprobs_of(logits: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
    """Return natural-log probabilities of tokens, float32, ``[len(targets)]``, on their device.

    Args:
        logits: ``[n, vocabulary]``.
        targets: Token ids.
        rows: The row of ``logits`` that predicts each target.
    """
    normaliser = torch.empty(logits.shape[0], dtype=torch.float32, device=logits.device)
    step = rows_at_once(logits)
    for at in range(0, logits.shape[0], step):
        part = slice(at, at + step)
        chunk = logits[part].float()
        normaliser[part] = chunk.logsumexp(dim=-1)
    chosen = logits[rows, targets].float()
    return chosen - normaliser[rows]


_WORDS_OF_EXHAUSTION = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "alloc_failed",  # the libraries of CUDA have words of their own
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if ``error`` is a failed allocation, on any device."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    if error.__cause__ is not None and is_out_of_memory(error.__cause__):
        return True
    text = str(error).lower()
    says_so = any(words in text for words in _WORDS_OF_EXHAUSTION)
    return says_so and isinstance(error, RuntimeError)


@contextlib.contextmanager
def undisturbed(
    device: torch.device,
    dtype: torch.dtype,
) -> Iterator[None]:
    """Run inference in the dtype of the model, with any settings of the process.

    Without autocast, float32 in full precision, and a model on ``cuda:1`` with that card as the
    current one, in a worker's thread too.
    """
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
    """While anybody is inside, float32 matrices are multiplied in float32, in the whole process.

    Torch can be told to multiply them in TensorFloat-32 (CUDA) or bfloat16 (CPU), which costs three
    digits and raises nothing. The setting is put back when the last computation ends.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._reduced: list[tuple[Any, str]] = []

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._reduced = _reduced_products()
                for product, _ in self._reduced:
                    product.fp32_precision = _IN_FULL
            self._inside += 1

    def __exit__(self, *_error: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside:
                return
            for product, precision in self._reduced:
                product.fp32_precision = _AS_IN_GENERAL
                if product.fp32_precision != precision:
                    product.fp32_precision = precision


def _reduced_products() -> list[tuple[Any, str]]:
    """Return the settings of matrix products that are not in full precision now."""
    backends: tuple[Any, ...] = (torch.backends.cuda, torch.backends.mkldnn)
    reduced = []
    for backend in backends:
        product = backend.matmul
        precision = product.fp32_precision
        if precision not in (_IN_FULL, _AS_IN_GENERAL):
            reduced.append((product, precision))
    return reduced


_IN_FULL = "ieee"
_AS_IN_GENERAL = "none"
"""A product may have followed the general setting, and does so again then."""
_FULL = _FullFloat32()
