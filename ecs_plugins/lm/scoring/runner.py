"""The only place that calls the model's forward: devices, logits and log-probabilities.

Log-softmax is taken in float32 whatever the model's dtype, as gather minus logsumexp in
chunks, so that no ``[rows, vocabulary]`` float32 copy of everything exists at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ecs_plugins.lm.scoring.request import Logprobs

_CACHED_AT_ONCE = 2**19
_LAUNCHED_AT_ONCE = 2**25
_LOGITS_AT_ONCE = 2**26


def on_device(
    numbers: Sequence[int] | Sequence[Sequence[int]],
    device: torch.device,
    dtype: torch.dtype = torch.long,
) -> Tensor:
    """Numbers as a tensor; nothing waits for a GPU that is still computing."""
    tensor = torch.tensor(numbers, dtype=dtype)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def rows_at_once(logits: Tensor) -> int:
    """Rows per chunk of a softmax in float32.

    On a processor a chunk stays in the cache; elsewhere it is 128 MiB, worth a launch.
    """
    numbers = _CACHED_AT_ONCE if logits.device.type == "cpu" else _LAUNCHED_AT_ONCE
    return max(1, numbers // logits.shape[1])


class Runner:
    """A causal language model, called for the logits of chosen positions."""

    def __init__(self, model: PreTrainedModel, name: str) -> None:
        self.model = model
        self.name = name
        self.takes = frozenset(inspect.signature(model.forward).parameters)
        """Names of the arguments that the model's forward knows."""
        vocabulary = int(getattr(model.config.get_text_config(), "vocab_size", 2**16))
        self.max_rows = max(1, _LOGITS_AT_ONCE // vocabulary)
        """Rows whose logits may be held at once."""

    @property
    def device(self) -> torch.device:
        """Where inputs go."""
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        """The model's floating-point type."""
        return self.model.dtype

    def ids(self, ids: Sequence[int] | Sequence[Sequence[int]]) -> torch.Tensor:
        """Ids as a ``[batch, length]`` tensor on the model's device."""
        tensor = on_device(ids, self.device)
        return tensor if tensor.ndim == 2 else tensor.unsqueeze(0)

    def logits(
        self,
        input_ids: torch.Tensor,
        rows: Sequence[int],
        *,
        model: PreTrainedModel | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Logits ``[batch, len(rows), vocabulary]``; only these rows reach the LM head.

        Args:
            input_ids: ``[batch, length]``.
            rows: Positions.
            model: A twin to run instead of the model.
            **kwargs: For the forward call.
        """
        model = self.model if model is None else model
        keep = on_device(rows, self.device)
        if "logits_to_keep" in self.takes:
            out = model(input_ids=input_ids, logits_to_keep=keep, **kwargs).logits
            return torch.as_tensor(out)
        return torch.as_tensor(model(input_ids=input_ids, **kwargs).logits[:, keep])


def target_logprobs(
    logits: torch.Tensor, targets: Sequence[int], rows: Sequence[int] | None = None
) -> Logprobs:
    """Natural-log probabilities of tokens.

    Args:
        logits: ``[n, vocabulary]``.
        targets: Token ids.
        rows: The row of ``logits`` that predicts each target; row i for the i-th by default.

    Returns:
        float32, ``[len(targets)]``, in nats.
    """
    wanted = on_device(targets, logits.device)
    row = on_device(range(len(targets)) if rows is None else rows, logits.device)
    chosen = torch.empty(len(targets), dtype=torch.float32, device=logits.device)
    normaliser = torch.empty(logits.shape[0], dtype=torch.float32, device=logits.device)
    step = rows_at_once(logits)
    for at in range(0, logits.shape[0], step):
        normaliser[at : at + step] = logits[at : at + step].float().logsumexp(dim=-1)
    if targets:
        chosen = logits[row, wanted].float() - normaliser[row]
    result: Logprobs = chosen.cpu().numpy()
    return result


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that an allocation failed, on any device."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and (
        "out of memory" in text
        or "can't allocate memory" in text
        or "not enough memory" in text
        or "alloc_failed" in text  # the libraries of CUDA have words of their own
    )
