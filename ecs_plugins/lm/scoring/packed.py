"""Fast path: every prefix once, all paths after it in packed rows without padding.

A pack is a forest of paths per prefix. A `PackedForward` attends within a pack; this module fills
packs and reads the scores. Positions restart after each prefix.


The last token of a prefix is not kept with it but is the root of its forest, because it
predicts the first token after an empty candidate. A prefix too short to be worth a forward of
its own travels with the paths, and many small requests then fill one pack.

The part before the question (head of the template, context, passage) is kept for the next one:
such a path enters its pack after a chain of kept pieces, with the rest of its tokens alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from ecs_plugins.lm.scoring.arena import Arena
from ecs_plugins.lm.scoring.forest import MIN_SAVED, Forest, plant
from ecs_plugins.lm.scoring.pack_items import Batch, Item, Pack, Size, itemise, tokens_by_batch
from ecs_plugins.lm.scoring.packs import TokenBudget, run_in_packs
from ecs_plugins.lm.scoring.padded import MaskedForward
from ecs_plugins.lm.scoring.prefix import PrefixState, PrefixTree, first_slots, places_of
from ecs_plugins.lm.scoring.request import Ids, Logprobs, Path, PathScores
from ecs_plugins.lm.scoring.runner import logprobs_of
from ecs_plugins.lm.scoring.tensors import Readings
from ecs_plugins.lm.scoring.twin import TwinForward, Writes

_PAST_SHARE = 4
"""A row takes paths of several prefixes while these have up to this many times its tokens."""

PackedForward = TwinForward | MaskedForward
"""Function of a model that runs one packed row."""

_NOTHING: Logprobs = np.zeros(0, dtype=np.float32)


class _PackedRun:
    """One call of `score`: its items and its results."""

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
        """Find the cached part of every path."""
        wants_to_keep = self.cache.max_bytes != 0
        self.keeps = wants_to_keep and self.cache.open(self.forward.shape)
        self.found: dict[Ids, PrefixState] = {(): PrefixState()}
        self.pasts, self.items = itemise(self.batches, self.cache, self.found)
        self.states = {}

    def release(self) -> bool:
        """Free the memory of cached prefixes; return False if there was none."""
        if not self.cache.is_open:
            return False
        # Both hold on to that memory.
        self.states.clear()
        self.found.clear()
        self.cache.release()
        self._begin()
        return True

    def take(
        self,
        left: Sequence[int],
        tokens: int,
    ) -> tuple[int, int]:
        """Return the number of items of the next pack, and its tokens (see `run_in_packs`)."""
        self.budget.give_way()  # here no kept prefix is half written
        most = min(tokens, self.forward.max_tokens)
        size = Size(self.pasts)
        before = 0
        for number, index in enumerate(left):
            size.add(self.items[index])
            too_long = size.tokens > most
            too_many = size.rows > self.forward.runner.max_rows
            too_far = size.after > _PAST_SHARE * most
            if number and (too_long or too_many or too_far):
                return number, before
            before = size.tokens
        return len(left), before

    def run(self, indices: Sequence[int]) -> None:
        """Score one pack."""
        groups: dict[int, list[Item]] = {}
        for index in indices:
            item = self.items[index]
            groups.setdefault(item.past, []).append(item)
        self._make_states(groups)
        pack = Pack()
        try:
            for past, group in groups.items():
                forest = pack.add(group, self.states[past])
                self._keep(pack, past, group, forest)
                pack.size += len(forest.tokens)
            self._compute(pack)
        except Exception:
            self.cache.give_up(pack.kept)
            raise
        pairs = zip(pack.row, groups.values(), strict=True)
        for (forest, _), group in pairs:
            for batch, tokens in tokens_by_batch(forest, group):
                self.computed[batch] += tokens

    def _keep(
        self,
        pack: Pack,
        past: int,
        group: Sequence[Item],
        forest: Forest,
    ) -> None:
        """Reserve cache slots for the reusable tokens of a group, while slots are free."""
        if not self.keeps or not self.cache.is_open:
            return
        after = self.pasts[past]
        for number, item in enumerate(group):
            if item.kept < MIN_SAVED:
                continue
            ids = after + item.ids[: item.kept]
            kept = self.cache.keep(ids, len(after))
            if kept is None:
                return
            if kept.slots:
                first = kept.start - len(after)
                runs = forest.runs(number, first, item.kept)
                pack.write(runs, kept)

    def _compute(self, pack: Pack) -> None:
        keep = sorted(set(pack.asked))
        places = {row: place for place, row in enumerate(keep)}
        asked = [places[row] for row in pack.asked]
        writes = pack.writes(self.cache.arena) if pack.kept else None
        logits, sent = self.forward(
            pack.row,
            keep,
            numbers=(pack.targets, asked),
            writes=writes,
        )
        targets, rows = sent
        at = 0
        for item in pack.items:
            end = at + len(item.scored)
            path = self._path(item)
            if path.comparison is not None:
                own_rows = rows[at:end]
                path.comparison.see(path.ids, logits, own_rows, self.readings)
            at = end
        found = logprobs_of(logits, targets, rows)
        receive = partial(self._receive, pack.items)
        self.readings.add(found, receive)

    def _receive(
        self,
        items: Sequence[Item],
        logprobs: Logprobs,
    ) -> None:
        at = 0
        for item in items:
            end = at + len(item.scored)
            found = self.logprobs[item.batch]
            found[item.path] = logprobs[at:end]
            at = end

    def order(self) -> list[int]:
        """Return the items that compute something, grouped by prefix."""

        def place(index: int) -> tuple[int, bool, int, Ids]:
            item = self.items[index]
            is_base = self._path(item).is_base
            return item.head, not is_base, item.past, item.ids

        wanted = [
            index
            for index, item in enumerate(self.items)
            if item.scored or len(item.fed) >= MIN_SAVED
        ]
        return sorted(wanted, key=place)

    def _path(self, item: Item) -> Path:
        """Return the path of an item."""
        return self.batches[item.batch].paths[item.path]

    def _make_states(self, groups: dict[int, list[Item]]) -> None:
        # Items come grouped by prefix: a state that this pack does not need is hardly needed again.
        for past in self.states.keys() - groups.keys():
            del self.states[past]
        for past, group in groups.items():
            if past in self.states:
                continue
            ids = self.pasts[past]
            state = self.found.get(ids)
            if state is None:
                state, spent = prefill(self.forward, ids, self.budget, self.cache)
                first = min(item.batch for item in group)
                self.computed[first] += spent
            self.states[past] = state


def score(
    forward: PackedForward,
    batches: Sequence[Batch],
    budget: TokenBudget,
    cache: PrefixTree,
) -> list[PathScores]:
    """Return the log-probabilities of every path's scored tokens, in nats.

    Tokens that several batches share are counted for the first of them.
    """
    run = _PackedRun(forward, batches, budget, cache)
    name = forward.runner.name
    run_in_packs(
        run.order(),
        run.take,
        run.run,
        budget,
        name,
        run.release,
    )
    run.readings.read()
    pairs = zip(run.logprobs, run.computed, strict=True)
    return [PathScores(*pair) for pair in pairs]


def prefill(
    forward: PackedForward,
    ids: Ids,
    budget: TokenBudget,
    cache: PrefixTree,
) -> tuple[PrefixState, int]:
    """Return the state of a prefix: its cached part, and the rest computed in pieces.

    Returns:
        The state, and the number of tokens computed for it.
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

    def take(
        left: Sequence[int],
        tokens: int,
    ) -> tuple[int, int]:
        size = min(len(left), tokens, forward.max_tokens)
        return size, size

    def read(places: Sequence[int]) -> None:
        start = places[0]
        stop = places[-1] + 1
        slots_before = first_slots(slots, start)
        before = known.append(missing[:start], arena, slots_before)
        own_slots = places_of(slots)[start:stop]
        writes = Writes(arena, range(stop - start), own_slots)
        forest = plant([missing[start:stop]])
        forward([(forest, before)], [], writes=writes)

    name = forward.runner.name
    try:
        run_in_packs(range(len(missing)), take, read, budget, name)
    except Exception:
        if kept is not None:
            cache.give_up([kept])
        raise
    return known.append(missing, arena, slots), len(missing)
