"""The only place that calls the model's forward: devices, logits and log-probabilities.

Log-softmax is taken in float32 whatever the model's dtype, as gather minus logsumexp in
chunks, so that no ``[rows, vocabulary]`` float32 copy of everything exists at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ecs_plugins.lm.scoring.request import Logprobs

_ROWS_AT_ONCE = 256
_LOGITS_AT_ONCE = 2**26


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
        tensor = torch.tensor(ids, dtype=torch.long, device=self.device)
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
        keep = torch.tensor(rows, dtype=torch.long, device=self.device)
        if "logits_to_keep" in self.takes:
            out = model(input_ids=input_ids, logits_to_keep=keep, **kwargs).logits
            return torch.as_tensor(out)
        return torch.as_tensor(model(input_ids=input_ids, **kwargs).logits[:, keep])


def target_logprobs(logits: torch.Tensor, targets: Sequence[int]) -> Logprobs:
    """Natural-log probability of ``targets[i]`` under row i of ``logits`` ``[n, vocabulary]``."""
    wanted = torch.tensor(targets, dtype=torch.long, device=logits.device)
    parts: list[torch.Tensor] = []
    for at in range(0, logits.shape[0], _ROWS_AT_ONCE):
        rows = logits[at : at + _ROWS_AT_ONCE].float()
        chosen = rows.gather(1, wanted[at : at + _ROWS_AT_ONCE, None])[:, 0]
        parts.append(chosen - rows.logsumexp(dim=-1))
    if not parts:
        return np.zeros(0, dtype=np.float32)
    result: Logprobs = torch.cat(parts).cpu().numpy()
    return result


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that an allocation failed, on any device."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and (
        "out of memory" in text or "can't allocate memory" in text or "not enough memory" in text
    )
