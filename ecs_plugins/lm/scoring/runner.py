"""The only place that calls the model's forward: devices, precision, memory, log-probabilities.

* Log-softmax is taken in float32 whatever the model's dtype, as gather minus logsumexp in chunks,
  so that no ``[rows, vocabulary]`` float32 copy of everything exists at once.
* Nothing that the caller's process has set changes a model's numbers (`undisturbed`).
* Work is done in packs under a token budget, which halves itself when memory runs out.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ecs_plugins.errors import ModelTimeoutError, ScoringError
from ecs_plugins.lm.scoring.request import Logprobs
from ecs_plugins.lm.scoring.tensors import on_device, rows_at_once

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DEFAULT_TOKEN_BUDGET = 2048

_DRAWN = 4
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

    def marks(self) -> tuple[object, ...]:
        """Changes where weights do: their places, their versions, and some numbers of each."""
        weights = [weight.detach() for weight in self.model.parameters() if not weight.is_meta]
        drawn: dict[torch.device, list[Tensor]] = {}
        for weight in weights:
            flat = weight.reshape(-1)
            drawn.setdefault(weight.device, []).append(flat[:: max(1, len(flat) // _DRAWN)])
        return (
            *((w.data_ptr(), 0 if w.is_inference() else w._version) for w in weights),
            *(number for some in drawn.values() for number in torch.cat(some).tolist()),
        )

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

        ``model`` is a twin to run instead of the model, ``kwargs`` are for its forward.
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


@contextlib.contextmanager
def undisturbed(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Inference in the dtype of the model, whatever the process prefers.

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
                kinds: tuple[Any, ...] = (torch.backends.cuda, torch.backends.mkldnn)
                found = [(kind.matmul, kind.matmul.fp32_precision) for kind in kinds]
                self._reduced = [(b, how) for b, how in found if how not in ("ieee", "none")]
                for backend, _ in self._reduced:
                    backend.fp32_precision = "ieee"
            self._inside += 1

    def __exit__(self, *_error: object) -> None:
        with self._lock:
            self._inside -= 1
            for backend, precision in () if self._inside else self._reduced:
                backend.fp32_precision = "none"  # it may have followed the general setting
                if backend.fp32_precision != precision:
                    backend.fp32_precision = precision


_FULL = _FullFloat32()


@dataclass
class TokenBudget:
    """Tokens that may pass through the model at once; shrinks for good when memory runs out."""

    tokens: int = DEFAULT_TOKEN_BUDGET
    stopped: Callable[[], bool] | None = None
    shrunk: int = 0

    def halve(self, spent: int) -> None:
        """Halve to below what was just too much."""
        self.tokens = max(1, min(self.tokens, spent) // 2)
        self.shrunk += 1
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def check(self) -> None:
        """Give up where nobody waits."""
        if self.stopped is not None and self.stopped():
            raise ModelTimeoutError("nobody waits for these scores any more")


Take = Callable[[Sequence[int], int], tuple[int, int]]
"""``(indices left, token budget) -> (how many of them make the next pack, its tokens)``."""


def run_in_packs(
    order: Iterable[int],
    take: Take,
    run: Callable[[Sequence[int]], None],
    budget: TokenBudget,
    model: str,
) -> None:
    """Run every index of ``order`` in packs that fit into memory."""
    left = list(order)
    while left:
        budget.check()
        number, tokens = take(left, budget.tokens)
        try:
            run(left[:number])
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            failed = error
        else:
            left = left[number:]
            continue
        # Outside the handler, so that the failed call's tensors are freed before the retry.
        if number == 1:
            raise ScoringError(
                f"out of memory while {model} read {tokens} tokens alone; use shorter "
                "passages or prompts, a smaller model or a smaller dtype"
            ) from failed
        failed.__traceback__ = None
        budget.halve(tokens)
