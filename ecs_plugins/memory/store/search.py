"""The items of a namespace that come into question for a recall, from its index and its rows."""

from __future__ import annotations

import json
import sqlite3

import numpy as np

from ecs_plugins.memory.filters import Filter, matches
from ecs_plugins.memory.recall import Candidate, RecallRequest
from ecs_plugins.memory.store import tiers
from ecs_plugins.memory.store.spaces import Space
from ecs_plugins.memory.store.vector_index import Rows, VectorIndex
from ecs_plugins.memory.types import TIERS


class NamespaceSearch:
    """What is near to a query in one namespace, within one transaction.

    Args:
        connection: Inside a transaction.
        space: The namespace.
        index: Its index.
        request: What is asked.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        space: Space,
        index: VectorIndex,
        request: RecallRequest,
    ) -> None:
        self._connection = connection
        self._space = space
        self._index = index
        self._request = request
        self._allowed: Rows | None = None
        if request.condition is not None:
            self._allowed = self._matching(request.condition)

    def _matching(self, condition: Filter) -> Rows:
        """The rows whose metadata match."""
        known: dict[str, bool] = {}
        rows = []
        for row, metadata in self._connection.execute(
            "SELECT row, metadata FROM tiers WHERE namespace = ? AND live = 1", (self._space.id,)
        ):
            if metadata not in known:
                known[metadata] = matches(json.loads(metadata), condition)
            if known[metadata]:
                rows.append(row)
        return np.array(rows, dtype=np.int64)

    def nearest(self, count: int) -> tuple[list[Candidate], bool]:
        """The nearest items of the tiers in question, and whether there may be more.

        Args:
            count: How many neighbours to look at.
        """
        request = self._request
        rows, scores = self._index.search(request.vector, count, allowed=self._allowed)
        near = scores >= request.threshold
        chosen = dict(zip(rows[near].tolist(), scores[near].tolist(), strict=True))
        more = len(rows) == count and bool(near.all())
        if not chosen:
            return [], more
        stored = tiers.by_rows(self._connection, self._space.id, chosen)
        found = [
            stored[row]
            for row in chosen
            if row in stored and (request.tiers == TIERS or stored[row].tier in request.tiers)
        ]
        behind = tiers.provenance(self._connection, [each.item.id for each in found])
        return [
            Candidate(
                each.item, each.tier, chosen[each.row], each.metadata, each.expires, each.judged,
                behind.get(each.item.id, ()),
            )
            for each in found
        ], more  # fmt: skip
