"""Nearest neighbours of one tier of one namespace: a derived cache of the database.

An index holds entries (row numbers of the database) and their unit vectors. New entries go to a
tail that is scanned exactly; when the tail outgrows ``exact_limit`` it is linked into an HNSW
graph (FAISS), by whoever calls `maintain`. So a search is always right, and the graph only makes
it fast. FAISS cannot remove from an HNSW graph: a removed entry stays in it as a tombstone, kept
out of the results by a selector and paid for by a larger ``efSearch``, until half of the graph is
dead and it is built anew. A selective filter is answered by an exact scan, because a graph
searched through a narrow filter loses recall.

Searches run together; changes run alone (FAISS crashes when one adds while another searches).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ecs_plugins.memory.store._locks import ReadWriteLock
from ecs_plugins.memory.store.graph import Bitmap, Graph, openmp_threads
from ecs_plugins.memory.store.index_config import IndexConfig
from ecs_plugins.memory.store.screening import Screened, near_pairs
from ecs_plugins.memory.store.tail import Tail

Vectors = npt.NDArray[np.float32]
Entries = npt.NDArray[np.int64]
Progress = Callable[[int, int], None]
"""``(done, total)``."""

_LINK_CHUNK = 32  # vectors linked per turn of the write lock: searches wait some tens of ms
_BUILD_CHUNK = 1024
_SCREENED = 4096  # entries up to which a screened scan is faster than the graph
_SCREENED_FOR_MANY = 65536  # and where so many queries share it:
_MANY = 16
_FILTER_SHARE = 0.1  # a filter that keeps less of the tier than this is scanned exactly


class VectorIndex:
    """Entries and unit vectors, searched by inner product. Thread-safe.

    Args:
        dimension: Length of every vector.
        config: How to search.
    """

    def __init__(self, dimension: int, config: IndexConfig) -> None:
        self.dimension = dimension
        self.config = config
        self._lock = ReadWriteLock()
        self._maintenance = threading.Lock()
        # Rows [0, linked) are in the graph, the others in the tail.
        self._graph: Graph | None = None
        self._linked = 0
        self._entries: Entries = np.empty(0, dtype=np.int64)
        self._live: npt.NDArray[np.bool_] = np.empty(0, dtype=np.bool_)
        self._tail = Tail(dimension)
        self._dead = 0  # tombstones in the graph
        self._bitmap: Bitmap | None = None
        self.version = 0
        """Counts the changes to the graph and its tombstones, for those who save it."""
        self.holds_erased = False
        """Whether the graph still holds vectors that were erased: it must not be written."""

    def __len__(self) -> int:
        return int(self._live.sum())

    @property
    def linked(self) -> int:
        """Vectors in the graph, tombstones included."""
        return self._linked

    @property
    def dead(self) -> int:
        """Tombstones in the graph."""
        return self._dead

    @property
    def size(self) -> int:
        """Bytes held, about."""
        graph = self._linked * (4 * self.dimension + 8 * self.config.links + 16)
        graph += 0 if self._graph is None else self._graph.short_bytes
        return graph + self._tail.nbytes + self._entries.nbytes + self._live.nbytes

    def entries(self) -> Entries:
        """The live entries, in the order of their addition."""
        with self._lock.read():
            return self._entries[self._live].copy()

    # Changing

    def add(self, entries: Entries, vectors: Vectors) -> None:
        """Append entries that are not live yet; ``vectors`` is ``[entries, dimension]``."""
        if not len(entries):
            return
        with self._lock.write():
            self._entries = np.concatenate([self._entries, entries])
            self._live = np.concatenate([self._live, np.ones(len(entries), dtype=np.bool_)])
            self._tail.append(np.asarray(vectors, dtype=np.float32))

    def remove(self, entries: Entries, *, erased: bool = False) -> None:
        """Remove entries; unknown ones are ignored. ``erased``: they must never reach a file."""
        if not len(entries):
            return
        with self._lock.write():
            gone = np.isin(self._entries, entries) & self._live
            self._live &= ~gone
            in_graph = int(gone[: self._linked].sum())
            if in_graph:
                self._dead += in_graph
                self.holds_erased |= erased
                self._bitmap = None
                self.version += 1
            self._drop_dead_tail()

    def replace(self, gone: Entries, entries: Entries, vectors: Vectors) -> None:
        """`remove` and `add` at once: what comes takes the places of what leaves the tail."""
        count = 0
        if len(gone):
            with self._lock.write():
                tail = self._entries[self._linked :]
                places = np.flatnonzero(np.isin(tail, gone))[: len(entries)]
                count = len(places)
                tail[places] = entries[:count]
                self._tail.put(places, vectors[:count])
            self.remove(gone)
        self.add(entries[count:], vectors[count:])

    def _drop_dead_tail(self) -> None:
        keep = self._live.copy()
        keep[: self._linked] = True
        if not keep.all():
            self._tail.keep(keep[self._linked :])
            self._entries = self._entries[keep]
            self._live = self._live[keep]

    # Searching

    def search(
        self, query: Vectors, k: int, *, allowed: Entries | None = None, exact: bool = False
    ) -> tuple[Entries, Vectors]:
        """The ``k`` live entries of the largest inner product with ``query``, best first.

        Args:
            query: ``[dimension]``.
            k: How many; fewer come back if fewer are there.
            allowed: Only these entries.
            exact: Scan everything, whatever the graph (the reference path).

        Returns:
            Entries and their scores.
        """
        query = np.ascontiguousarray(query, dtype=np.float32)
        with self._lock.read():
            mask = self._live if allowed is None else self._live & np.isin(self._entries, allowed)
            if exact or not self._linked or self._is_selective(mask, allowed):
                rows = np.flatnonzero(mask)
                scores = self._scan(query, rows, everything=len(rows) == len(self._entries))
            else:
                rows, scores = self._search_graph(query, k, mask, filtered=allowed is not None)
                if len(self._entries) == self._linked and len(rows) <= k:
                    return self._entries[rows], scores  # the graph's own order
                tail = self._linked + np.flatnonzero(mask[self._linked :])
                rows = np.concatenate([rows, tail])
                scores = np.concatenate([scores, self._tail.vectors[tail - self._linked] @ query])
            best = _largest(scores, k)
            return self._entries[rows[best]], scores[best]

    def near(self, queries: Screened, k: int, floor: float) -> list[list[tuple[int, float]]]:
        """For each of many queries, up to ``k`` live entries that `search` would find.

        Args:
            queries: Unit vectors.
            k: How many at most for each.
            floor: Least inner product.

        Returns:
            For each query, entries and scores, best first.
        """
        many = len(queries) >= _MANY
        if self._linked and len(self._entries) > (_SCREENED_FOR_MANY if many else _SCREENED):
            return [self._near_in_graph(query, k, floor) for query in queries.vectors]
        out: list[list[tuple[int, float]]] = [[] for _ in range(len(queries))]
        with self._lock.read():
            if self._graph is not None:
                for at, row, score in near_pairs(queries, self._graph.screened(), floor):
                    if self._live[row]:
                        out[at].append((int(self._entries[row]), score))
            for at, row, score in near_pairs(queries, self._tail.screened(), floor):
                out[at].append((int(self._entries[self._linked + row]), score))
        return [sorted(found, key=lambda pair: -pair[1])[:k] if found else found for found in out]

    def _near_in_graph(self, query: Vectors, k: int, floor: float) -> list[tuple[int, float]]:
        # One by one: FAISS gains nothing from many queries on one thread.
        rows, scores = self.search(query, k)
        found = zip(rows.tolist(), scores.tolist(), strict=True)
        return [pair for pair in found if pair[1] >= floor]

    def _is_selective(self, mask: npt.NDArray[np.bool_], allowed: Entries | None) -> bool:
        if allowed is None:
            return False
        bound = max(self.config.exact_limit, _FILTER_SHARE * len(self._entries))
        return int(mask.sum()) <= bound

    def _scan(self, query: Vectors, rows: npt.NDArray[np.intp], *, everything: bool) -> Vectors:
        if everything and not self._linked:
            return self._tail.vectors @ query
        if everything:
            return np.concatenate([self._graph_vectors() @ query, self._tail.vectors @ query])
        split = int(np.searchsorted(rows, self._linked))
        parts = [self._tail.vectors[rows[split:] - self._linked] @ query]
        if split:
            vectors = self._graph_vectors()
            # Gathering pays only for few rows; else one pass over all is faster.
            if split * 4 < self._linked:
                parts.insert(0, vectors[rows[:split]] @ query)
            else:
                parts.insert(0, (vectors @ query)[rows[:split]])
        return np.concatenate(parts)

    def _graph_vectors(self) -> Vectors:
        assert self._graph is not None
        return self._graph.vectors()

    def _search_graph(
        self, query: Vectors, k: int, mask: npt.NDArray[np.bool_], *, filtered: bool
    ) -> tuple[npt.NDArray[np.intp], Vectors]:
        assert self._graph is not None
        reachable = self._linked - self._dead
        wanted = None
        if filtered:
            reachable = int(mask[: self._linked].sum())
            wanted = np.packbits(mask[: self._linked], bitorder="little")
        elif self._dead:
            wanted = self._dead_bitmap()
        if not reachable:
            return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.float32)
        rows, scores = self._graph.search(query, k, wanted=wanted, reachable=reachable)
        if rows[-1] >= 0:
            return rows, scores
        found = rows >= 0
        if int(found.sum()) < min(k, reachable):
            exact = np.flatnonzero(mask[: self._linked])
            scores = self._scan(query, exact, everything=False)
            best = _largest(scores, k)
            return exact[best], scores[best]
        return rows[found].astype(np.intp), scores[found]

    def _dead_bitmap(self) -> npt.NDArray[np.uint8]:
        # Readers may build it at the same time; they build the same one.
        bitmap = self._bitmap
        if bitmap is None:
            bitmap = self._bitmap = np.packbits(self._live[: self._linked], bitorder="little")
        return bitmap

    # Upkeep

    @property
    def needs_build(self) -> bool:
        """Whether a graph is due: the first one, or a new one for a half-dead one."""
        if not self._linked:
            return len(self._tail) > self.config.exact_limit
        return 2 * self._dead >= self._linked

    @property
    def needs_link(self) -> bool:
        """Whether the tail has outgrown the exact scan."""
        return bool(self._linked) and len(self._tail) > self.config.exact_limit

    def maintain(
        self,
        *,
        everything: bool = False,
        stop: threading.Event | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Build or link what is due; searches and changes go on meanwhile.

        Args:
            everything: Leave neither tail nor tombstone where a graph exists or is due.
            stop: Give up soon after this is set.
            progress: Called with vectors done and vectors to do.
        """
        with self._maintenance:
            due = everything and bool(self._linked) and self._dead > 0
            if self.needs_build or due:
                self._build(stop, progress)
            if self.needs_link or (everything and self._linked and len(self._tail)):
                self._link(stop, progress)

    def _stopped(self, stop: threading.Event | None) -> bool:
        return stop is not None and stop.is_set()

    def _build(self, stop: threading.Event | None, progress: Progress | None) -> None:
        with self._lock.read():
            rows = np.flatnonzero(self._live)
            entries = self._entries[rows]
            parts = [self._tail.vectors[rows[rows >= self._linked] - self._linked]]
            if self._linked:
                parts.insert(0, self._graph_vectors()[rows[rows < self._linked]])
            vectors = np.concatenate(parts)
        if len(vectors) <= self.config.exact_limit:
            self._swap(None, entries, vectors)
            return
        graph = Graph(self.dimension, self.config)
        with openmp_threads(self.config.threads):
            for start in range(0, len(vectors), _BUILD_CHUNK):
                if self._stopped(stop):
                    return
                graph.add(vectors[start : start + _BUILD_CHUNK])
                if progress is not None:
                    progress(min(start + _BUILD_CHUNK, len(vectors)), len(vectors))
        self._swap(graph, entries, np.empty((0, self.dimension), dtype=np.float32))

    def _swap(self, graph: Graph | None, entries: Entries, tail: Vectors) -> None:
        """Put a new graph in place; what was added or removed meanwhile is carried over."""
        with self._lock.write():
            current = self._entries[self._live]
            gone = ~np.isin(entries, current)
            added = self._live.copy()
            added &= ~np.isin(self._entries, entries)
            rows = np.flatnonzero(added)  # added since the copy was taken: all in the tail
            late = self._tail.vectors[rows - self._linked]
            self._entries = np.concatenate([entries, self._entries[rows]])
            self._live = np.concatenate([~gone, np.ones(len(rows), dtype=np.bool_)])
            self._graph = graph
            self._linked = len(entries) if graph is not None else 0
            if graph is not None:
                graph.tune()
            self._dead = int(gone.sum()) if graph is not None else 0
            self.holds_erased = self._dead > 0 and self.holds_erased
            self._tail.set(np.concatenate([tail, late]))
            self._bitmap = None
            self.version += 1
            self._drop_dead_tail()

    def _link(self, stop: threading.Event | None, progress: Progress | None) -> None:
        graph, total = self._graph, len(self._tail)
        assert graph is not None
        done = 0
        with openmp_threads(self.config.threads):
            while len(self._tail) and not self._stopped(stop):
                with self._lock.write():
                    chunk = self._tail.vectors[:_LINK_CHUNK]
                    if not len(chunk):
                        return
                    graph.add(chunk)
                    self._linked += len(chunk)
                    self._tail.drop(len(chunk))
                    self._bitmap = None
                    self.version += 1
                done += len(chunk)
                if progress is not None:
                    progress(min(done, total), total)
            with self._lock.write():
                self._tail.compact()
                graph.tune()

    # Saving

    def graph_bytes(self) -> tuple[npt.NDArray[np.uint8], Entries] | None:
        """The graph as FAISS serialises it, and the entry of each of its vectors (dead: -1)."""
        with self._lock.read():
            if self._graph is None:
                return None
            entries = np.where(self._live, self._entries, -1)[: self._linked]
            return self._graph.to_bytes(), entries

    def restore(self, graph: npt.NDArray[np.uint8], entries: Entries) -> None:
        """Take a graph that `graph_bytes` wrote; the index must be empty.

        Raises:
            ValueError: The graph is not of this dimension or not of ``entries``.
        """
        restored = Graph(self.dimension, self.config, graph)
        if len(restored) != len(entries):
            raise ValueError("the graph does not belong to these entries")
        with self._lock.write():
            if len(self._entries):
                raise ValueError("only an empty index can be restored")
            self._graph = restored
            self._linked = len(entries)
            self._entries = entries.astype(np.int64)
            self._live = entries >= 0
            self._dead = int((~self._live).sum())
            self._bitmap = None


def _largest(scores: Vectors, k: int) -> npt.NDArray[np.intp]:
    if k < len(scores):
        part = np.argpartition(scores, -k)[-k:]
        return part[np.argsort(-scores[part], kind="stable")]
    return np.argsort(-scores, kind="stable")
