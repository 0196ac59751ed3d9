"""A second module tree that shares a model's weights and attends by a plan.

The attention function is registered with transformers' `AttentionInterface` and reached through a
twin of the model. The plan of a packed row travels as an argument of the forward call, and is
asked once per layer. `cascade` and `varlen` have the plans: for a processor, and for a card.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ecs_plugins.errors import ScoringError
from ecs_plugins.lm.scoring.arena import Arena, KeyValues, LayerShape, StateShape
from ecs_plugins.lm.scoring.changes import hooks_of
from ecs_plugins.lm.scoring.forest import Forest
from ecs_plugins.lm.scoring.prefix import PrefixState
from ecs_plugins.lm.scoring.runner import Runner
from ecs_plugins.lm.scoring.tensors import Numbers, together_on_device

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NAME = "ecs_plan"

_REFUSED = ("softcap", "s_aux", "sinks", "position_bias", "alibi", "head_mask")
"""Arguments that change attention in a way that the plans do not know."""

_ROW_BY_ROW = {"mlp", "feed_forward", "block_sparse_moe", "o_proj", "out_proj"}
"""Modules that work row by row in every architecture."""

BLOCK_ROWS = 512
"""Rows that pass such a module at once on a CPU: what it makes in between stays in the cache."""

Groups = Sequence[tuple[Forest, PrefixState]]
"""Forests, each behind a computed prefix."""


class Writes(NamedTuple):
    """Rows of a pack whose keys and values are to be kept.

    Attributes:
        arena: Where.
        rows: The rows.
        slots: The place of each.
    """

    arena: Arena
    rows: Numbers
    slots: Numbers


class AttentionPlan:
    """Which rows of one packed row attend to what.

    Attributes:
        longest: Tokens of the longest path, prefix included.
        calls: Attention layers that ran; a model that goes its own way shows here.
    """

    def __init__(self, groups: Groups) -> None:
        self.calls = 0
        self.longest = max((_longest(*group) for group in groups), default=0)
        self._writes: tuple[Arena, Tensor, Tensor] | None = None

    def numbers(self) -> list[Numbers]:
        """What the device has to know of it."""
        return []

    def receive(self, numbers: Sequence[Tensor]) -> None:
        """Take what `numbers` gave, on the device."""

    def write_into(self, arena: Arena, rows: Tensor, slots: Tensor) -> None:
        """Keep the keys and values of some rows."""
        self._writes = (arena, rows, slots)

    def run(self, states: tuple[Tensor, Tensor, Tensor], scale: float) -> Tensor:
        """Attention of the next layer.

        Args:
            states: Queries ``[1, heads, rows, dim]``, keys and values with their own heads.
            scale: Of the products.

        Returns:
            ``[1, rows, heads, dim of values]``.
        """
        query, key, value = states
        layer = self.calls
        self.calls += 1
        if self._writes is not None:
            arena, rows, slots = self._writes
            arena.write(layer, (key, value), rows, slots)
        return self.attend(query, key, value, layer, scale)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layer: int, scale: float) -> Tensor:
        """Attention of a layer (see `run`)."""
        raise NotImplementedError


def _longest(forest: Forest, prefix: PrefixState) -> int:
    ends = [node.depth + node.length for node in forest.nodes]
    return prefix.length + max(ends, default=0)


class _Probe(AttentionPlan):
    """Attends to nothing, and notes what a layer would keep."""

    def __init__(self) -> None:
        super().__init__([])
        self.longest = 1
        self.layers: list[LayerShape] = []
        self.dtype = torch.float32

    def run(self, states: tuple[Tensor, Tensor, Tensor], scale: float) -> Tensor:  # noqa: ARG002
        query, key, value = states
        self.calls += 1
        self.layers.append(shape_of((key, value)))
        self.dtype = key.dtype
        _, heads, rows, _ = query.shape
        return query.new_zeros(1, rows, heads, value.shape[-1])


def shape_of(states: KeyValues) -> LayerShape:
    """What a layer with these keys and values keeps of a token."""
    key, value = states
    return LayerShape(key.shape[1], key.shape[3], value.shape[3])


def planned_attention(
    _module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    attention_plan: AttentionPlan | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention over one packed row, called by transformers.

    From ``[1, heads, rows, dim]``, heads of keys not repeated, to ``[1, rows, heads, dim]``.

    Raises:
        ScoringError: The layer asks for something that a plan cannot give.
    """
    if attention_plan is None:
        raise ScoringError("its attention layers do not receive the arguments of the forward call")
    if attention_mask is not None:
        raise ScoringError("it brings an attention mask of its own")
    if sliding_window is not None and attention_plan.longest > sliding_window:
        raise ScoringError(f"its attention slides over a window of {sliding_window} tokens")
    for name in _REFUSED:
        if kwargs.get(name) is not None:
            raise ScoringError(f"its attention uses {name}")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return attention_plan.run((query, key, value), scale), None


def twin_of(model: PreTrainedModel) -> PreTrainedModel:
    """A second module tree that shares weights and hooks and differs in its attention alone.

    The model itself stays as it is: generation and the reference path keep their attention, in
    other threads too.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, planned_attention)
    kept = (*model.parameters(), *model.buffers(), *hooks_of(model))
    twin = copy.deepcopy(model, {id(each): each for each in kept})
    twin.set_attn_implementation(NAME)
    return twin


def _layers_of(twin: nn.Module, number: int) -> Sequence[nn.Module]:
    """The layers of a twin, if they are a list of so many."""
    for module in twin.modules():
        if isinstance(module, nn.ModuleList) and len(module) == number:
            return list(module)
    return ()


class RowByRow:
    """Runs the modules of a twin that work row by row on a few rows at a time, and only if wanted.

    Behind the last attention nothing mixes rows any more: the last layer's output projection and
    feed-forward block compute the rows whose logits are wanted. Its other rows are zero, and
    nobody reads them. A model with other names for these modules computes all rows.

    On a card the other layers are left as they are: it wants all rows at once.
    """

    def __init__(self, twin: nn.Module, layers: int, device: torch.device) -> None:
        self._rows = 0
        self._wanted = torch.empty(0)
        self._in_blocks = device.type == "cpu"
        for number, layer in enumerate(_layers_of(twin, layers), start=1):
            self._wrap(layer, last=number == layers)

    def want(self, wanted: Tensor, rows: int) -> None:
        """Compute these of so many rows in the next call; at least one."""
        self._wanted = wanted
        self._rows = rows

    def _wrap(self, layer: nn.Module, *, last: bool) -> None:
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

    def _is_packed_row(self, states: Tensor, others: Sequence[Any]) -> bool:
        return not others and states.shape[:2] == (1, self._rows)

    def _run_wanted(self, forward: Callable[..., Any], states: Tensor, *others: Any) -> Any:
        if not self._is_packed_row(states, others):
            return forward(states, *others)
        made = forward(states[:, self._wanted])
        if not isinstance(made, Tensor):
            return forward(states)
        out = made.new_zeros(1, self._rows, made.shape[2])
        return out.index_copy_(1, self._wanted, made)

    def _run_blocks(self, forward: Callable[..., Any], states: Tensor, *others: Any) -> Any:
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


def _norm(module: nn.Module, states: Tensor) -> Tensor:
    epsilon = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    return nn.functional.rms_norm(states, states.shape[-1:], module.weight, epsilon)


def _is_plain_norm(module: nn.Module) -> bool:
    """Whether a module with weights of its own kind says what torch's norm says."""
    if set(module._parameters) != {"weight"} or module._buffers or module._modules:
        return False
    generator = torch.Generator().manual_seed(0)
    width = module.weight.shape[-1]
    tried = copy.copy(module)
    tried.__dict__["_parameters"] = {"weight": torch.randn(width, generator=generator)}
    states = torch.randn(4, width, generator=generator)
    try:
        wanted = tried(states)
        found = _norm(tried, states)
    except (RuntimeError, TypeError):
        return False
    return torch.allclose(wanted, found, atol=1e-5)


class TwinForward:
    """A `PackedForward` through a twin that attends by plans.

    Args:
        runner: The model.
        plan: Makes the plan of a packed row.
    """

    max_tokens = sys.maxsize
    """Tokens of a row from which on it costs more than two shorter ones."""

    def __init__(self, runner: Runner, plan: Callable[[Groups], AttentionPlan]) -> None:
        self.runner = runner
        self._plan = plan
        self._twin = twin_of(runner.model)
        self._layers = int(runner.model.config.get_text_config().num_hidden_layers)
        self._row_by_row = RowByRow(self._twin, self._layers, runner.device)
        if runner.device.type != "cpu":
            fuse_norms(self._twin)
        self._shape: StateShape | None = None

    @property
    def shape(self) -> StateShape:
        """What the model keeps of a token; found out by showing it one.

        Raises:
            ScoringError: The model cannot be called this way.
        """
        if self._shape is None:
            probe = _Probe()
            first = torch.zeros(1, dtype=torch.long, device=self.runner.device)
            self._run(probe, first, first, first)
            self._shape = StateShape(tuple(probe.layers), probe.dtype, self.runner.device)
        return self._shape

    def __call__(
        self,
        groups: Groups,
        rows: Sequence[int],
        *,
        numbers: Sequence[Numbers] = (),
        writes: Writes | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Run the forests one behind the other in one row.

        Args:
            groups: The forests, each behind a computed prefix.
            rows: Ascending: which rows' logits are wanted.
            numbers: Lists of integers that the caller needs on the device; they travel along.
            writes: Which rows' keys and values are to be kept.

        Returns:
            The logits of ``rows``, and ``numbers`` on the device.

        Raises:
            ScoringError: The model cannot be called this way.
        """
        plan = self._plan(groups)
        tokens = [token for forest, _ in groups for token in forest.tokens]
        positions = [prefix.length + forest.positions() for forest, prefix in groups]
        kept = ((), ()) if writes is None else (writes.rows, writes.slots)
        own = plan.numbers()
        sent = together_on_device(
            [tokens, np.concatenate(positions), rows or (0,), *kept, *own, *numbers],
            self.runner.device,
        )
        input_ids, position_ids, wanted, kept_rows, slots = sent[:5]
        plan.receive(sent[5 : 5 + len(own)])
        if writes is not None:
            plan.write_into(writes.arena, kept_rows, slots)
        logits = self._run(plan, input_ids, position_ids, wanted)
        return logits[: len(rows)], sent[5 + len(own) :]

    def _run(
        self,
        plan: AttentionPlan,
        input_ids: Tensor,
        position_ids: Tensor,
        wanted: Tensor,
    ) -> Tensor:
        self._row_by_row.want(wanted, len(input_ids))
        logits = self.runner.logits(
            input_ids.unsqueeze(0),
            wanted,
            model=self._twin,
            position_ids=position_ids.unsqueeze(0),
            use_cache=False,
            attention_plan=plan,
        )
        if plan.calls != self._layers:
            raise ScoringError("not all of its layers are attention layers")
        return logits[0]
