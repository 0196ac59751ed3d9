"""Items of a pack: the uncached part of each path, grouped into forests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ecs_plugins.lm.scoring.arena import Arena
from ecs_plugins.lm.scoring.forest import Forest, plant
from ecs_plugins.lm.scoring.prefix import Kept, PrefixState, PrefixTree, places_of
from ecs_plugins.lm.scoring.request import Ids, Path, common_length
from ecs_plugins.lm.scoring.twin import Writes

WORTH_KEEPING = 32
"""Tokens from which on a prefix gets a forward of its own."""


class Batch(NamedTuple):
    """Paths after one prefix."""

    prefix: Ids
    paths: Sequence[Path]


class Item(NamedTuple):
    """One path of a batch on its way through the packs.

    Attributes:
        batch: The number of its batch.
        path: Its number in the batch.
        head: The number of the prefix that it shares with the other paths of its batch.
        past: Number of the kept prefix before it; 0 for none.
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
        """Return the tokens that are computed: the last one is only predicted."""
        return self.ids[:-1]

    @property
    def asked(self) -> list[int]:
        """Return indices of the tokens that predict the scored ones."""
        return [index - 1 for index in self.scored]


class Size:
    """Size of a pack, counted item by item."""

    def __init__(self, pasts: Sequence[Ids]) -> None:
        self._pasts = pasts
        self._last: Item | None = None
        self.tokens = 0
        self.rows = 0
        self.after = 0
        """Tokens of the prefixes of the items."""

    def add(self, item: Item) -> None:
        """Count one more item."""
        last = self._last
        self._last = item
        self.rows += len(item.scored)
        if last is not None and last.past == item.past:
            shared = common_length(last.fed, item.fed)
            self.tokens += len(item.fed) - shared
            return
        self.tokens += len(item.fed)
        self.after += len(self._pasts[item.past])
        if last is not None and last.head == item.head:
            self.after -= len(self._pasts[item.head])


@dataclass(slots=True)
class Pack:
    """Work of one forward.

    Attributes:
        row: The forests, each after its prefix.
        items: The items, in the order of the forests.
        asked: For every scored token of every item, the row that predicts it.
        writes: Rows to keep, and their places.
        kept: Prefixes for which the places were made.
    """

    row: list[tuple[Forest, PrefixState]] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    written_rows: list[np.ndarray] = field(default_factory=list)
    written_slots: list[np.ndarray] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    size: int = 0

    @property
    def targets(self) -> list[int]:
        """Return the scored tokens of all items."""
        return [item.ids[index] for item in self.items for index in item.scored]

    def add(
        self,
        group: Sequence[Item],
        prefix: PrefixState,
    ) -> Forest:
        """Add the items of a prefix."""
        forest = plant([item.fed for item in group])
        for number, item in enumerate(group):
            rows = forest.rows(number, item.asked)
            self.asked.extend(self.size + row for row in rows)
        self.items.extend(group)
        self.row.append((forest, prefix))
        return forest

    def write(
        self,
        runs: Iterator[range],
        kept: Kept,
    ) -> None:
        """Keep some rows of the forest that was added last."""
        for run in runs:
            rows = np.arange(run.start, run.stop)
            self.written_rows.append(self.size + rows)
        self.written_slots.append(places_of(kept.slots))
        self.kept.append(kept)

    def writes(self, arena: Arena) -> Writes:
        """Return all rows to write."""
        rows = np.concatenate(self.written_rows)
        slots = np.concatenate(self.written_slots)
        return Writes(arena, rows, slots)


def itemise(
    batches: Sequence[Batch],
    cache: PrefixTree,
    found: dict[Ids, PrefixState],
) -> tuple[list[Ids], list[Item]]:
    """Return the prefixes to keep, and the uncached part of every path.

    Cached parts are put into ``found``.
    """
    numbers: dict[Ids, int] = {(): 0}
    items: list[Item] = []
    for number, batch in enumerate(batches):
        worth = len(batch.prefix) > WORTH_KEEPING
        shared = batch.prefix[:-1] if worth else ()
        head = numbers.setdefault(shared, len(numbers))
        before = len(batch.prefix)
        for index, path in enumerate(batch.paths):
            whole = batch.prefix + path.ids
            known = PrefixState()
            if path.kept:
                known = cache.find(whole[: before + path.kept])
            past = max(known.length, len(shared))
            if known.length == past:
                found[whole[:past]] = known
            after = before - past
            items.append(
                Item(
                    batch=number,
                    path=index,
                    head=head,
                    past=numbers.setdefault(whole[:past], len(numbers)),
                    ids=whole[past:],
                    scored=tuple(after + scored for scored in path.scored),
                    kept=max(0, after + path.kept) if path.kept else 0,
                )
            )
    return list(numbers), items


def tokens_by_batch(
    forest: Forest,
    group: Sequence[Item],
) -> Iterator[tuple[int, int]]:
    """Count every node's tokens for the batch of its first path."""
    seen: set[int] = set()
    for item, nodes in zip(group, forest.paths, strict=True):
        for node in nodes:
            if node.start not in seen:
                seen.add(node.start)
                yield item.batch, node.length
