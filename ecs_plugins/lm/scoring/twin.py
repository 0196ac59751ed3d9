"""Twin of a model: a second module tree that shares its weights and attends by a plan.

The attention function is registered with transformers' `AttentionInterface` and reached through a
twin of the model. The plan of a packed row travels as an argument of the forward call, and is
asked once per layer. `cascade` and `varlen` have the plans: for a processor, and for a card.
"""

from __future__ import annotations

import copy
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ecs_plugins.errors import ScoringError
from ecs_plugins.lm.scoring.arena import Arena, KeyValues, LayerShape, StateShape
from ecs_plugins.lm.scoring.forest import Forest
from ecs_plugins.lm.scoring.model_watch import hooks_of
from ecs_plugins.lm.scoring.modules import RowByRow, fuse_norms
from ecs_plugins.lm.scoring.prefix import PrefixState
from ecs_plugins.lm.scoring.runner import Runner
from ecs_plugins.lm.scoring.tensors import Numbers, together_on_device

if TYPE_CHECKING:
    from transformers import PreTrainedModel

NAME = "ecs_plan"

_REFUSED = ("softcap", "s_aux", "sinks", "position_bias", "alibi", "head_mask")
"""Arguments that change attention in a way that the plans do not know."""

Groups = Sequence[tuple[Forest, PrefixState]]
"""Forests, each after a computed prefix."""


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


class AttentionPlan(ABC):
    """Plan of the attention within one packed row.

    Attributes:
        longest: Tokens of the longest path, prefix included.
        calls: Attention layers that ran; too few for a model that attends in another way.
    """

    def __init__(self, groups: Groups) -> None:
        self.calls = 0
        lengths = [_longest(*group) for group in groups]
        self.longest = max(lengths, default=0)
        self._writes: tuple[Arena, Tensor, Tensor] | None = None

    def numbers(self) -> list[Numbers]:
        """Return the integers that the device needs."""
        return []

    def receive(self, numbers: Sequence[Tensor]) -> None:
        """Store the integers of `numbers`, on the device."""
        assert not numbers, "a plan that gives numbers takes them"

    def write_into(
        self,
        arena: Arena,
        rows: Tensor,
        slots: Tensor,
    ) -> None:
        """Keep the keys and values of some rows."""
        self._writes = (arena, rows, slots)

    def run(
        self,
        states: tuple[Tensor, Tensor, Tensor],
        scale: float,
    ) -> Tensor:
        """Compute the attention of the next layer.

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

    @abstractmethod
    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        layer: int,
        scale: float,
    ) -> Tensor:
        """Compute the attention of a layer (see `run`)."""


def _longest(forest: Forest, prefix: PrefixState) -> int:
    ends = [node.depth + node.length for node in forest.nodes]
    deepest = max(ends, default=0)
    return prefix.length + deepest


def tokens_of(groups: Groups) -> list[int]:
    """Return the tokens of all rows."""
    tokens: list[int] = []
    for forest, _ in groups:
        tokens.extend(forest.tokens)
    return tokens


def positions_of(groups: Groups) -> np.ndarray:
    """Return the position of every row in its prompt."""
    positions = []
    for forest, prefix in groups:
        positions.append(prefix.length + forest.positions())
    return np.concatenate(positions)


class _Probe(AttentionPlan):
    """Plan that attends to nothing, and records the shape of keys and values."""

    def __init__(self) -> None:
        super().__init__([])
        self.longest = 1
        self.layers: list[LayerShape] = []
        self.dtype = torch.float32

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        layer: int,  # noqa: ARG002
        scale: float,  # noqa: ARG002
    ) -> Tensor:
        """Return zeros in the shape of attention."""
        self.layers.append(shape_of((key, value)))
        self.dtype = key.dtype
        _, heads, rows, _ = query.shape
        return query.new_zeros(1, rows, heads, value.shape[-1])


def shape_of(states: KeyValues) -> LayerShape:
    """Return the shape of a layer's keys and values of one token."""
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
    """Compute the attention over one packed row, called by transformers.

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
    """Make a second module tree that shares weights and hooks and differs in its attention.

    The model itself stays as it is: generation and the reference path keep their attention, in
    other threads too.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, planned_attention)
    tensors = (*model.parameters(), *model.buffers())
    shared = (*tensors, *hooks_of(model))
    memo = {id(each): each for each in shared}
    twin = copy.deepcopy(model, memo)
    twin.set_attn_implementation(NAME)
    return twin


class TwinForward:
    """A `PackedForward` through a twin that attends by plans.

    Args:
        runner: The model.
        plan: Makes the plan of a packed row.
    """

    max_tokens = sys.maxsize
    """Tokens of a row from which on it costs more than two shorter ones."""

    def __init__(
        self,
        runner: Runner,
        plan: Callable[[Groups], AttentionPlan],
    ) -> None:
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
        """Shape of the model's keys and values of a token, found by running one.

        Raises:
            ScoringError: The model cannot be called this way.
        """
        if self._shape is None:
            probe = _Probe()
            first = torch.zeros(1, dtype=torch.long, device=self.runner.device)
            self._run(probe, first, first, first)
            layers = tuple(probe.layers)
            self._shape = StateShape(layers, probe.dtype, self.runner.device)
        return self._shape

    def __call__(
        self,
        groups: Groups,
        rows: Sequence[int],
        *,
        numbers: Sequence[Numbers] = (),
        writes: Writes | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Run the forests one after the other in one row.

        Args:
            groups: The forests, each after a computed prefix.
            rows: Ascending: which rows' logits are wanted.
            numbers: Lists of integers that the caller needs on the device; they travel along.
            writes: Which rows' keys and values are to be kept.

        Returns:
            The logits of ``rows``, and ``numbers`` on the device.

        Raises:
            ScoringError: The model cannot be called this way.
        """
        plan = self._plan(groups)
        own = plan.numbers()
        lists: list[Numbers] = [
            tokens_of(groups),
            positions_of(groups),
            rows or (0,),
            () if writes is None else writes.rows,
            () if writes is None else writes.slots,
            *own,
            *numbers,
        ]
        sent = together_on_device(lists, self.runner.device)
        input_ids, position_ids, wanted, kept_rows, slots, *others = sent
        plan.receive(others[: len(own)])
        if writes is not None:
            plan.write_into(writes.arena, kept_rows, slots)
        logits = self._run(plan, input_ids, position_ids, wanted)
        return logits[: len(rows)], others[len(own) :]

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
