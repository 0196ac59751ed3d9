"""The fast path: every prefix once, everything behind it in packed rows without padding.

A pack is a forest of paths per prefix. How a model attends within a pack is the business of a
`PackedForward`; this module decides what goes into a pack and reads the scores off. Positions
restart behind each prefix.

The last token of a prefix is not kept with it but is the root of its forest, because it
predicts the first token behind an empty candidate. A prefix too short to be worth a forward of
its own travels with the paths, and many small requests then fill one pack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ecs_plugins.lm.scoring.cascade import CascadeForward
from ecs_plugins.lm.scoring.forest import Forest, plant
from ecs_plugins.lm.scoring.plain import MaskedForward
from ecs_plugins.lm.scoring.prefix import KeyValues, PrefixCache, PrefixState
from ecs_plugins.lm.scoring.request import Ids, Path, PathScores, common_length
from ecs_plugins.lm.scoring.runner import (
    Logprobs,
    TokenBudget,
    is_out_of_memory,
    run_in_packs,
    target_logprobs,
)

WORTH_KEEPING = 32
"""Tokens from which on a prefix gets a forward of its own and a place in the cache."""

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
    past: int  # number of the kept prefix that it stands behind; 0 is none
    ids: Ids
    scored: tuple[int, ...]  # indices into ids

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
        cache: PrefixCache,
    ) -> None:
        self.forward, self.budget, self.cache = forward, budget, cache
        self.batches = batches
        self.pasts, self.items = _itemise(batches, forward.many_prefixes)
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
                behind += len(self.pasts[item.past])
                more = len(item.fed)
                if number and not (self.forward.many_prefixes and behind <= _PAST_SHARE * most):
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
        offset = 0
        for past, group in groups.items():
            forest = plant([item.fed for item in group])
            for n, item in enumerate(group):
                asked.extend(offset + r for r in forest.rows(n, [s - 1 for s in item.scored]))
            booked.extend(_tokens_by_batch(forest, group))
            row.append((forest, self.states[past]))
            offset += len(forest.tokens)
        keep = sorted(set(asked))
        where = {r: n for n, r in enumerate(keep)}
        logits, _ = self.forward(row, keep)
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

    def path(self, item: _Item) -> Path:
        """The path that an item stands for."""
        return self.batches[item.batch].paths[item.path]

    def _make_states(self, groups: dict[int, list[_Item]]) -> None:
        # Items come grouped by prefix: a state that this pack does not need is not needed again.
        self.states = {past: s for past, s in self.states.items() if past in groups}
        missing = [past for past in groups if past not in self.states]
        if missing:
            made = prefill(
                self.forward, [self.pasts[past] for past in missing], self.budget, self.cache
            )
            for past, (state, spent) in zip(missing, made, strict=True):
                self.states[past] = state
                self.computed[groups[past][0].batch] += spent


def score(
    forward: PackedForward, batches: Sequence[Batch], budget: TokenBudget, cache: PrefixCache
) -> list[PathScores]:
    """Log-probabilities of every path's scored tokens, in nats.

    Tokens that several batches share are counted for the first of them.
    """
    run = _PackedRun(forward, batches, budget, cache)

    def place(index: int) -> tuple[int, bool, Ids]:
        item = run.items[index]
        return item.past, not run.path(item).is_base, item.ids

    order = sorted(range(len(run.items)), key=place)
    run_in_packs(order, run.take, run.run, budget, forward.runner.name)
    return [PathScores(*pair) for pair in zip(run.logprobs, run.computed, strict=True)]


def prefill(
    forward: PackedForward, wanted: Sequence[Ids], budget: TokenBudget, cache: PrefixCache
) -> list[tuple[PrefixState, int]]:
    """The states of prefixes: what the cache holds of them and the rest computed.

    Short ones share a row, a long one is computed in pieces, and one that begins like another
    waits for it.

    Returns:
        Each state, and how many tokens were computed for it.
    """
    states = [cache.find(ids) for ids in wanted]
    spent = [0] * len(wanted)
    piece = max(1, min(budget.tokens, forward.max_tokens))
    while chunks := _next_chunks(wanted, states, piece, forward.many_prefixes):
        budget.check()
        row = [(plant([chunk]), states[n]) for n, chunk in chunks]
        tokens = sum(len(chunk) for _, chunk in chunks)
        try:
            _, layers = forward(row, [], capture=True)
            longer = _appended(states, chunks, layers)
        except Exception as error:
            if not is_out_of_memory(error) or tokens == 1:
                raise
        else:
            for (n, chunk), state in zip(chunks, longer, strict=True):
                states[n] = state
                spent[n] += len(chunk)
                if len(state.ids) == len(wanted[n]):
                    cache.keep(state)
            continue
        # Outside the handler, so that the failed call's tensors are freed before the retry.
        piece = (tokens + 1) // 2
    return list(zip(states, spent, strict=True))


def _next_chunks(
    wanted: Sequence[Ids], states: list[PrefixState], room: int, together: bool
) -> list[tuple[int, Ids]]:
    """What to compute next in ``room`` tokens, as (which prefix, its next ids)."""
    chunks: list[tuple[int, Ids]] = []
    for n, ids in enumerate(wanted):
        if len(states[n].ids) == len(ids):
            continue
        for other in states:
            shared = common_length(other.ids, ids)
            if shared > len(states[n].ids):
                states[n] = other.head(shared)
        missing = ids[len(states[n].ids) :]
        if not missing:
            continue
        waits = any(
            common_length(wanted[m], ids) - len(states[n].ids) > WORTH_KEEPING for m, _ in chunks
        )
        if chunks and (waits or len(missing) > room or not together):
            continue
        chunks.append((n, missing[:room]))
        room -= len(chunks[-1][1])
        if not room:
            break
    return chunks


def _appended(
    states: Sequence[PrefixState], chunks: Sequence[tuple[int, Ids]], layers: KeyValues
) -> list[PrefixState]:
    out, at = [], 0
    for n, chunk in chunks:
        end = at + len(chunk)
        out.append(
            states[n].append(chunk, tuple((k[:, :, at:end], v[:, :, at:end]) for k, v in layers))
        )
        at = end
    return out


def _itemise(batches: Sequence[Batch], many_prefixes: bool) -> tuple[list[Ids], list[_Item]]:
    """The prefixes to keep, and every path with as much of its prefix as travels along."""
    numbers: dict[Ids, int] = {(): 0}
    items: list[_Item] = []
    for b, batch in enumerate(batches):
        keeps = not many_prefixes or len(batch.prefix) > WORTH_KEEPING
        kept = batch.prefix[:-1] if keeps else ()
        head = batch.prefix[len(kept) :]
        past = numbers.setdefault(kept, len(numbers))
        for p, path in enumerate(batch.paths):
            scored = tuple(len(head) + s for s in path.scored)
            items.append(_Item(b, p, past, head + path.ids, scored))
    return list(numbers), items


def _tokens_by_batch(forest: Forest, group: Sequence[_Item]) -> Iterator[tuple[int, int]]:
    """Every node's tokens, booked on the batch of the first path that runs through it."""
    seen: set[int] = set()
    for item, nodes in zip(group, forest.paths, strict=True):
        for node in nodes:
            if node.start not in seen:
                seen.add(node.start)
                yield item.batch, node.length
