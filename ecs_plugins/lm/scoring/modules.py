"""Modules of a twin that compute the same with less: fewer rows, or fewer kernels."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

_ROW_BY_ROW = {"mlp", "feed_forward", "block_sparse_moe", "o_proj", "out_proj"}
"""Modules that work row by row in every architecture."""

BLOCK_ROWS = 512
"""Rows that pass such a module at once on a CPU, so that intermediate results stay in the cache."""


def _layers_of(
    twin: nn.Module,
    number: int,
) -> Sequence[nn.Module]:
    """Return the layers of a twin, if they are a list of the expected length."""
    for module in twin.modules():
        if isinstance(module, nn.ModuleList) and len(module) == number:
            return list(module)
    return ()


class RowByRow:
    """Switch that runs row-by-row modules of a twin on a few rows at a time.

    Behind the last attention nothing mixes rows any more: the last layer's output projection and
    feed-forward block compute the rows whose logits are wanted. Its other rows are zero, and
    nobody reads them. A model with other names for these modules computes all rows.

    On a card the other layers are left as they are: it wants all rows at once.
    """

    def __init__(
        self,
        twin: nn.Module,
        layers: int,
        device: torch.device,
    ) -> None:
        self._rows = 0
        self._wanted = torch.empty(0)
        self._in_blocks = device.type == "cpu"
        for number, layer in enumerate(_layers_of(twin, layers), start=1):
            self._wrap(layer, last=number == layers)

    def want(self, wanted: Tensor, rows: int) -> None:
        """Set the rows to compute in the next call (at least one) of ``rows`` rows in all."""
        self._wanted = wanted
        self._rows = rows

    def _wrap(
        self,
        layer: nn.Module,
        *,
        last: bool,
    ) -> None:
        for name, module in layer.named_modules():
            _make_activation_in_place(module)
            *outside, own = name.split(".")
            if own not in _ROW_BY_ROW or _ROW_BY_ROW & set(outside):
                continue
            if last:
                module.forward = partial(self._run_wanted, module.forward)
            elif self._in_blocks and not isinstance(module, nn.Linear):
                # A linear module makes nothing in between that would have to stay in the cache.
                module.forward = partial(self._run_blocks, module.forward)

    def _is_packed_row(
        self,
        states: Tensor,
        others: Sequence[Any],
    ) -> bool:
        if others:
            return False
        return states.shape[:2] == (1, self._rows)

    def _run_wanted(
        self,
        forward: Callable[..., Any],
        states: Tensor,
        *others: Any,
    ) -> Any:
        if not self._is_packed_row(states, others):
            return forward(states, *others)
        made = forward(states[:, self._wanted])
        if not isinstance(made, Tensor):
            return forward(states)
        out = made.new_zeros(1, self._rows, made.shape[2])
        return out.index_copy_(1, self._wanted, made)

    def _run_blocks(
        self,
        forward: Callable[..., Any],
        states: Tensor,
        *others: Any,
    ) -> Any:
        if self._rows <= BLOCK_ROWS or not self._is_packed_row(states, others):
            return forward(states, *others)
        out = None
        for at in range(0, self._rows, BLOCK_ROWS):
            part = slice(at, at + BLOCK_ROWS)
            made = forward(states[:, part])
            if not isinstance(made, Tensor):
                return forward(states)
            if out is None:
                out = made.new_empty(1, self._rows, made.shape[2])
            out[:, part] = made
        return out


def _make_activation_in_place(module: nn.Module) -> None:
    from transformers import activations

    if type(module) in (nn.SiLU, activations.SiLUActivation):
        module.forward = partial(nn.functional.silu, inplace=True)


def fuse_norms(twin: nn.Module) -> None:
    """Let root-mean-square norms run as one kernel instead of eight, where that says the same.

    For cards: a processor has no such kernel.
    """
    agrees: dict[type[nn.Module], bool] = {}
    for module in twin.modules():
        kind = type(module)
        if kind not in agrees:
            agrees[kind] = kind.__name__.endswith("RMSNorm") and _is_plain_norm(module)
        if agrees[kind]:
            module.forward = partial(_norm, module)


def _norm(module: Any, states: Tensor) -> Tensor:
    epsilon = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    width = states.shape[-1:]
    return nn.functional.rms_norm(states, width, module.weight, epsilon)


def _is_plain_norm(module: Any) -> bool:
    """Return True if a norm computes the same as torch's."""
    if set(module._parameters) != {"weight"} or module._buffers or module._modules:
        return False
    generator = torch.Generator().manual_seed(0)
    width = module.weight.shape[-1]
    tried = copy.copy(module)
    weight = torch.randn(width, generator=generator)
    tried.__dict__["_parameters"] = {"weight": weight}
    states = torch.randn(4, width, generator=generator)
    try:
        wanted = tried(states)
        found = _norm(tried, states)
    except (RuntimeError, TypeError):
        return False
    return torch.allclose(wanted, found, atol=1e-5)
