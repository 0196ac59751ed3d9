"""The fast path: every prefix once, everything behind it in packed rows without padding.

A pack is a forest of paths per prefix. How a model attends within a pack is the business of a
`PackedForward`; this module decides what goes into a pack and reads the scores off. Positions
restart behind each prefix.

The last token of a prefix is not kept with it but is the root of its forest, because it
predicts the first token behind an empty candidate. A prefix too short to be worth a forward of
its own travels with the paths, and many small requests then fill one pack.

What stands before the question (head of the template, context, passage) is kept for the next one:
such a path enters its pack behind a chain of kept pieces and with the rest of its tokens alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from ecs_plugins.lm.scoring.arena import Arena
from ecs_plugins.lm.scoring.forest import MIN_SAVED, Forest, plant
from ecs_plugins.lm.scoring.packs import TokenBudget, run_in_packs
from ecs_plugins.lm.scoring.plain import MaskedForward
from ecs_plugins.lm.scoring.prefix import Kept, PrefixState, PrefixTree, first_slots, places_of
from ecs_plugins.lm.scoring.request import Ids, Logprobs, Path, PathScores, common_length
from ecs_plugins.lm.scoring.runner import logprobs_of
from ecs_plugins.lm.scoring.tensors import Readings
from ecs_plugins.lm.scoring.twin import TwinForward, Writes

WORTH_KEEPING = 32
"""Tokens from which on a prefix gets a forward of its own."""

_PAST_SHARE = 4
"""A row takes paths behind several prefixes while these have up to this many times its tokens."""

PackedForward = TwinForward | MaskedForward
"""How a model runs one packed row."""

_NOTHING: Logprobs = np.zeros(0, dtype=np.float32)


class Batch(NamedTuple):
    """Paths behind one prefix."""

    prefix: Ids
    paths: Sequence[Path]


class _Item(NamedTuple):
    """One path of a batch on its way through the packs.

    Attributes:
        batch: The number of its batch.
        path: Its number in the batch.
        head: The number of the prefix that it shares with the other paths of its batch.
        past: The number of the kept prefix that it stands behind; 0 is none.
        ids: What passes through a pack.
        scored: Indices into ``ids``.
        kept: So many leading ids are worth keeping.
    """

    batch: int
    path: int
    head: int
    past: int
    ids: Ids
    scored: tuple[int, ...]
    kept: int

    @property
    def fed(self) -> Ids:
        """The tokens that are computed: the last one is only predicted."""
        return self.ids[:-1]

    @property
    def asked(self) -> list[int]:
        """Indices of the tokens that predict the scored ones."""
        return [index - 1 for index in self.scored]


class _Size:
    """How large a pack is, item by item."""

    def __init__(self, pasts: Sequence[Ids]) -> None:
        self._pasts = pasts
        self._last: _Item | None = None
        self.tokens = 0
        self.rows = 0
        self.behind = 0
        """Tokens of the prefixes that the items stand behind."""

    def add(self, item: _Item) -> None:
        """Count one more item."""
        last = self._last
        self._last = item
        self.rows += len(item.scored)
        if last is not None and last.past == item.past:
            self.tokens += len(item.fed) - common_length(last.fed, item.fed)
            return
        self.tokens += len(item.fed)
        self.behind += len(self._pasts[item.past])
        if last is not None and last.head == item.head:
            self.behind -= len(self._pasts[item.head])


@dataclass(slots=True)
class _Pack:
    """What one forward computes.

    Attributes:
        row: The forests, each behind its prefix.
        items: The items, in the order of the forests.
        asked: For every scored token of every item, the row that predicts it.
        writes: Rows that are kept, and their places.
        kept: What the places were made for.
    """

    row: list[tuple[Forest, PrefixState]] = field(default_factory=list)
    items: list[_Item] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    written_rows: list[np.ndarray] = field(default_factory=list)
    written_slots: list[np.ndarray] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    size: int = 0

    @property
    def targets(self) -> list[int]:
        """The scored tokens of all items."""
        return [item.ids[index] for item in self.items for index in item.scored]

    def add(self, group: Sequence[_Item], prefix: PrefixState) -> Forest:
        """Add the items behind a prefix."""
        forest = plant([item.fed for item in group])
        for number, item in enumerate(group):
            rows = forest.rows(number, item.asked)
            self.asked.extend(self.size + row for row in rows)
        self.items.extend(group)
        self.row.append((forest, prefix))
        return forest

    def write(self, runs: Iterator[range], kept: Kept) -> None:
        """Keep some rows of the forest that was added last."""
        for run in runs:
            self.written_rows.append(self.size + np.arange(run.start, run.stop))
        self.written_slots.append(places_of(kept.slots))
        self.kept.append(kept)

    def writes(self, arena: Arena) -> Writes:
        """All that is to be written."""
        rows = np.concatenate(self.written_rows)
        return Writes(arena, rows, np.concatenate(self.written_slots))


class _PackedRun:
    """One call of `score`: what is to be done, and what has been found."""

    def __init__(
        self,
        forward: PackedForward,
        batches: Sequence[Batch],
        budget: TokenBudget,
        cache: PrefixTree,
    ) -> None:
        self.forward = forward
        self.budget = budget
        self.cache = cache
        self.batches = batches
        self.readings = Readings()
        self.states: dict[int, PrefixState] = {}
        self.logprobs: list[list[Logprobs]] = [[_NOTHING] * len(b.paths) for b in batches]
        self.computed = [0] * len(batches)
        self._begin()

    def _begin(self) -> None:
        """Find what is kept of every path."""
        wants_to_keep = self.cache.max_bytes != 0
        self.keeps = wants_to_keep and self.cache.open(self.forward.shape)
        self.pasts, self.items = _itemise(self.batches, self.cache)
        self.states = {0: PrefixState()}

    def release(self) -> bool:
        """Give back the memory of what is kept; whether there was any."""
        self.states.clear()
        if not self.cache.release():
            self.states = {0: PrefixState()}
            return False
        self._begin()
        return True

    def take(self, left: Sequence[int], tokens: int) -> tuple[int, int]:
        """How many of the items make the next pack, and its tokens (see `run_in_packs`)."""
        most = min(tokens, self.forward.max_tokens)
        size = _Size(self.pasts)
        before = 0
        for number, index in enumerate(left):
            size.add(self.items[index])
            full = size.tokens > most or size.rows > self.forward.runner.max_rows
            if number and (full or size.behind > _PAST_SHARE * most):
                return number, before
            before = size.tokens
        return len(left), before

    def run(self, indices: Sequence[int]) -> None:
        """Score one pack."""
        groups: dict[int, list[_Item]] = {}
        for index in indices:
            item = self.items[index]
            groups.setdefault(item.past, []).append(item)
        self._make_states(groups)
        pack = _Pack()
        try:
            for past, group in groups.items():
                forest = pack.add(group, self.states[past])
                self._keep(pack, past, group, forest)
                pack.size += len(forest.tokens)
            self._compute(pack)
        except Exception:
            self.cache.give_up(pack.kept)
            raise
        for (forest, _), group in zip(pack.row, groups.values(), strict=True):
            for batch, tokens in _tokens_by_batch(forest, group):
                self.computed[batch] += tokens

    def _keep(self, pack: _Pack, past: int, group: Sequence[_Item], forest: Forest) -> None:
        """Make room for what of a group is worth keeping, as long as there is some."""
        if not self.keeps:
            return
        behind = self.pasts[past]
        for number, item in enumerate(group):
            if item.kept < MIN_SAVED:
                continue
            kept = self.cache.keep(behind + item.ids[: item.kept], len(behind))
            if kept is None:
                return
            if kept.slots:
                pack.write(forest.runs(number, kept.start - len(behind), item.kept), kept)

    def _compute(self, pack: _Pack) -> None:
        keep = sorted(set(pack.asked))
        where = {row: number for number, row in enumerate(keep)}
        logits, (targets, rows) = self.forward(
            pack.row,
            keep,
            numbers=(pack.targets, [where[row] for row in pack.asked]),
            writes=pack.writes(self.cache.arena) if pack.kept else None,
        )
        at = 0
        for item in pack.items:
            end = at + len(item.scored)
            comparison = self._path(item).comparison
            if comparison is not None:
                comparison.see(self._path(item).ids, logits, rows[at:end], self.readings)
            at = end
        found = logprobs_of(logits, targets, rows)
        self.readings.add(found, partial(self._receive, pack.items))

    def _receive(self, items: Sequence[_Item], logprobs: Logprobs) -> None:
        at = 0
        for item in items:
            end = at + len(item.scored)
            self.logprobs[item.batch][item.path] = logprobs[at:end]
            at = end

    def order(self) -> list[int]:
        """The items that compute something, those behind one prefix side by side."""

        def place(index: int) -> tuple[int, bool, int, Ids]:
            item = self.items[index]
            return item.head, not self._path(item).is_base, item.past, item.ids

        wanted = [
            index
            for index, item in enumerate(self.items)
            if item.scored or len(item.fed) >= MIN_SAVED
        ]
        return sorted(wanted, key=place)

    def _path(self, item: _Item) -> Path:
        """The path that an item stands for."""
        return self.batches[item.batch].paths[item.path]

    def _make_states(self, groups: dict[int, list[_Item]]) -> None:
        # Items come grouped by prefix: a state that this pack does not need is hardly needed again.
        self.states = {past: s for past, s in self.states.items() if past in groups}
        for past, group in groups.items():
            if past not in self.states:
                state, spent = prefill(self.forward, self.pasts[past], self.budget, self.cache)
                self.states[past] = state
                self.computed[min(item.batch for item in group)] += spent


def score(
    forward: PackedForward,
    batches: Sequence[Batch],
    budget: TokenBudget,
    cache: PrefixTree,
) -> list[PathScores]:
    """Log-probabilities of every path's scored tokens, in nats.

    Tokens that several batches share are counted for the first of them.
    """
    run = _PackedRun(forward, batches, budget, cache)
    name = forward.runner.name
    run_in_packs(run.order(), run.take, run.run, budget, name, run.release)
    run.readings.read()
    return [PathScores(*pair) for pair in zip(run.logprobs, run.computed, strict=True)]


def prefill(
    forward: PackedForward,
    ids: Ids,
    budget: TokenBudget,
    cache: PrefixTree,
) -> tuple[PrefixState, int]:
    """The state of a prefix: what the cache holds of it, and the rest computed in pieces.

    Returns:
        The state, and how many tokens were computed for it.
    """
    known = cache.find(ids)
    missing = ids[known.length :]
    if not missing:
        return known, 0
    opened = cache.max_bytes != 0 and cache.open(forward.shape)
    kept = cache.keep(ids, known.length, least=1) if opened else None
    if kept is not None and kept.slots:
        arena = cache.arena
        slots = kept.slots
    else:
        arena = Arena(forward.shape, pages=1, page=len(missing))
        slots = arena.take(len(missing))

    def take(left: Sequence[int], tokens: int) -> tuple[int, int]:
        size = min(len(left), tokens, forward.max_tokens)
        return size, size

    def read(places: Sequence[int]) -> None:
        start = places[0]
        stop = places[-1] + 1
        before = known.append(missing[:start], arena, first_slots(slots, start))
        writes = Writes(arena, range(stop - start), places_of(slots)[start:stop])
        forward([(plant([missing[start:stop]]), before)], [], writes=writes)

    try:
        run_in_packs(range(len(missing)), take, read, budget, forward.runner.name)
    except Exception:
        if kept is not None:
            cache.give_up([kept])
        raise
    return known.append(missing, arena, slots), len(missing)


def _itemise(batches: Sequence[Batch], cache: PrefixTree) -> tuple[list[Ids], list[_Item]]:
    """The prefixes to keep, and every path with what of it is neither kept nor to be."""
    numbers: dict[Ids, int] = {(): 0}
    items: list[_Item] = []
    for number, batch in enumerate(batches):
        shared = batch.prefix[:-1] if len(batch.prefix) > WORTH_KEEPING else ()
        head = numbers.setdefault(shared, len(numbers))
        before = len(batch.prefix)
        for index, path in enumerate(batch.paths):
            whole = batch.prefix + path.ids
            known = cache.find(whole[: before + path.kept]).length if path.kept else 0
            past = max(known, len(shared))
            behind = before - past
            items.append(
                _Item(
                    batch=number,
                    path=index,
                    head=head,
                    past=numbers.setdefault(whole[:past], len(numbers)),
                    ids=whole[past:],
                    scored=tuple(behind + scored for scored in path.scored),
                    kept=max(0, behind + path.kept) if path.kept else 0,
                )
            )
    return list(numbers), items


def _tokens_by_batch(forest: Forest, group: Sequence[_Item]) -> Iterator[tuple[int, int]]:
    """Every node's tokens, booked on the batch of the first path that runs through it."""
    seen: set[int] = set()
    for item, nodes in zip(group, forest.paths, strict=True):
        for node in nodes:
            if node.start not in seen:
                seen.add(node.start)
                yield item.batch, node.length
