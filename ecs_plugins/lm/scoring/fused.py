"""Fewer passes over memory in the layers of a twin, where the result stays the same.

Root-mean-square norms and gated feed-forward blocks are written in transformers as one tensor
operation after the other, each with a result of its own. On a CPU that is a tenth of the time.
Here intermediate results are overwritten, and the operations between two matrix products take
turns on blocks of rows that stay in a core's cache. (The matrix products themselves run on all
rows: in blocks they would prepare their weights for every block.)
Where a whole layer has the common form, ``layers`` replaces that too.
A module is replaced only after it gave the same numbers on a random input, whatever its class
is called; every other module stays as it is. One in bfloat16 is tried in float32, where rounding
cannot hide a wrong replacement.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_PROBE_ROWS = 5
_SAME = 1e-5
Make = Callable[[nn.Module], tuple[Callable[[Tensor], Tensor], int] | None]
"""A replacement for a module and the width of its input, if the module has the right parts."""
_CACHED = 2**17
"""Numbers that stay in the second-level cache of a core beside as many others."""


def row_blocks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Views of the same rows of each, block after block.

    Args:
        *tensors: With as many rows each, in their last dimension but one; the first has the
            most numbers to a row.
    """
    first = tensors[0]
    rows = first.shape[-2]
    small = first.device.type == "cpu" and first.numel() > _CACHED
    step = max(1, rows * _CACHED // first.numel()) if small else max(1, rows)
    return zip(*(torch.split(tensor, step, dim=-2) for tensor in tensors), strict=True)


def silu_times(gate: Tensor, up: Tensor) -> Tensor:
    """``silu(gate) * up`` in the memory of ``gate``."""
    for g, u in row_blocks(gate, up):
        functional.silu(g, inplace=True).mul_(u)
    return gate


def fuse(model: nn.Module) -> int:
    """Replace what can be replaced, in place.

    Args:
        model: A twin, run in inference mode only: the blocks overwrite their intermediate
            results.

    Returns:
        How many modules were replaced.
    """
    replaced = 0
    with torch.inference_mode():
        for module in model.modules():
            for make in (_norm, _gated):
                candidate = make(module)
                if candidate is not None and _agrees(module, make):
                    holder: Any = module
                    holder.forward = candidate[0]
                    replaced += 1
    return replaced


def probe_of(module: nn.Module) -> nn.Module | None:
    """What a replacement is tried on: the module in float32; None if it is not to be replaced."""
    weight = next(module.parameters())
    if weight.device.type == "meta":
        return None
    if weight.dtype == torch.float32:
        return module
    if weight.dtype == torch.bfloat16 and weight.device.type == "cpu":
        return copy.deepcopy(module).float()
    return None


def _agrees(module: nn.Module, make: Make) -> bool:
    tried = probe_of(module)
    made = None if tried is None else make(tried)
    if tried is None or made is None:
        return False
    forward, width = made
    device = next(tried.parameters()).device
    generator = torch.Generator().manual_seed(0)
    probe = torch.randn(1, _PROBE_ROWS, width, generator=generator).to(device)
    try:
        wanted = tried(probe.clone())
    except (RuntimeError, TypeError):
        return False
    if not isinstance(wanted, Tensor):
        return False
    difference = (forward(probe) - wanted).abs().max()
    return bool(difference <= _SAME * wanted.abs().max())


def _norm(module: nn.Module) -> tuple[Callable[[Tensor], Tensor], int] | None:
    weight = getattr(module, "weight", None)
    epsilon = getattr(module, "variance_epsilon", None)
    if not isinstance(weight, Tensor) or weight.ndim != 1 or not isinstance(epsilon, float):
        return None

    def forward(states: Tensor) -> Tensor:
        out = torch.empty(states.shape, dtype=states.dtype, device=states.device)
        for block, normed in row_blocks(states.flatten(0, -2), out.flatten(0, -2)):
            wide = block.float()
            squares = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).square_()
            scale = squares.div_(weight.shape[0]).add_(epsilon).rsqrt_()
            if block.dtype == torch.float32:
                torch.mul(block, scale, out=normed)
            else:
                normed.copy_(wide.mul_(scale))
            normed.mul_(weight)
        return out

    return forward, weight.shape[0]


def _gated(module: nn.Module) -> tuple[Callable[[Tensor], Tensor], int] | None:
    parts = [getattr(module, name, None) for name in ("gate_proj", "up_proj", "down_proj")]
    if not all(isinstance(part, nn.Linear) for part in parts):
        return None
    gate, up, down = (part for part in parts if isinstance(part, nn.Linear))

    def forward(states: Tensor) -> Tensor:
        return down(silu_times(gate(states), up(states)))  # type: ignore[no-any-return]

    return forward, gate.in_features
