"""Decoder layers that make fewer passes over memory than transformers writes them.

A layer is written in transformers as one tensor operation after the other, each with a result
of its own. Here queries and keys are rotated on their way into the layout that attention reads
fastest, residuals are added by the matrix product that makes them, and the last layer computes
only the rows that are looked at.

For layers of the common form

    x = x + o(attention(q(n), k(n), v(n))),   n = norm(x)
    x = x + down(act(gate(n)) * up(n)),       n = norm(x)

with rotary positions over whole heads, whatever their class is called: a layer is replaced only
after it gave the same numbers as its replacement.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ecs_plugins.errors import ScoringError
from ecs_plugins.lm.scoring.fused import probe_of, row_blocks, silu_times
from ecs_plugins.lm.scoring.plan import AttentionPlan
from ecs_plugins.lm.scoring.products import Linears
from ecs_plugins.lm.scoring.scratch import Scratch

Attention = Callable[..., tuple[Tensor, None]]
"""The function that is registered with transformers (see ``cascade``)."""

_PROBE_ROWS = 5
_SAME = 1e-5
_LINEAR = (
    *(f"self_attn.{name}_proj" for name in "qkvo"),
    *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
)
_NEEDED = (
    "input_layernorm",
    "post_attention_layernorm",
    "self_attn.head_dim",
    "self_attn.scaling",
    "mlp.act_fn",
)
_SILU = ("SiLU", "SiLUActivation")


def replace_layers(model: nn.Module, attention: Attention) -> int:
    """Replace the layers of a twin, in place; before `fused.fuse`, which may replace their parts.

    Args:
        model: A twin, run in inference mode only: its layers overwrite their input.
        attention: The attention that its layers call.

    Returns:
        How many layers were replaced.
    """
    replaced = 0
    with torch.inference_mode():
        for module in model.modules():
            if _fits(module):
                tried = probe_of(module)
                if tried is not None and _agrees(DecoderLayer(tried, attention)):
                    holder: Any = module
                    holder.forward = DecoderLayer(module, attention)
                    replaced += 1
    return replaced


class DecoderLayer:
    """The forward of one decoder layer.

    Args:
        module: The layer; its weights are used as they are.
        attention: The attention that it calls.
    """

    def __init__(self, module: nn.Module, attention: Attention) -> None:
        parts: Any = module
        self.original: Callable[..., Any] = module.forward
        self.inner = parts.self_attn
        self.width = int(self.inner.head_dim)
        self._attention = attention
        self._before: nn.Module = parts.input_layernorm
        self._between: nn.Module = parts.post_attention_layernorm
        self._qkv = Linears(*(getattr(self.inner, f"{name}_proj") for name in "qkv"))
        self._out = Linears(self.inner.o_proj)
        self._gate_up = Linears(parts.mlp.gate_proj, parts.mlp.up_proj)
        self._down = Linears(parts.mlp.down_proj)
        self._act: Callable[[Tensor], Tensor] = parts.mlp.act_fn
        self._silu = type(parts.mlp.act_fn).__name__ in _SILU

    def __call__(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        cascade_plan: AttentionPlan | None = None,
        **kwargs: Any,
    ) -> Any:
        """The layer's output, in the memory of its input.

        Args:
            hidden_states: ``[1, rows, width]``; overwritten.
            attention_mask: As transformers passes it.
            position_embeddings: Cosine and sine, ``[1, rows, head_dim]``.
            cascade_plan: The plan; without it, the layer runs as it was.
            **kwargs: As transformers passes them.
        """
        if cascade_plan is None or position_embeddings is None:
            return self.original(
                hidden_states,
                attention_mask=attention_mask,
                position_embeddings=position_embeddings,
                cascade_plan=cascade_plan,
                **kwargs,
            )
        states = hidden_states[0]
        seen, _ = self._attention(
            self.inner,
            *self._project(states, *position_embeddings, cascade_plan.scratch),
            attention_mask,
            scaling=float(self.inner.scaling),
            cascade_plan=cascade_plan,
        )
        seen = seen[0].flatten(1)
        if cascade_plan.finished:
            kept = cascade_plan.kept_on(states.device)
            states[kept] = self._advance(states[kept], seen[kept], cascade_plan.scratch)
        else:
            self._advance(states, seen, cascade_plan.scratch)
        return hidden_states

    def _project(
        self, states: Tensor, cos: Tensor, sin: Tensor, scratch: Scratch
    ) -> tuple[Tensor, ...]:
        """Queries, keys and values ``[1, heads, rows, head_dim]``, contiguous and to be kept."""
        out = []
        for name, flat in zip("qkv", self._qkv(self._before(states), scratch), strict=True):
            heads = flat.view(flat.shape[0], -1, self.width)
            norm = getattr(self.inner, f"{name}_norm", None)
            heads = (heads if norm is None else norm(heads)).transpose(0, 1)
            if name == "v":
                heads = heads.clone(memory_format=torch.contiguous_format)
            else:
                heads = _turned(heads, cos[0], sin[0])
            out.append(heads.unsqueeze(0))
        return tuple(out)

    def _advance(self, states: Tensor, seen: Tensor, scratch: Scratch) -> Tensor:
        """Everything behind the attention, in place."""
        self._out.add_to(states, seen, scratch)
        gate, up = self._gate_up(self._between(states), scratch)
        gate = silu_times(gate, up) if self._silu else self._act(gate).mul_(up)
        self._down.add_to(states, gate, scratch)
        return states


def _turned(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """``heads`` ``[heads, rows, width]`` rotated to their positions, contiguous."""
    turned = torch.empty(heads.shape, dtype=heads.dtype, device=heads.device)
    half = heads.shape[-1] // 2
    for to, of, c, s in row_blocks(turned, heads, cos, sin):
        torch.mul(of, c, out=to)
        to[..., :half].addcmul_(of[..., half:], s[:, :half], value=-1)
        to[..., half:].addcmul_(of[..., :half], s[:, half:])
    return turned


def _fits(module: nn.Module) -> bool:
    """Whether a module has the parts of a common decoder layer."""
    return all(isinstance(_part(module, path), nn.Linear) for path in _LINEAR) and all(
        _part(module, path) is not None for path in _NEEDED
    )


def _part(module: nn.Module, path: str) -> Any:
    found: Any = module
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def _agrees(layer: DecoderLayer) -> bool:
    """Whether a layer and its replacement give the same on a random input."""
    weight = layer.inner.q_proj.weight
    generator = torch.Generator().manual_seed(0)
    probe = torch.randn(1, _PROBE_ROWS, weight.shape[1], generator=generator).to(weight.device)
    angles = torch.rand(1, _PROBE_ROWS, layer.width // 2, generator=generator).to(weight.device)
    angles = torch.cat((angles, angles), dim=-1)
    results = []
    for forward in (layer.original, layer):
        # Longer than any window, so that a layer with a window of its own stays as it is.
        plan = AttentionPlan(
            own=[(0, _PROBE_ROWS, 1)], longest=sys.maxsize, kept=range(_PROBE_ROWS), layers=2
        )
        try:
            results.append(
                forward(
                    probe.clone(),
                    attention_mask=None,
                    position_ids=torch.arange(_PROBE_ROWS, device=weight.device)[None],
                    position_embeddings=(angles.cos(), angles.sin()),
                    past_key_values=None,
                    use_cache=False,
                    cascade_plan=plan,
                )
            )
        except (ScoringError, RuntimeError, TypeError, AttributeError, ValueError):
            return False
    wanted, found = results
    if not isinstance(wanted, Tensor) or wanted.shape != found.shape:
        return False
    return bool((found - wanted).abs().max() <= _SAME * wanted.abs().max())
