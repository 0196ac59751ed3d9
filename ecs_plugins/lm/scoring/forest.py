"""The plan: sequences of token ids become a forest in which every shared head stands once.

Sequences that begin alike (the same passage before several answers, a head that all drafts
share, several questions over one pool) share a node of a radix tree. Nodes are laid out depth
first in one packed row, so that the descendants of a node are the interval of rows behind it:

    row:   [ A ][ A.1 ][ A.1.1 ][ A.1.2 ][ A.2 ][ B ] ...
           node  '--- descendants of A ------'

and attention to an ancestor is one dense block. A head that would save fewer than `MIN_SAVED`
tokens is not worth a block of its own: its tokens are repeated in its children instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

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
        """One past its own last row."""
        return self.start + self.length


@dataclass(slots=True)
class Forest:
    """Sequences in one packed row.

    Attributes:
        tokens: The token in each row.
        depths: Its distance from the root.
        nodes: In the order of their rows.
        paths: For every sequence, the nodes on its way and how many of their rows it takes.
    """

    tokens: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    paths: list[list[Node]] = field(default_factory=list)

    def rows(self, sequence: int, depths: Sequence[int]) -> Iterator[int]:
        """The rows that hold the tokens of a sequence at ascending depths."""
        nodes = iter(self.paths[sequence])
        node = next(nodes)
        for depth in depths:
            while depth >= node.depth + node.length:
                node = next(nodes)
            yield node.start + depth - node.depth


def plant(sequences: Sequence[Ids]) -> Forest:
    """Lay sequences out; duplicates and shared heads cost nothing.

    Args:
        sequences: At least one token each, in any order.

    Returns:
        The forest; its ``paths`` are in the order of ``sequences``.
    """
    forest = Forest(paths=[[] for _ in sequences])
    order = sorted(range(len(sequences)), key=lambda index: sequences[index])
    # A list of indices is a group to lay out from a depth on; a node is a subtree to close.
    todo: list[tuple[list[int], int] | Node] = [(order, 0)]
    while todo:
        task = todo.pop()
        if isinstance(task, Node):
            task.end = len(forest.tokens)
            continue
        group, depth = [i for i in task[0] if len(sequences[i]) > task[1]], task[1]
        if not group:
            continue
        first, last = sequences[group[0]], sequences[group[-1]]
        fork = len(first) if first == last else common_length(first, last)
        if first == last or (fork - depth) * (len(group) - 1) >= MIN_SAVED:
            node = _lay(forest, first[depth:fork], depth)
            for index in group:
                forest.paths[index].append(node)
            todo.append(node)
            depth = fork
        todo.extend((part, depth) for part in _by_token(group, sequences, fork))
    return forest


def _lay(forest: Forest, ids: Ids, depth: int) -> Node:
    node = Node(start=len(forest.tokens), length=len(ids), end=0, depth=depth)
    forest.tokens.extend(ids)
    forest.depths.extend(range(depth, depth + len(ids)))
    forest.nodes.append(node)
    return node


def _by_token(group: Sequence[int], sequences: Sequence[Ids], at: int) -> list[list[int]]:
    """Parts of a group by their token at ``at``.

    Shorter sequences first, so that leaves of equal length often lie side by side.
    """
    parts: dict[int | None, list[int]] = {}
    for index in group:
        ids = sequences[index]
        parts.setdefault(ids[at] if len(ids) > at else None, []).append(index)
    return sorted(parts.values(), key=lambda part: len(sequences[part[0]]))
