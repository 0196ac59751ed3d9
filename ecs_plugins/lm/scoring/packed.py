"""The fast path: every prefix once, everything behind it in packed rows without padding.

A pack is a forest of paths per prefix. How a model attends within a pack is the business of a
`PackedForward` (``cascade`` or ``masked``); this module decides what goes into a pack and reads
the scores off. Positions restart behind each prefix.

The last token of a prefix is not kept with it but is the root of its forest, because it
predicts the first token behind an empty candidate. A prefix too short to be worth a forward of
its own travels with the paths, and many small requests then fill one pack.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch

from ecs_plugins.lm.scoring.budget import TokenBudget, run_in_packs
from ecs_plugins.lm.scoring.forest import Forest, plant
from ecs_plugins.lm.scoring.prefix import KeyValues, PrefixCache, PrefixState
from ecs_plugins.lm.scoring.request import Ids, Logprobs, Path, Scored, common_length
from ecs_plugins.lm.scoring.runner import is_out_of_memory, target_logprobs

WORTH_KEEPING = 32
"""Tokens from which on a prefix gets a forward of its own and a place in the cache."""


class Batch(NamedTuple):
    """Paths behind one prefix."""

    prefix: Ids
    paths: Sequence[Path]


class PackedForward(Protocol):
    """How a model runs one packed row."""

    @property
    def name(self) -> str:
        """The model's name, for messages."""
        ...

    @property
    def max_rows(self) -> int:
        """Rows whose logits may be held at once."""
        ...

    @property
    def max_tokens(self) -> int:
        """Tokens of a row from which on it costs more than two shorter ones."""
        ...

    @property
    def many_prefixes(self) -> bool:
        """Whether forests behind different prefixes can share a row."""
        ...

    def __call__(
        self,
        groups: Sequence[tuple[Forest, PrefixState]],
        rows: Sequence[int],
        *,
        capture: bool = False,
    ) -> tuple[torch.Tensor, KeyValues]:
        """Logits ``[len(rows), vocabulary]``; keys and values of the row if they are wanted."""
        ...


class _Item(NamedTuple):
    """One path on its way through the packs: ``past`` is kept, ``ids`` pass through a pack."""

    batch: int
    path: int
    past: Ids
    ids: Ids
    scored: tuple[int, ...]

    @property
    def fed(self) -> Ids:
        return self.ids[:-1]


def score(
    forward: PackedForward, batches: Sequence[Batch], budget: TokenBudget, cache: PrefixCache
) -> list[Scored]:
    """Log-probabilities of every path's scored tokens, in nats.

    Tokens that several batches share are counted for the first of them.
    """
    items = _items(batches, forward.many_prefixes)
    states: dict[Ids, PrefixState] = {(): PrefixState()}
    results: list[list[Logprobs]] = [[torch.empty(0).numpy()] * len(b.paths) for b in batches]
    computed = [0] * len(batches)

    def take(left: Sequence[int], tokens: int) -> tuple[int, int]:
        number, size, rows = 0, 0, 0
        most = min(tokens, forward.max_tokens)
        last: _Item | None = None
        for index in left:
            item = items[index]
            same = last is not None and last.past == item.past
            if last is not None and not same and not forward.many_prefixes:
                break
            shared = common_length(last.fed, item.fed) if last is not None and same else 0
            more = len(item.fed) - shared
            rows += len(item.scored)
            if number and (size + more > most or rows > forward.max_rows):
                break
            number, size, last = number + 1, size + more, item
        return number, size

    def run(indices: Sequence[int]) -> None:
        pack = [items[i] for i in indices]
        for item in pack:
            if item.past not in states:
                states[item.past], spent = prefill(forward, item.past, budget, cache)
                computed[item.batch] += spent
        for past in [past for past in states if past and past not in {i.past for i in pack}]:
            del states[past]  # items come grouped by prefix: it will not be needed again
        groups = _by_prefix(pack)
        forests = [plant([item.fed for item in group]) for group in groups]
        asked, offset = [], 0
        for group, forest in zip(groups, forests, strict=True):
            for n, item in enumerate(group):
                rows = forest.rows(n, [s - 1 for s in item.scored])
                asked.append([offset + row for row in rows])
            _count(forest, group, computed)
            offset += len(forest.tokens)
        keep = sorted({row for rows in asked for row in rows})
        where = {row: n for n, row in enumerate(keep)}
        together = [
            (forest, states[group[0].past]) for group, forest in zip(groups, forests, strict=True)
        ]
        logits, _ = forward(together, keep)
        flat = target_logprobs(
            logits[[where[row] for rows in asked for row in rows]],
            [item.ids[s] for group in groups for item in group for s in item.scored],
        )
        at = 0
        for item in (item for group in groups for item in group):
            results[item.batch][item.path] = flat[at : at + len(item.scored)]
            at += len(item.scored)

    order = sorted(range(len(items)), key=lambda i: (items[i].past, items[i].ids))
    run_in_packs(order, take, run, budget, forward.name)
    return [Scored(*pair) for pair in zip(results, computed, strict=True)]


def prefill(
    forward: PackedForward, ids: Ids, budget: TokenBudget, cache: PrefixCache
) -> tuple[PrefixState, int]:
    """The state of a prefix: what the cache holds of it and the rest computed, in pieces.

    Returns:
        The state, and how many tokens were computed for it.
    """
    state = cache.find(ids)
    missing = ids[len(state.ids) :]
    at, piece = 0, max(1, min(budget.tokens, forward.max_tokens))
    while at < len(missing):
        chunk = missing[at : at + piece]
        try:
            _, layers = forward([(plant([chunk]), state)], [len(chunk) - 1], capture=True)
            longer = state.append(chunk, layers)
        except Exception as error:
            if not is_out_of_memory(error) or piece == 1:
                raise
            piece = (min(piece, len(chunk)) + 1) // 2
        else:
            state, at = longer, at + len(chunk)
    if missing:
        cache.keep(state)
    return state, len(missing)


def _items(batches: Sequence[Batch], many_prefixes: bool) -> list[_Item]:
    """Every path, with as much of its prefix as travels along."""
    out: list[_Item] = []
    for b, batch in enumerate(batches):
        keep = many_prefixes is False or len(batch.prefix) > WORTH_KEEPING
        past = batch.prefix[:-1] if keep else ()
        head = batch.prefix[len(past) :]
        for p, path in enumerate(batch.paths):
            scored = tuple(len(head) + s for s in path.scored)
            out.append(_Item(b, p, past, head + path.ids, scored))
    return out


def _by_prefix(pack: Sequence[_Item]) -> list[list[_Item]]:
    groups: dict[Ids, list[_Item]] = {}
    for item in pack:
        groups.setdefault(item.past, []).append(item)
    return list(groups.values())


def _count(forest: Forest, group: Sequence[_Item], computed: list[int]) -> None:
    """Book every node on the batch of the first path that runs through it."""
    seen: set[int] = set()
    for item, nodes in zip(group, forest.paths, strict=True):
        for node in nodes:
            if node.start not in seen:
                seen.add(node.start)
                computed[item.batch] += node.length
