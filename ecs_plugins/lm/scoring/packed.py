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
from typing import NamedTuple

import numpy as np

from ecs_plugins.lm.scoring.cascade import CascadeForward
from ecs_plugins.lm.scoring.forest import MIN_SAVED, Forest, plant
from ecs_plugins.lm.scoring.plain import MaskedForward
from ecs_plugins.lm.scoring.prefix import PrefixState, PrefixTree
from ecs_plugins.lm.scoring.request import Ids, Logprobs, Path, PathScores, common_length
from ecs_plugins.lm.scoring.runner import TokenBudget, run_in_packs, target_logprobs

WORTH_KEEPING = 32
"""Tokens from which on a prefix gets a forward of its own."""

_PAST_SHARE = 4
"""A row takes paths behind several prefixes while these have up to this many times its tokens."""

PackedForward = CascadeForward | MaskedForward
"""How a model runs one packed row."""
_NOTHING: Logprobs = np.zeros(0, dtype=np.float32)


class Batch(NamedTuple):
    """Paths behind one prefix."""

    prefix: Ids
    paths: Sequence[Path]


class _Item(NamedTuple):
    """One path of a batch on its way through the packs: ``ids`` are what passes through one."""

    batch: int
    path: int
    head: int  # number of the prefix that it shares with the other paths of its batch
    past: int  # number of the kept prefix that it stands behind; 0 is none
    ids: Ids
    scored: tuple[int, ...]  # indices into ids
    kept: int  # leading ids that are worth keeping

    @property
    def fed(self) -> Ids:
        return self.ids[:-1]


class _PackedRun:
    """One call of `score`: what is to be done, and what has been found."""

    def __init__(
        self,
        forward: PackedForward,
        batches: Sequence[Batch],
        budget: TokenBudget,
        cache: PrefixTree,
    ) -> None:
        self.forward, self.budget, self.cache = forward, budget, cache
        self.batches = batches
        self.pasts, self.items = _itemise(batches, cache)
        self.states = {0: PrefixState()}
        self.logprobs: list[list[Logprobs]] = [[_NOTHING] * len(b.paths) for b in batches]
        self.computed = [0] * len(batches)

    def take(self, left: Sequence[int], tokens: int) -> tuple[int, int]:
        """How many of the items make the next pack, and its tokens (see `run_in_packs`)."""
        most = min(tokens, self.forward.max_tokens)
        size = rows = number = behind = 0
        last: _Item | None = None
        for index in left:
            item = self.items[index]
            if last is None or last.past != item.past:
                same = last is not None and last.head == item.head
                behind += len(self.pasts[item.past]) - same * len(self.pasts[item.head])
                more = len(item.fed)
                if number and behind > _PAST_SHARE * most:
                    break
            else:
                more = len(item.fed) - common_length(last.fed, item.fed)
            rows += len(item.scored)
            if number and (size + more > most or rows > self.forward.runner.max_rows):
                break
            number, size, last = number + 1, size + more, item
        return number, size

    def run(self, indices: Sequence[int]) -> None:
        """Score one pack."""
        groups: dict[int, list[_Item]] = {}
        for index in indices:
            groups.setdefault(self.items[index].past, []).append(self.items[index])
        self._make_states(groups)
        row: list[tuple[Forest, PrefixState]] = []
        asked: list[int] = []
        booked: list[tuple[int, int]] = []
        fresh: dict[tuple[int, Ids], list[int]] = {}
        offset = 0
        for past, group in groups.items():
            forest = plant([item.fed for item in group])
            for n, item in enumerate(group):
                asked.extend(offset + r for r in forest.rows(n, [s - 1 for s in item.scored]))
                if item.kept >= MIN_SAVED and self.cache.max_bytes:
                    key = (past, item.ids[: item.kept])
                    fresh[key] = [offset + r for r in forest.rows(n, range(item.kept))]
            booked.extend(_tokens_by_batch(forest, group))
            row.append((forest, self.states[past]))
            offset += len(forest.tokens)
        keep = sorted(set(asked))
        where = {r: n for n, r in enumerate(keep)}
        logits, captured = self.forward(row, keep, capture=list(fresh.values()))
        pack = [item for group in groups.values() for item in group]
        targets = [item.ids[s] for item in pack for s in item.scored]
        flat = target_logprobs(logits, targets, [where[r] for r in asked])
        at = 0
        for item in pack:
            end = at + len(item.scored)
            self.logprobs[item.batch][item.path] = flat[at:end]
            self.path(item).compare(logits, [where[r] for r in asked[at:end]])
            at = end
        for batch, tokens in booked:
            self.computed[batch] += tokens
        for (past, ids), layers in zip(fresh, captured, strict=True):
            if not self.cache.keep(self.states[past].append(ids, layers)):
                break

    def path(self, item: _Item) -> Path:
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
    forward: PackedForward, batches: Sequence[Batch], budget: TokenBudget, cache: PrefixTree
) -> list[PathScores]:
    """Log-probabilities of every path's scored tokens, in nats.

    Tokens that several batches share are counted for the first of them.
    """
    run = _PackedRun(forward, batches, budget, cache)

    def place(index: int) -> tuple[int, bool, int, Ids]:
        item = run.items[index]
        return item.head, not run.path(item).is_base, item.past, item.ids

    wanted = (i for i, it in enumerate(run.items) if it.scored or len(it.fed) >= MIN_SAVED)
    order = sorted(wanted, key=place)
    run_in_packs(order, run.take, run.run, budget, forward.runner.name)
    return [PathScores(*pair) for pair in zip(run.logprobs, run.computed, strict=True)]


def prefill(
    forward: PackedForward, ids: Ids, budget: TokenBudget, cache: PrefixTree
) -> tuple[PrefixState, int]:
    """The state of a prefix: what the cache holds of it, and the rest computed in pieces.

    Returns:
        The state, and how many tokens were computed for it.
    """
    state = cache.find(ids)
    missing = len(ids) - state.length

    def take(left: Sequence[int], tokens: int) -> tuple[int, int]:
        return (size := min(len(left), tokens, forward.max_tokens)), size

    def read(places: Sequence[int]) -> None:
        nonlocal state
        piece = ids[places[0] : places[-1] + 1]
        _, (layers,) = forward([(plant([piece]), state)], [], capture=[range(len(piece))])
        state = state.append(piece, layers)

    run_in_packs(range(state.length, len(ids)), take, read, budget, forward.runner.name)
    if missing and cache.keep(state):
        found = cache.find(ids)  # compact
        state = found if found.length == len(ids) else state
    return state, missing


def _itemise(batches: Sequence[Batch], cache: PrefixTree) -> tuple[list[Ids], list[_Item]]:
    """The prefixes to keep, and every path with what of it is neither kept nor to be."""
    numbers: dict[Ids, int] = {(): 0}
    items: list[_Item] = []
    for b, batch in enumerate(batches):
        shared = batch.prefix[:-1] if len(batch.prefix) > WORTH_KEEPING else ()
        head = numbers.setdefault(shared, len(numbers))
        for p, path in enumerate(batch.paths):
            whole = batch.prefix + path.ids
            before = len(batch.prefix)
            found = cache.find(whole[: before + path.kept]).length if path.kept else 0
            past = max(found, len(shared))
            number = numbers.setdefault(whole[:past], len(numbers))
            scored = tuple(before - past + s for s in path.scored)
            kept = max(0, before - past + path.kept) if path.kept else 0
            items.append(_Item(b, p, head, number, whole[past:], scored, kept))
    return list(numbers), items


def _tokens_by_batch(forest: Forest, group: Sequence[_Item]) -> Iterator[tuple[int, int]]:
    """Every node's tokens, booked on the batch of the first path that runs through it."""
    seen: set[int] = set()
    for item, nodes in zip(group, forest.paths, strict=True):
        for node in nodes:
            if node.start not in seen:
                seen.add(node.start)
                yield item.batch, node.length
