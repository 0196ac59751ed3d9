"""Attention of a packed row in one kernel per layer, for cards.

Every node of the forest is a sequence of its own: its queries are its rows, and its keys are those
of its whole path, gathered by index: its cached prefix, its ancestors, itself. The causal mask ends
where the keys end, so each row sees all earlier tokens, and the number of kernels does not depend
on the number of passages. A head that passages share is computed once; only
its keys are repeated.

A long context that many nodes share would be repeated too often. All of its rows attend to it in
one more call, and both results are merged by their log-sum-exp, which is exact (Hydragen, arXiv
2402.05099, Sec. 3.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ecs_plugins.lm.scoring.arena import Arena
from ecs_plugins.lm.scoring.forest import Forest
from ecs_plugins.lm.scoring.prefix import PrefixPiece, PrefixState, places_of
from ecs_plugins.lm.scoring.runner import Runner
from ecs_plugins.lm.scoring.tensors import Numbers, Sequences, attend_sequences
from ecs_plugins.lm.scoring.twin import AttentionPlan, Groups, TwinForward

REPEATED = 2**14
"""Keys of one piece that may be repeated in a pack before it gets a call of its own."""

_Slots = tuple[int, range]
"""Identity of a piece: that of its arena, and its slots."""


class _Gathered:
    """Pieces of the prefixes of a pack, each gathered once: one arena after the other."""

    def __init__(self, groups: Groups) -> None:
        self._arenas: list[Arena] = []
        self._pieces: dict[int, dict[range, None]] = {}
        self.uses: dict[_Slots, int] = {}
        for forest, prefix in groups:
            for piece in prefix.pieces:
                self._note(piece, len(forest.nodes))
        self.size = 0
        self._starts: dict[_Slots, int] = {}
        for arena in self._arenas:
            for slots in self._pieces[id(arena)]:
                self._starts[id(arena), slots] = self.size
                self.size += len(slots)

    def _note(self, piece: PrefixPiece, nodes: int) -> None:
        key = _key(piece)
        if key[0] not in self._pieces:
            self._arenas.append(piece.arena)
            self._pieces[key[0]] = {}
        self._pieces[key[0]][piece.slots] = None
        uses = self.uses.get(key, 0)
        self.uses[key] = uses + nodes

    def is_long(self, piece: PrefixPiece) -> bool:
        """Return True if a piece is too long to be repeated for all nodes after it."""
        times = self.uses[_key(piece)] - 1
        return times * len(piece.ids) >= REPEATED

    def indices(self, piece: PrefixPiece) -> np.ndarray:
        """Return the indices of a piece's keys among the gathered ones."""
        start = self._starts[_key(piece)]
        return np.arange(start, start + len(piece.ids))

    def numbers(self) -> list[np.ndarray]:
        """Return the slots to gather, per arena."""
        gathered = []
        for arena in self._arenas:
            slots = list(self._pieces[id(arena)])
            gathered.append(places_of(slots))
        return gathered

    def gather(
        self,
        layer: int,
        slots: Sequence[Tensor],
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Gather keys and values of a layer, ``[tokens, kv_heads, width]``, per arena."""
        for arena, chosen in zip(self._arenas, slots, strict=True):
            keys, values = map(_by_token, arena.layers[layer])
            yield keys.index_select(0, chosen), values.index_select(0, chosen)


def _key(piece: PrefixPiece) -> _Slots:
    return id(piece.arena), piece.slots


def _by_token(states: Tensor) -> Tensor:
    """Reshape ``[1, heads, tokens, width]`` to ``[tokens, heads, width]`` for the kernels."""
    return states[0].transpose(0, 1)


@dataclass(slots=True)
class _Call:
    """One attention call: sequences of rows side by side, and the keys that each of them sees.

    Attributes:
        first: The first row.
        causal: Whether the mask is causal.
        queries: Rows of each sequence.
        keys: Indices of the keys of each sequence.
        sequences: Both, once they are on the device.
        order: The keys of all sequences, once they are on the device.
    """

    first: int
    causal: bool
    queries: list[int] = field(default_factory=list)
    keys: list[np.ndarray] = field(default_factory=list)
    sequences: Sequences | None = None
    order: Tensor | None = None

    @property
    def rows(self) -> slice:
        """Return the rows of all sequences."""
        return slice(self.first, self.first + sum(self.queries))

    def numbers(self) -> list[Numbers]:
        """Return the starts of the sequences and of their keys, and the keys."""
        lengths = [len(keys) for keys in self.keys]
        query_starts = np.cumsum([0, *self.queries])
        key_starts = np.cumsum([0, *lengths])
        keys = np.concatenate(self.keys)
        return [query_starts, key_starts, keys]

    def receive(self, numbers: Sequence[Tensor]) -> None:
        """Store the integers of `numbers`, on the device."""
        query_starts, key_starts, self.order = numbers
        self.sequences = Sequences(
            query_starts.int(),
            key_starts.int(),
            max(self.queries),
            max(len(keys) for keys in self.keys),
            self.causal,
        )


_NUMBERS_OF_CALL = 3


class VarlenPlan(AttentionPlan):
    """Every node a sequence, and long contexts apart."""

    def __init__(self, groups: Groups) -> None:
        super().__init__(groups)
        self._kept = _Gathered(groups)
        self._slots: Sequence[Tensor] = ()
        self._nodes = _Call(0, causal=True)
        self._long: list[_Call] = []
        rows = sum(len(forest.tokens) for forest, _ in groups)
        offset = 0
        for forest, prefix in groups:
            self._add(forest, prefix, offset, rows)
            offset += len(forest.tokens)
        self._calls = [self._nodes, *self._long]

    def _add(
        self,
        forest: Forest,
        prefix: PrefixState,
        offset: int,
        rows: int,
    ) -> None:
        """Add a forest whose first row is ``offset``; cached keys come after those of all rows."""
        after: list[np.ndarray] = []
        far_behind: list[np.ndarray] = []
        for piece in prefix.pieces:
            seen = rows + self._kept.indices(piece)
            if self._kept.is_long(piece):
                far_behind.append(seen)
            else:
                after.append(seen)
        ways: dict[int, list[np.ndarray]] = {}
        for node, ancestors in forest.with_ancestors():
            own = np.arange(offset + node.start, offset + node.stop)
            above = ways[ancestors[-1].start] if ancestors else after
            way = [*above, own]
            ways[node.start] = way
            self._nodes.queries.append(node.length)
            self._nodes.keys.append(np.concatenate(way))
        if far_behind:
            seen = np.concatenate(far_behind)
            self._add_long(seen, offset, len(forest.tokens))

    def _add_long(
        self,
        seen: np.ndarray,
        offset: int,
        rows: int,
    ) -> None:
        """Add rows that see a long context; adjacent rows form one sequence."""
        last = self._long[-1] if self._long else None
        if last is None or last.rows.stop != offset:
            last = _Call(offset, causal=False)
            self._long.append(last)
        same = bool(last.keys) and np.array_equal(last.keys[-1], seen)
        if same:
            last.queries[-1] += rows
        else:
            last.queries.append(rows)
            last.keys.append(seen)

    def numbers(self) -> list[Numbers]:
        """Return the slots of cached keys, and the integers of each call."""
        out: list[Numbers] = list(self._kept.numbers())
        for call in self._calls:
            out.extend(call.numbers())
        return out

    def receive(self, numbers: Sequence[Tensor]) -> None:
        """Store the integers of `numbers`, on the device."""
        at = len(numbers) - _NUMBERS_OF_CALL * len(self._calls)
        self._slots = numbers[:at]
        for call in self._calls:
            call.receive(numbers[at : at + _NUMBERS_OF_CALL])
            at += _NUMBERS_OF_CALL

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        layer: int,
        scale: float,
    ) -> Tensor:
        """Compute the attention of a layer."""
        queries = _by_token(query)
        keys = [_by_token(key)]
        values = [_by_token(value)]
        for kept_keys, kept_values in self._kept.gather(layer, self._slots):
            keys.append(kept_keys)
            values.append(kept_values)
        all_keys = torch.cat(keys) if len(keys) > 1 else keys[0]
        all_values = torch.cat(values) if len(values) > 1 else values[0]
        out, weight = self._attend(self._nodes, queries, all_keys, all_values, scale)
        for call in self._long:
            part, lse = self._attend(call, queries, all_keys, all_values, scale)
            share = torch.sigmoid(lse - weight[:, call.rows])
            by_row = share.transpose(0, 1).unsqueeze(-1)
            out[call.rows].lerp_(part, by_row.to(out.dtype))
        return out.unsqueeze(0)

    def _attend(
        self,
        call: _Call,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scale: float,
    ) -> tuple[Tensor, Tensor]:
        assert call.sequences is not None
        assert call.order is not None
        keys = key.index_select(0, call.order)
        values = value.index_select(0, call.order)
        return attend_sequences(query[call.rows], keys, values, call.sequences, scale)


class VarlenForward(TwinForward):
    """A `PackedForward` with one attention kernel per layer."""

    def __init__(self, runner: Runner) -> None:
        super().__init__(runner, VarlenPlan)
