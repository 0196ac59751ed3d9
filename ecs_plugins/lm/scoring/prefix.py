"""Keys and values of computed prefixes, kept between calls in a tree under a byte budget.

A causal model's keys and values depend on earlier tokens alone. So prompts that begin alike share
them: a passage that is asked about again, after the same head of the template and the same context,
and a conversation that grows at its end. A branch is a run of token ids whose keys and values are
in an arena; a prefix is the way from the root to a branch.

Sharing fewer than `MIN_SAVED` tokens is not worth a branch: such heads are repeated, as in a
forest (see ``forest``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import torch

from ecs_plugins.lm.scoring.arena import PAGE, Arena, KeyValues, StateShape
from ecs_plugins.lm.scoring.forest import MIN_SAVED
from ecs_plugins.lm.scoring.request import Ids, common_length
from ecs_plugins.lm.scoring.runner import is_out_of_memory

_CPU = torch.device("cpu")

_SHARE = 8
_SHARE_OF_A_CARD = 4
_LEAST = 2**26
_MOST = 2**34
"""On a processor: a program that runs for weeks must not grow without end on a large machine."""

_GROUP = Path("/sys/fs/cgroup")
_GROUP_FILES = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)
"""Limit and use of a container's memory, in both versions of Linux control groups."""

Slots = Sequence[range]
"""Runs of places in an arena, one after the other."""


class PrefixPiece(NamedTuple):
    """Run of tokens whose keys and values are adjacent in memory.

    Attributes:
        ids: Token ids of the run.
        arena: Memory that holds the keys and values.
        slots: Slots of the tokens in the arena.
    """

    ids: Ids
    arena: Arena
    slots: range

    def layer(self, number: int) -> KeyValues:
        """Return views of a layer's keys and values, each ``[1, kv_heads, len(ids), width]``."""
        return self.arena.read(number, self.slots)

    @property
    def layers(self) -> tuple[KeyValues, ...]:
        """Keys and values of all layers."""
        numbers = range(len(self.arena.layers))
        return tuple(self.layer(number) for number in numbers)


@dataclass(frozen=True, slots=True)
class PrefixState:
    """A computed prefix: pieces, one after the other."""

    pieces: tuple[PrefixPiece, ...] = ()

    @property
    def ids(self) -> Ids:
        """Return its token ids."""
        return tuple(token for piece in self.pieces for token in piece.ids)

    @property
    def length(self) -> int:
        """Return its tokens."""
        return sum(len(piece.ids) for piece in self.pieces)

    def append(
        self,
        ids: Ids,
        arena: Arena,
        slots: Slots,
    ) -> PrefixState:
        """Return this state with the tokens computed after it."""
        after = _pieces(ids, arena, slots)
        return PrefixState((*self.pieces, *after))


def _pieces(
    ids: Ids,
    arena: Arena,
    slots: Slots,
) -> Iterator[PrefixPiece]:
    at = 0
    for run in slots:
        end = at + len(run)
        yield PrefixPiece(ids[at:end], arena, run)
        at = end


def joined(pieces: Sequence[PrefixPiece]) -> tuple[KeyValues, ...]:
    """Copy keys and values of pieces into one tensor per layer."""
    layers = []
    for number in range(len(pieces[0].arena.layers)):
        parts = [piece.layer(number) for piece in pieces]
        keys, values = zip(*parts, strict=True)
        whole = (torch.cat(keys, dim=2), torch.cat(values, dim=2))
        layers.append(whole)
    return tuple(layers)


def first_slots(slots: Slots, tokens: int) -> list[range]:
    """Return the slots of the first tokens."""
    return _cut(slots, tokens)[0]


def _cut(
    slots: Slots,
    at: int,
) -> tuple[list[range], list[range]]:
    """Divide slots after a number of tokens."""
    before = []
    after = []
    for run in slots:
        if at > 0:
            before.append(run[:at])
        if at < len(run):
            after.append(run[max(0, at) :])
        at -= len(run)
    return before, after


def places_of(slots: Slots) -> np.ndarray:
    """Return the place of every token, ``[tokens]``."""
    if not slots:
        return np.zeros(0, dtype=np.int64)
    runs = [np.arange(run.start, run.stop) for run in slots]
    return np.concatenate(runs)


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
    ids: Ids
    slots: Slots
    parent: _Branch | None
    call: int = 0
    """The last call that used it."""
    children: dict[Ids, _Branch] = field(default_factory=dict)
    """By their first `MIN_SAVED` ids, or all of them where they are fewer."""

    @property
    def key(self) -> Ids:
        """Key of the branch in its parent."""
        return self.ids[:MIN_SAVED]


class Kept(NamedTuple):
    """Cache slots reserved for a prefix.

    Attributes:
        start: Number of tokens of the prefix that are cached already.
        slots: Slots for the other tokens.
        branch: Branch that was added for them, if any.
    """

    start: int
    slots: Slots = ()
    branch: _Branch | None = None


class PrefixTree:
    """Least recently used prefixes under a byte budget.

    For one thread at a time: whoever computes. What a call has used is not dropped before the
    next call, so that a pool larger than the budget is found in part, and not driven out by itself.

    Args:
        max_bytes: The budget; 0 keeps nothing; by default a share of the device's free memory.
        most_tokens: No more than that, whatever the budget.
        page: Tokens of a page.
        device: Where they will be kept.
    """

    def __init__(
        self,
        max_bytes: int | None = None,
        most_tokens: int | None = None,
        page: int = PAGE,
        device: torch.device = _CPU,
    ) -> None:
        self._device = device
        self.max_bytes = max_bytes
        self._most_tokens = most_tokens
        self._page = page
        self._given_up = 0
        self._call = 0
        self._hits = 0
        self._saved = 0
        self._arena: Arena | None = None
        self._budget: int | None = None
        self._clear()

    def begin(self) -> None:
        """Count a new scoring call; drop the cache if its budget has changed."""
        self._call += 1
        if self._arena is not None and self._budget != self.max_bytes:
            self._let_go()

    def open(self, shape: StateShape) -> bool:
        """Take the memory, unless it is there; whether anything can be kept."""
        if self._arena is not None and self._arena.shape != shape:
            self._let_go()
        if self._arena is None and self.max_bytes != 0:
            self._budget = self.max_bytes
            self._arena = self._allocate(shape)
        return self._arena is not None

    @property
    def is_open(self) -> bool:
        """True if the tree has memory."""
        return self._arena is not None

    @property
    def arena(self) -> Arena:
        """Where everything is kept; it must have been opened."""
        assert self._arena is not None
        return self._arena

    def find(self, ids: Ids) -> PrefixState:
        """Return the longest kept leading part of ``ids``; the empty state if there is none."""
        way = self._way(ids)
        self._use(way)
        pieces: list[PrefixPiece] = []
        for branch, shared in way:
            slots = first_slots(branch.slots, shared)
            ids_of_branch = branch.ids[:shared]
            pieces.extend(_pieces(ids_of_branch, self.arena, slots))
        return PrefixState(tuple(pieces))

    def keep(
        self,
        ids: Ids,
        after: int = 0,
        least: int = MIN_SAVED,
    ) -> Kept | None:
        """Make room for a prefix; drop the least recently used ones where there is none left.

        It is found from now on: the caller writes it before anybody reads it, or gives it up.

        Args:
            ids: The prefix.
            after: Number of leading tokens that must be kept already; else nothing is kept.
            least: Fewer tokens than that are not worth it.

        Returns:
            Room for the tokens that are not kept yet; None if there is none.
        """
        way = self._way(ids)
        start = sum(shared for _, shared in way)
        if start < after:
            return None
        if len(ids) - start < least:
            return Kept(start)
        for branch, _ in way:
            branch.call = self._call
        if not self._make_room(len(ids) - start):
            return None
        parent = self._root
        if way:
            parent, shared = way[-1]
            if shared < len(parent.ids):
                self._split(parent, shared)
        slots = self.arena.take(len(ids) - start)
        branch = _Branch(ids[start:], slots, parent, self._call)
        self._add(branch)
        return Kept(start, slots, branch)

    def give_up(self, kept: Iterable[Kept]) -> None:
        """Forget a prefix that was not written, and all that follow it."""
        for each in kept:
            if each.branch is not None and each.branch in self._order:
                self._drop(each.branch)

    def release(self) -> bool:
        """Drop all cached tokens and free their memory; halve the next allocation.

        Returns:
            True if there was memory to free.
        """
        if self._arena is None:
            return False
        self._given_up += 1
        self._let_go()
        return True

    @property
    def statistics(self) -> CacheStatistics:
        """Size of the tree, and tokens saved."""
        arena = self._arena
        held = 0
        if arena is not None:
            held = arena.page_bytes * (arena.pages - arena.free)
        budget = self.max_bytes
        if budget is None:
            budget = default_cache_bytes(self._device) if arena is None else arena.nbytes
        return CacheStatistics(
            len(self._order),
            self._tokens,
            held,
            budget,
            self._hits,
            self._saved,
        )

    def _clear(self) -> None:
        self._root = _Branch((), (), None)
        # A branch comes before its parent.
        self._order: OrderedDict[_Branch, None] = OrderedDict()
        self._tokens = 0

    def _let_go(self) -> None:
        self._arena = None
        self._clear()

    def _allocate(self, shape: StateShape) -> Arena | None:
        """Allocate the budget; half of it, and so on, where memory does not suffice."""
        page_bytes = self._page * shape.token_bytes
        budget = self.max_bytes
        if budget is None:
            budget = default_cache_bytes(shape.device)
        pages = budget // page_bytes >> self._given_up
        if self._most_tokens is not None:
            pages = min(pages, -(-self._most_tokens // self._page))
        while pages:
            try:
                return Arena(shape, pages, self._page)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
            pages //= 2
        return None

    def _way(self, ids: Ids) -> list[tuple[_Branch, int]]:
        """Return the branches along ``ids``, with the number of shared tokens of each.

        Every branch but the last is shared whole.
        """
        way: list[tuple[_Branch, int]] = []
        branch = self._root
        at = 0
        while following := self._next(branch, ids[at : at + MIN_SAVED]):
            branch = following
            length = len(branch.ids)
            common = common_length(branch.ids, ids[at : at + length])
            way.append((branch, common))
            at += common
            if common < length:
                break
        return way

    @staticmethod
    def _next(branch: _Branch, ids: Ids) -> _Branch | None:
        if not branch.children:
            return None
        for length in range(len(ids), 0, -1):
            if child := branch.children.get(ids[:length]):
                return child
        return None

    def _use(self, way: Sequence[tuple[_Branch, int]]) -> None:
        for branch, shared in reversed(way):  # the parent last
            self._order.move_to_end(branch)
            if branch.call != self._call:
                branch.call = self._call
                self._hits += 1
                self._saved += shared

    def _split(self, branch: _Branch, at: int) -> None:
        """Divide a branch: its first tokens stay, and a new branch after it gets the others."""
        before, after = _cut(branch.slots, at)
        rest = _Branch(
            branch.ids[at:],
            after,
            branch,
            branch.call,
            branch.children,
        )
        for child in rest.children.values():
            child.parent = rest
        # The page that the cut goes through now carries both.
        end = before[-1].stop
        if end % self._page:
            self.arena.share(range(end, end + 1))
        branch.ids = branch.ids[:at]
        branch.slots = before
        branch.children = {rest.key: rest}
        self._order[rest] = None
        self._to_the_end(branch)

    def _add(self, branch: _Branch) -> None:
        assert branch.parent is not None
        branch.parent.children[branch.key] = branch
        self._tokens += len(branch.ids)
        self._order[branch] = None
        self._to_the_end(branch.parent)

    def _to_the_end(self, branch: _Branch | None) -> None:
        """Move a branch and its ancestors to the end of the order of use."""
        while branch is not None and branch is not self._root:
            self._order.move_to_end(branch)
            branch = branch.parent

    def _drop(self, branch: _Branch) -> None:
        """Drop a branch and all branches after it."""
        for child in list(branch.children.values()):
            self._drop(child)
        assert branch.parent is not None
        del branch.parent.children[branch.key]
        del self._order[branch]
        self._tokens -= len(branch.ids)
        for run in branch.slots:
            self.arena.give_back(run)

    def _make_room(self, tokens: int) -> bool:
        wanted = self.arena.pages_for(tokens)
        if wanted > self.arena.pages:
            return False
        while self.arena.free < wanted:
            oldest = next(iter(self._order))
            if oldest.call == self._call:
                return False
            self._drop(oldest)
        return True


def default_cache_bytes(device: torch.device) -> int:
    """Return the default budget for keys and values on a device: a share of the free memory.

    On a processor other programs want memory too; a card is there for its model.
    """
    if device.type == "cuda" and torch.cuda.is_available():
        free, _ = torch.cuda.mem_get_info(device)
        # Memory that torch holds for later tensors is free as well.
        spare = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return max(_LEAST, (free + spare) // _SHARE_OF_A_CARD)
    share = free_bytes() // _SHARE
    return min(_MOST, max(_LEAST, share))


def free_bytes(group: Path | None = None) -> int:
    """Return the memory that this process can still have, within the limit of its container.

    Args:
        group: Directory of the control group; that of the process by default.
    """
    group = group or _GROUP
    available: int = psutil.virtual_memory().available
    for limit_file, use_file in _GROUP_FILES:
        try:
            limit = int((group / limit_file).read_text())
            used = int((group / use_file).read_text())
        except (OSError, ValueError):  # no such file, or "max" for no limit
            continue
        available = min(available, limit - used)
    return max(0, available)
