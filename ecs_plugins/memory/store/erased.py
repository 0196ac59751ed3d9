"""What one transaction erased: the numbers and ids of its receipt, and what to look for on disk."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from ecs_plugins.memory.records import ErasureReceipt
from ecs_plugins.memory.types import Namespace


@dataclass(slots=True)
class Erased:
    """What is gone, as it is found.

    Attributes:
        at: When, as Unix time.
        messages: Ids of messages, in the order of their erasure; so are all others.
        replies: Ids of messages that replied to them.
        memories: Ids of memories of which nothing is left.
        derived: Ids of memories derived anew.
        hot: How many hot items were erased.
        hot_derived: How many hot items were derived anew.
        decisions: How many decisions mention something that is gone.
        queries: How many recorded queries went with it.
        namespaces: What was deleted with everything in it.
        items: How many key-value items were erased.
        rows: By table, the numbers of the rows that held what is gone.
        contents: Texts and vectors that are gone, as bytes.
        quoted: Whether messages that stay in the log say what was erased of a memory.
    """

    at: float = field(default_factory=time.time)
    messages: dict[str, None] = field(default_factory=dict)
    replies: dict[str, None] = field(default_factory=dict)
    memories: dict[str, None] = field(default_factory=dict)
    derived: dict[str, None] = field(default_factory=dict)
    hot: int = 0
    hot_derived: int = 0
    decisions: int = 0
    queries: int = 0
    namespaces: list[Namespace] = field(default_factory=list)
    items: int = 0
    rows: dict[str, set[int]] = field(default_factory=dict)
    contents: list[bytes] = field(default_factory=list)
    quoted: bool = False

    def note_rows(self, table: str, rows: Iterable[int]) -> None:
        """Note where something stood that is gone."""
        self.rows.setdefault(table, set()).update(rows)

    def receipt(self, *, scrubbed: bool) -> ErasureReceipt:
        """The proof of it; ``scrubbed``: nothing of it is on disk any more."""
        return ErasureReceipt(
            at=self.at,
            messages=tuple(self.messages),
            replies=tuple(self.replies),
            hot_erased=self.hot,
            hot_derived=self.hot_derived,
            memories_erased=tuple(self.memories),
            memories_derived=tuple(name for name in self.derived if name not in self.memories),
            decisions=self.decisions,
            queries=self.queries,
            namespaces=tuple(self.namespaces),
            items=self.items,
            scrubbed=scrubbed and not self.quoted,
        )
