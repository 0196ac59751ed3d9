"""Forest of sequences of token ids, in which every shared head occurs once.

Sequences that begin alike (the same passage before several answers, a head that all drafts
share, several questions over one pool) share a node of a radix tree. Nodes are laid out depth
first in one packed row, so that the descendants of a node are the interval of rows after it:

    row:   [ A ][ A.1 ][ A.1.1 ][ A.1.2 ][ A.2 ][ B ] ...
           node  '--- descendants of A ------'

and attention to an ancestor is one dense block. A head that would save fewer than `MIN_SAVED`
tokens is not worth a block of its own: its tokens are repeated in its children instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ecs_plugins.lm.scoring.request import Ids, common_length

MIN_SAVED = 8
"""Tokens that are as quickly computed as attended to in a block of their own."""


@dataclass(slots=True)
class Node:
    """A run of rows on the way of one set of sequences.

    Attributes:
        start: Its first row.
        length: Its rows.
        end: One past the last row of its last descendant.
        depth: Distance of its first token from the root.
    """

    start: int
    length: int
    end: int
    depth: int

    @property
    def stop(self) -> int:
        """Return one past its own last row."""
        return self.start + self.length


@dataclass(slots=True)
class Forest:
    """Sequences in one packed row.

    Attributes:
        tokens: The token in each row.
        nodes: In the order of their rows.
        paths: For every sequence, the nodes on its way and how many of their rows it takes.
    """

    tokens: list[int] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    paths: list[list[Node]] = field(default_factory=list)

    def positions(self) -> np.ndarray:
        """Return the distance of each row's token from the root."""
        runs = []
        for node in self.nodes:
            end = node.depth + node.length
            runs.append(np.arange(node.depth, end))
        return np.concatenate(runs)

    def rows(
        self,
        sequence: int,
        depths: Sequence[int],
    ) -> Iterator[int]:
        """Return the rows of a sequence's tokens at ascending depths."""
        nodes = iter(self.paths[sequence])
        node = next(nodes)
        for depth in depths:
            while depth >= node.depth + node.length:
                node = next(nodes)
            yield node.start + depth - node.depth

    def runs(
        self,
        sequence: int,
        start: int,
        stop: int,
    ) -> Iterator[range]:
        """Return the rows of a sequence's tokens between two depths, in runs."""
        for node in self.paths[sequence]:
            first = max(start, node.depth)
            last = min(stop, node.depth + node.length)
            if first < last:
                offset = node.start - node.depth
                yield range(offset + first, offset + last)

    def with_ancestors(self) -> Iterator[tuple[Node, Sequence[Node]]]:
        """Yield every node with its ancestors, the root first."""
        above: list[Node] = []
        for node in self.nodes:
            while above and above[-1].end <= node.start:
                above.pop()
            yield node, above
            above.append(node)


def plant(sequences: Sequence[Ids]) -> Forest:
    """Lay sequences out; duplicates and shared heads cost nothing.

    Args:
        sequences: At least one token each, in any order.

    Returns:
        The forest; its ``paths`` are in the order of ``sequences``.
    """
    forest = Forest(paths=[[] for _ in sequences])
    order = sorted(range(len(sequences)), key=sequences.__getitem__)
    # A task is a group to lay out from a depth on, or a node whose subtree is to be closed.
    tasks: list[_Group | Node] = [_Group(order, 0)]
    while tasks:
        task = tasks.pop()
        if isinstance(task, Node):
            task.end = len(forest.tokens)
            continue
        depth = task.depth
        members = [index for index in task.members if len(sequences[index]) > depth]
        if members:
            group = _Group(members, depth)
            tasks.extend(_lay_group(forest, sequences, group))
    return forest


class _Group(NamedTuple):
    """Sequences, in order, that are equal up to a depth."""

    members: Sequence[int]
    depth: int


def _lay_group(
    forest: Forest,
    sequences: Sequence[Ids],
    group: _Group,
) -> list[_Group | Node]:
    """Lay out the shared head of a group if that saves enough; return the next tasks."""
    members, depth = group
    first = sequences[members[0]]
    last = sequences[members[-1]]
    equal = first == last
    fork = len(first) if equal else common_length(first, last)
    saved = (fork - depth) * (len(members) - 1)
    tasks: list[_Group | Node] = []
    if equal or saved >= MIN_SAVED:
        node = _lay(forest, first[depth:fork], depth)
        for index in members:
            forest.paths[index].append(node)
        tasks.append(node)
        depth = fork
    parts = _by_token(members, sequences, fork)
    tasks.extend(_Group(part, depth) for part in parts)
    return tasks


def _lay(forest: Forest, ids: Ids, depth: int) -> Node:
    node = Node(
        start=len(forest.tokens),
        length=len(ids),
        end=0,
        depth=depth,
    )
    forest.tokens.extend(ids)
    forest.nodes.append(node)
    return node


def _by_token(
    group: Sequence[int],
    sequences: Sequence[Ids],
    at: int,
) -> list[list[int]]:
    """Divide a group by the token at ``at``.

    Shorter sequences first, so that leaves of equal length often lie side by side.
    """
    parts: dict[int | None, list[int]] = {}
    for index in group:
        ids = sequences[index]
        token = ids[at] if len(ids) > at else None
        parts.setdefault(token, []).append(index)

    def length(part: Sequence[int]) -> int:
        return len(sequences[part[0]])

    return sorted(parts.values(), key=length)
