"""Cascade attention: the fastest path. Exact, and without padding, masks or copies.

A row of the packed forest attends to three kinds of keys, each as dense as flash attention
wants it, and the partial results are merged by their log-sum-exp, which is exact (Hydragen,
arXiv 2402.05099, Sec. 3.1):

* the prefix, computed once and kept: one block per piece of it, over all paths behind that;
* every ancestor node: one block over all descendants of that node;
* its own node: causal, one call per run of nodes of equal length.

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
from ecs_plugins.lm.scoring.prefix import KeyValues, PrefixPiece, PrefixState
from ecs_plugins.lm.scoring.runner import Runner
from ecs_plugins.lm.scoring.tensors import attend, on_device

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
        prefixes: The first pieces of prefixes, the second ones and so on, as (first row, one past
            the last row behind it, piece).
        longest: Tokens of the longest path, prefix included.
        wanted: Rows whose keys and values are to be captured, each a run of tokens.
        captured: Those of every layer.
        calls: Attention layers that ran; a model that goes its own way shows here.
    """

    own: list[tuple[int, int, int]] = field(default_factory=list)
    shared: list[tuple[int, int, int]] = field(default_factory=list)
    prefixes: list[list[tuple[int, int, PrefixPiece]]] = field(default_factory=list)
    longest: int = 0
    wanted: Sequence[Tensor] = ()
    captured: list[list[tuple[Tensor, Tensor]]] = field(default_factory=list)
    calls: int = 0

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
            self.longest = max(self.longest, prefix.length + node.depth + node.length)
        first, stop = offset, offset + len(forest.tokens)
        for level, piece in enumerate(prefix.pieces):
            if level == len(self.prefixes):
                self.prefixes.append([])
            behind = self.prefixes[level]
            if behind and behind[-1][1] == offset and behind[-1][2] is piece:
                first = behind.pop()[0]
            behind.append((first, stop, piece))
            first = offset


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

    From ``[1, heads, rows, dim]``, heads of keys not repeated, to ``[1, rows, heads, dim]``.

    Raises:
        ScoringError: The layer asks for something that a cascade cannot give.
    """
    plan = _require_plan(cascade_plan, attention_mask, sliding_window, kwargs)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    _, heads, rows, _ = query.shape
    layer = plan.calls
    plan.calls += 1
    # Copied at once: the row's own keys and values make room for those of the next layer.
    plan.captured.append([(key.index_select(2, r), value.index_select(2, r)) for r in plan.wanted])
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
    blocks += [(a, b, *p.layers[layer]) for behind in plan.prefixes for a, b, p in behind]
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
    if count == 1:
        return states[:, :, first:stop]
    _, heads, _, width = states.shape
    return states[0, :, first:stop].view(heads, count, -1, width).transpose(0, 1)


class RowByRow:
    """Runs the modules of a twin that work row by row on a few rows at a time, and only if wanted.

    Behind the last attention nothing mixes rows any more: the last layer's output projection and
    feed-forward block compute the rows whose logits are wanted. Its other rows are zero, and
    nobody reads them. A model with other names for these modules computes all rows.
    """

    def __init__(self, twin: nn.Module, layers: int) -> None:
        from transformers import activations

        self._rows = 0
        self._wanted = torch.empty(0)
        stacks = [m for m in twin.modules() if isinstance(m, nn.ModuleList) and len(m) == layers]
        for number, layer in enumerate(stacks[0] if stacks else (), 1):
            for name, module in layer.named_modules():
                if type(module) in (nn.SiLU, activations.SiLUActivation):
                    module.forward = partial(nn.functional.silu, inplace=True)
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
        out = states[:, :0]
        for part in parts:
            made = forward(states[:, part])
            if not isinstance(made, Tensor):
                return forward(states)
            if not out.shape[1]:
                fresh = made.new_zeros if last else made.new_empty
                out = fresh(1, self._rows, made.shape[2])
            out[:, part] = made
        return out


class CascadeForward:
    """A `PackedForward` through cascade attention."""

    max_tokens = sys.maxsize
    """Tokens of a row from which on it costs more than two shorter ones."""

    def __init__(self, runner: Runner) -> None:
        self._twin = twin_of(runner.model)
        self._layers = int(runner.model.config.get_text_config().num_hidden_layers)
        self._row_by_row = RowByRow(self._twin, self._layers)
        self.runner = runner

    def __call__(
        self,
        groups: Sequence[tuple[Forest, PrefixState]],
        rows: Sequence[int],
        *,
        capture: Sequence[Sequence[int]] = (),
    ) -> tuple[Tensor, list[KeyValues]]:
        """Run the forests one behind the other in one row; ``rows`` are ascending.

        Returns:
            The logits of ``rows``, and keys and values of each of the runs of rows in ``capture``.

        Raises:
            ScoringError: The model cannot be called this way.
        """
        plan = AttentionPlan(wanted=[on_device(run, self.runner.device) for run in capture])
        tokens: list[int] = []
        positions: list[int] = []
        for forest, prefix in groups:
            plan.add(forest, prefix, len(tokens))
            tokens.extend(forest.tokens)
            past = prefix.length
            positions.extend(past + depth for depth in forest.depths)
        self._row_by_row.want(rows, len(tokens), self.runner.device)
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
        return logits, [tuple(layers) for layers in zip(*plan.captured, strict=True)]
