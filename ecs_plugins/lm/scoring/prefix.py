"""Keys and values of computed prefixes, kept between calls in a tree under a byte budget.

A causal model's keys and values depend on what stands before alone. So whatever begins like
something that was computed finds it here: a passage that is asked about again, behind the same head
of the template and the same context, and a conversation that grows at its end. A branch is a run
of token ids with its keys and values; a prefix is the way from the root to a branch.

Sharing fewer than `MIN_SAVED` tokens is not worth a branch: such heads are repeated, as in a
forest (see ``forest``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from ecs_plugins.lm.scoring.forest import MIN_SAVED
from ecs_plugins.lm.scoring.request import Ids, common_length

KeyValues = tuple[tuple[torch.Tensor, torch.Tensor], ...]

DEFAULT_CACHE_BYTES = 2**29


class PrefixPiece(NamedTuple):
    """A run of tokens.

    Attributes:
        ids: Its token ids.
        layers: Per attention layer, keys and values ``[1, kv_heads, len(ids), head_dim]``.
    """

    ids: Ids
    layers: KeyValues

    def part(self, start: int, stop: int) -> PrefixPiece:
        """Some of its tokens: views, no copy."""
        if (start, stop) == (0, len(self.ids)):
            return self
        layers = tuple((k[:, :, start:stop], v[:, :, start:stop]) for k, v in self.layers)
        return PrefixPiece(self.ids[start:stop], layers)

    @property
    def nbytes(self) -> int:
        """Bytes of all keys and values."""
        return sum(k.nbytes + v.nbytes for k, v in self.layers)


@dataclass(frozen=True, slots=True)
class PrefixState:
    """A computed prefix: pieces, one behind the other."""

    pieces: tuple[PrefixPiece, ...] = ()

    @property
    def ids(self) -> Ids:
        """Its token ids."""
        return tuple(token for piece in self.pieces for token in piece.ids)

    @property
    def length(self) -> int:
        """Its tokens."""
        return sum(len(piece.ids) for piece in self.pieces)

    def part(self, start: int, stop: int) -> PrefixState:
        """Some of its tokens: views, no copy."""
        pieces, at = [], 0
        for piece in self.pieces:
            first, last = max(start - at, 0), min(stop - at, len(piece.ids))
            if first < last:
                pieces.append(piece.part(first, last))
            at += len(piece.ids)
        return PrefixState(tuple(pieces))

    def append(self, ids: Ids, layers: KeyValues) -> PrefixState:
        """This state with what was computed behind it."""
        return PrefixState((*self.pieces, PrefixPiece(ids, layers)))


def joined(pieces: Sequence[PrefixPiece]) -> PrefixPiece:
    """A compact copy of pieces, one behind the other."""
    layers = zip(*(piece.layers for piece in pieces), strict=True)
    return PrefixPiece(
        tuple(token for piece in pieces for token in piece.ids),
        tuple(
            (torch.cat([k for k, _ in parts], dim=2), torch.cat([v for _, v in parts], dim=2))
            for parts in layers
        ),
    )


class CacheStatistics(NamedTuple):
    """Pieces that are kept and their size; how often calls found one, and the tokens saved."""

    pieces: int
    tokens: int
    nbytes: int
    max_bytes: int
    hits: int
    tokens_saved: int


@dataclass(eq=False, slots=True)
class _Branch:
    piece: PrefixPiece
    parent: _Branch | None
    call: int = 0
    """The last call that used it."""
    children: dict[Ids, _Branch] = field(default_factory=dict)
    """By their first `MIN_SAVED` ids, or all of them where they are fewer."""


class PrefixTree:
    """Least recently used prefixes under a byte budget.

    For one thread at a time: whoever computes. What a call has used is not dropped before the
    next call, so that a pool larger than the budget is found in part, and not driven out by itself.

    Args:
        max_bytes: The budget; 0 keeps nothing.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._root = _Branch(PrefixPiece((), ()), None)
        self._order: OrderedDict[_Branch, None] = OrderedDict()  # a branch comes before its parent
        self._call = self._tokens = self._nbytes = self._hits = self._saved = 0

    def begin(self) -> None:
        """A new call begins."""
        self._call += 1
        self._make_room(0)

    def find(self, ids: Ids) -> PrefixState:
        """The longest kept leading part of ``ids``; the empty state if there is none."""
        way = self._way(ids)
        self._use(way)
        return PrefixState(tuple(branch.piece.part(0, shared) for branch, shared in way))

    def keep(self, state: PrefixState) -> bool:
        """Keep a state, and drop what was not used for longest where bytes run out.

        Args:
            state: What to keep; compact where it is not kept already.

        Returns:
            Whether nothing of it that is worth keeping is missing now.
        """
        ids = state.ids
        way = self._way(ids)
        matched = sum(shared for _, shared in way)
        if len(ids) - matched < MIN_SAVED:
            return True
        for branch, _ in way:
            branch.call = self._call
        pieces = state.part(matched, len(ids)).pieces
        if not self._make_room(sum(piece.nbytes for piece in pieces)):
            return False
        parent = self._root
        if way:
            parent, shared = way[-1]
            if shared < len(parent.piece.ids):
                parent = self._split(parent, shared)
        whole = any(pieces[0] is piece for piece in state.pieces)
        piece = pieces[0] if whole and len(pieces) == 1 else joined(pieces)
        self._add(_Branch(piece, parent, self._call))
        return True

    @property
    def statistics(self) -> CacheStatistics:
        """What is held, and what was saved."""
        return CacheStatistics(
            len(self._order), self._tokens, self._nbytes, self.max_bytes, self._hits, self._saved
        )

    def _way(self, ids: Ids) -> list[tuple[_Branch, int]]:
        """The branches along ``ids``, and how many tokens of each are shared: all but of the last.

        Every branch but the last is shared whole.
        """
        way: list[tuple[_Branch, int]] = []
        branch, at = self._root, 0
        while shared := self._next(branch, ids[at : at + MIN_SAVED]):
            branch = shared
            length = len(branch.piece.ids)
            common = common_length(branch.piece.ids, ids[at : at + length])
            way.append((branch, common))
            at += common
            if common < length:
                break
        return way

    @staticmethod
    def _next(branch: _Branch, ids: Ids) -> _Branch | None:
        for length in range(len(ids) if branch.children else 0, 0, -1):
            if found := branch.children.get(ids[:length]):
                return found
        return None

    def _use(self, way: Sequence[tuple[_Branch, int]]) -> None:
        for branch, shared in reversed(way):  # the parent last
            self._order.move_to_end(branch)
            if branch.call != self._call:
                branch.call = self._call
                self._hits += 1
                self._saved += shared

    def _split(self, branch: _Branch, at: int) -> _Branch:
        """Two branches in place of one; the first of them."""
        head, rest = (
            joined([branch.piece.part(*cut)]) for cut in ((0, at), (at, len(branch.piece.ids)))
        )
        first = _Branch(head, branch.parent, self._call)
        second = _Branch(rest, first, branch.call, branch.children)
        for child in second.children.values():
            child.parent = second
        branch.children = {}
        self._drop(branch)
        self._add(second)
        self._add(first)
        return first

    def _add(self, branch: _Branch) -> None:
        assert branch.parent is not None
        branch.parent.children[branch.piece.ids[:MIN_SAVED]] = branch
        self._nbytes += branch.piece.nbytes
        self._tokens += len(branch.piece.ids)
        above: _Branch | None = branch
        self._order[branch] = None
        while above is not None and above is not self._root:
            if above in self._order:
                self._order.move_to_end(above)
            above = above.parent

    def _drop(self, branch: _Branch) -> None:
        """Drop a branch and what stands behind it."""
        for child in list(branch.children.values()):
            self._drop(child)
        assert branch.parent is not None
        del branch.parent.children[branch.piece.ids[:MIN_SAVED]]
        del self._order[branch]
        self._nbytes -= branch.piece.nbytes
        self._tokens -= len(branch.piece.ids)

    def _make_room(self, wanted: int) -> bool:
        if wanted > self.max_bytes:
            return False
        while self._nbytes + wanted > self.max_bytes:
            oldest = next(iter(self._order))
            if oldest.call == self._call:
                return False
            self._drop(oldest)
        return True
