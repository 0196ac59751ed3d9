"""Lower bound of the time: the necessary work at the rate of one large matrix product."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import torch

from benchmarks.engine.target import clock_of
from ecs_plugins.lm.scoring.forest import plant
from ecs_plugins.lm.scoring.request import TokenRequest, path_of
from ecs_plugins.lm.scoring.runner import undisturbed

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_BEFORE_ATTENTION = ("q_proj.weight", "k_proj.weight", "v_proj.weight")
_CPU_SIZES, _CARD_SIZES = (1024, 576, 3072), (8192, 8192, 8192)
_LAUNCHES = 8
"""Products between two looks at the clock, for which a card has to finish."""


def matmul_rate(
    device: torch.device | None = None, dtype: torch.dtype = torch.float32, seconds: float = 0.25
) -> float:
    """Multiply-adds of one large matrix product in FLOP/s.

    Args:
        device: Where; the CPU by default, on the threads that torch uses.
        dtype: In what; float32 is float32, never TensorFloat-32.
        seconds: For how long.
    """
    device = device or torch.device("cpu")
    on_card = device.type == "cuda"
    rows, inner, columns = _CARD_SIZES if on_card else _CPU_SIZES
    clock, number = clock_of(device), 0
    with undisturbed(device, dtype):
        a = torch.randn(rows, inner, device=device).to(dtype)
        b = torch.randn(inner, columns, device=device).to(dtype)
        for _ in range(_LAUNCHES if on_card else 1):
            torch.mm(a, b)
        started = clock()
        while (spent := clock() - started) < seconds:
            for _ in range(_LAUNCHES if on_card else 1):
                torch.mm(a, b)
                number += 1
    return number * 2.0 * rows * inner * columns / spent


def useful_flops(model: PreTrainedModel, request: TokenRequest, *, cached: bool = False) -> float:
    """Return the necessary work if every shared token is computed once.

    Linear layers for every token of the plan; in the last layer the output projection and the
    feed-forward block for scored rows alone; attention to every earlier token of a path; the
    LM head for scored rows.

    Args:
        model: Of the Llama family.
        request: What is scored.
        cached: Whether the prefix is there already.
    """
    config = model.config
    layers, heads = int(config.num_hidden_layers), int(config.num_attention_heads)
    width = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
    pairs = product(request.candidates, request.continuations)
    paths = [path_of(*pair) for pair in pairs]
    forest = plant([(request.prefix[-1:] + path.ids)[:-1] for path in paths])
    rows = sum(len(path.scored) for path in paths)
    past = len(request.prefix) - 1
    computed = 0 if cached else past
    tokens = computed + len(forest.tokens)
    per_layer, first_part = _weights_of_layers(model)
    linear = tokens * (per_layer - (per_layer - first_part) / layers)
    linear += rows * (per_layer - first_part) / layers
    seen = computed * (computed + 1) / 2 + float((past + forest.positions() + 1).sum())
    attention = 2 * seen * heads * width * layers
    head = rows * int(config.hidden_size) * int(config.vocab_size)
    return 2.0 * (linear + attention + head)


def _weights_of_layers(model: PreTrainedModel) -> tuple[int, int]:
    """Numbers of the matrices of all layers, and of those of them before attention."""
    whole = 0
    before = 0
    for name, weights in model.named_parameters():
        if weights.ndim > 1 and ".layers." in name:
            whole += weights.numel()
        if name.endswith(_BEFORE_ATTENTION):
            before += weights.numel()
    return whole, before
