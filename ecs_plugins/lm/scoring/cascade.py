"""Cascade attention: the fastest path. Exact, and without padding, masks or copies.

A row of the packed forest attends to three kinds of keys, each as dense as flash attention
wants it, and the partial results are merged by their log-sum-exp, which is exact (Hydragen,
arXiv 2402.05099, Sec. 3.1):

* the prefix, computed once and kept: one block per group of paths behind the same prefix;
* every ancestor node: one block over all descendants of that node;
* its own node: causal, one call per run of nodes of equal length.

That is how it runs on a CPU. Where the device has a kernel for ranges of different lengths, the
same plan takes a few calls per layer (see ``kernels``).

The function is registered with transformers' `AttentionInterface` and reached through a twin
of the model that shares its weights. The plan travels as an argument of the forward call.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ecs_plugins.errors import ScoringError
from ecs_plugins.lm.scoring.forest import Forest
from ecs_plugins.lm.scoring.kernels import RaggedPlan, Varlen, attend, ragged, varlen_of
from ecs_plugins.lm.scoring.prefix import KeyValues, PrefixState
from ecs_plugins.lm.scoring.runner import Runner, on_device

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NAME = "ecs_cascade"

_REFUSED = ("softcap", "s_aux", "sinks", "position_bias", "alibi", "head_mask")
"""Arguments that change attention in a way that the blocks below do not know."""

_ROW_BY_ROW = {"mlp", "feed_forward", "block_sparse_moe", "o_proj", "out_proj"}
"""Modules that work row by row in every architecture."""

BLOCK_ROWS = 512
"""Rows that pass such a module at once on a CPU: what it makes in between stays in the cache."""


@dataclass(slots=True)
class AttentionPlan:
    """Which rows attend to what, in one packed row.

    Attributes:
        own: Runs of nodes of equal length, as (first row, length, count).
        shared: Inner nodes, as (first row, one past the last, one past the last descendant).
        prefixes: Prefix states, as (first row, one past the last row behind it, state).
        longest: Tokens of the longest path, prefix included.
        captured: Keys and values of the row itself, per layer, if wanted.
        calls: Attention layers that ran; a model that goes its own way shows here.
        ragged: The same plan for a kernel of variable length, where there is one.
    """

    own: list[tuple[int, int, int]] = field(default_factory=list)
    shared: list[tuple[int, int, int]] = field(default_factory=list)
    prefixes: list[tuple[int, int, PrefixState]] = field(default_factory=list)
    longest: int = 0
    captured: list[tuple[Tensor, Tensor]] | None = None
    calls: int = 0
    ragged: RaggedPlan | None = None

    def add(self, forest: Forest, prefix: PrefixState, offset: int) -> None:
        """Plan a forest that stands at row ``offset`` behind a prefix."""
        for node in forest.nodes:
            start = node.start + offset
            first, length, count = self.own[-1] if self.own else (0, -1, 0)
            if length == node.length and first + length * count == start:
                self.own[-1] = (first, length, count + 1)
            else:
                self.own.append((start, node.length, 1))
            if node.end > node.stop:
                self.shared.append((start, node.stop + offset, node.end + offset))
            self.longest = max(self.longest, len(prefix.ids) + node.depth + node.length)
        if prefix.ids:
            self.prefixes.append((offset, offset + len(forest.tokens), prefix))

    def use(self, varlen: Varlen, device: torch.device) -> None:
        """Run by a kernel over ranges, on its device."""
        lengths = [length for _, length, count in self.own for _ in range(count)]
        self.ragged = ragged(lengths, self.shared, self.prefixes, varlen, device)


def twin_of(model: PreTrainedModel) -> PreTrainedModel:
    """A second module tree that shares every weight and differs in its attention alone.

    The model itself stays as it is: generation and the reference path keep their attention, in
    other threads too.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, cascade_attention)
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    twin = copy.deepcopy(model, shared)
    twin.set_attn_implementation(NAME)
    return twin


def cascade_attention(
    _module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    cascade_plan: AttentionPlan | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention over one packed row, called by transformers.

    Args:
        _module: The attention layer.
        query: ``[1, heads, rows, head_dim]``.
        key: ``[1, kv_heads, rows, head_dim]``, heads not repeated.
        value: Like ``key``.
        attention_mask: None, or the model has masked something that the plan does not know.
        scaling: Of the scores; by default the inverse root of ``head_dim``.
        sliding_window: Refused if shorter than the longest path.
        cascade_plan: The plan.
        **kwargs: Whatever else the model passes; what changes attention is refused.

    Returns:
        ``([1, rows, heads, head_dim], None)``.

    Raises:
        ScoringError: The layer asks for something that a cascade cannot give.
    """
    plan = _require_plan(cascade_plan, attention_mask, sliding_window, kwargs)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    _, heads, rows, _ = query.shape
    layer = plan.calls
    plan.calls += 1
    if plan.captured is not None:
        plan.captured.append((key, value))
    if plan.ragged is not None:
        return plan.ragged.attend(query, key, value, layer=layer, scale=scale), None
    query = query.contiguous()  # flash reads every row once per block of keys
    out = query.new_empty(1, rows, heads, value.shape[-1]).transpose(1, 2)
    weight = torch.empty(1, heads, rows, dtype=torch.float32, device=query.device)
    for first, length, count in plan.own:
        stop = first + length * count
        q, k, v = (_fold(states, first, stop, count) for states in (query, key, value))
        part, lse = attend(q, k, v, causal=True, scale=scale)
        out[0, :, first:stop] = part.transpose(0, 1).flatten(1, 2)
        weight[0, :, first:stop] = lse.transpose(0, 1).flatten(1, 2)
    blocks = [(stop, end, key[:, :, a:stop], value[:, :, a:stop]) for a, stop, end in plan.shared]
    blocks += [(start, end, *prefix.layers[layer]) for start, end, prefix in plan.prefixes]
    for start, end, keys, values in blocks:
        part, lse = attend(query[:, :, start:end], keys, values, causal=False, scale=scale)
        share = torch.sigmoid(lse - weight[:, :, start:end]).unsqueeze(-1)
        out[:, :, start:end].lerp_(part, share.to(out.dtype))
        torch.logaddexp(weight[:, :, start:end], lse, out=weight[:, :, start:end])
    return out.transpose(1, 2), None


def _require_plan(
    plan: AttentionPlan | None,
    mask: Tensor | None,
    sliding_window: int | None,
    others: dict[str, Any],
) -> AttentionPlan:
    if plan is None:
        raise ScoringError("its attention layers do not receive the arguments of the forward call")
    if mask is not None:
        raise ScoringError("it brings an attention mask of its own")
    if sliding_window is not None and plan.longest > sliding_window:
        raise ScoringError(f"its attention slides over a window of {sliding_window} tokens")
    for name in _REFUSED:
        if others.get(name) is not None:
            raise ScoringError(f"its attention uses {name}")
    return plan


def _fold(states: Tensor, first: int, stop: int, count: int) -> Tensor:
    """Rows of ``count`` nodes of equal length as a batch: ``[count, heads, length, dim]``."""
    _, heads, _, width = states.shape
    return states[0, :, first:stop].view(heads, count, -1, width).transpose(0, 1)


class RowByRow:
    """Runs the modules of a twin that work row by row on a few rows at a time, and only if wanted.

    Behind the last attention nothing mixes rows any more: the last layer's output projection and
    feed-forward block compute the rows whose logits are wanted. Its other rows are zero, and
    nobody reads them. A model with other names for these modules computes all rows.

    Args:
        twin: The model; its calls must be serialised.
        layers: How many layers it has.
    """

    def __init__(self, twin: nn.Module, layers: int) -> None:
        self._rows = 0
        self._wanted = torch.empty(0)
        stacks = [m for m in twin.modules() if isinstance(m, nn.ModuleList) and len(m) == layers]
        for number, layer in enumerate(stacks[0] if stacks else (), 1):
            for name, module in layer.named_modules():
                *outside, own = name.split(".")
                last = number == layers
                single = isinstance(module, nn.Linear) and not last  # makes nothing in between
                if own in _ROW_BY_ROW and not _ROW_BY_ROW & set(outside) and not single:
                    module.forward = partial(self._run, module.forward, last)

    def want(self, wanted: Sequence[int], rows: int, device: torch.device) -> None:
        """Compute these of so many rows in the next call."""
        self._rows, self._wanted = rows, on_device(wanted or (0,), device)

    def _run(self, forward: Callable[..., Any], last: bool, states: Tensor, *others: Any) -> Any:
        if others or states.shape[:2] != (1, self._rows):
            return forward(states, *others)
        step = BLOCK_ROWS if states.device.type == "cpu" else self._rows
        starts = range(0, self._rows, step)
        parts = [self._wanted] if last else [slice(at, at + step) for at in starts]
        if not last and len(parts) == 1:
            return forward(states)
        made = [forward(states[:, part]) for part in parts]
        if not all(isinstance(part, Tensor) for part in made):
            return forward(states)
        if not last:
            return torch.cat(made, dim=1)
        out = made[0].new_zeros(1, self._rows, made[0].shape[2])
        out[:, self._wanted] = made[0]
        return out


class CascadeForward:
    """A `PackedForward` through cascade attention.

    Args:
        runner: The model.
        varlen: A kernel for ranges of different lengths, instead of what the model can use.
    """

    many_prefixes = True
    """Whether forests behind different prefixes can share a row."""
    max_tokens = sys.maxsize
    """Tokens of a row from which on it costs more than two shorter ones."""

    def __init__(self, runner: Runner, varlen: Varlen | None = None) -> None:
        self._twin = twin_of(runner.model)
        self._layers = int(runner.model.config.get_text_config().num_hidden_layers)
        self._row_by_row = RowByRow(self._twin, self._layers)
        self.runner = runner
        self._varlen = varlen or varlen_of(runner.model)

    def __call__(
        self,
        groups: Sequence[tuple[Forest, PrefixState]],
        rows: Sequence[int],
        *,
        capture: bool = False,
    ) -> tuple[Tensor, KeyValues]:
        """Run the forests one behind the other in one row; ``rows`` are ascending.

        Raises:
            ScoringError: The model cannot be called this way.
        """
        plan = AttentionPlan(captured=[] if capture else None)
        tokens: list[int] = []
        positions: list[int] = []
        for forest, prefix in groups:
            plan.add(forest, prefix, len(tokens))
            tokens.extend(forest.tokens)
            positions.extend(len(prefix.ids) + depth for depth in forest.depths)
        self._row_by_row.want(rows, len(tokens), self.runner.device)
        if self._varlen is not None:
            plan.use(self._varlen, self.runner.device)
        logits = self.runner.logits(
            self.runner.ids(tokens),
            rows,
            model=self._twin,
            position_ids=self.runner.ids(positions),
            use_cache=False,
            cascade_plan=plan,
        )[0]
        if plan.calls != self._layers:
            raise ScoringError("not all of its layers are attention layers")
        return logits, tuple(plan.captured or ())
