"""An HNSW graph of unit vectors: all that is FAISS about an index.

FAISS knows vectors by the order in which they were added, cannot remove one, and crashes when one
is added during a search; who calls sees to the rest (`index`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from ecs_plugins.memory.store.index_config import IndexConfig, auto_ef_search
from ecs_plugins.memory.store.screening import Screened, short_width, shortened
from ecs_plugins.memory.types import Matrix, Vector

Bitmap = npt.NDArray[np.uint8]


def _faiss() -> Any:
    """FAISS, loaded on first use, as ``Any``: its stubs leave out half of what is used here."""
    import faiss

    return faiss


@contextmanager
def openmp_threads(count: int) -> Iterator[None]:
    """Let FAISS use so many threads in this block."""
    faiss = _faiss()
    # The setting belongs to the calling thread, so the application's own is put back.
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(count)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


class Graph:
    """Vectors by the order of their addition, searched by inner product.

    Args:
        dimension: Length of every vector.
        config: How to build and search.
        content: What `to_bytes` returned, of a graph to restore.

    Raises:
        ValueError: The content is of another dimension.
    """

    def __init__(self, dimension: int, config: IndexConfig, content: Bitmap | None = None) -> None:
        faiss = _faiss()
        self._config = config
        if content is None:
            self._index = faiss.IndexHNSWFlat(dimension, config.links, faiss.METRIC_INNER_PRODUCT)
        else:
            self._index = faiss.deserialize_index(content)
            if self._index.d != dimension:
                raise ValueError("the graph does not hold vectors of this dimension")
        self._short: Matrix = np.empty((0, short_width(dimension)), dtype=np.float32)
        self._index.hnsw.efConstruction = config.ef_construction
        self.tune()

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def add(self, vectors: Matrix) -> None:
        """Link vectors ``[n, dimension]``."""
        self._index.add(np.ascontiguousarray(vectors))

    def tune(self) -> None:
        """Let it search with the right ``efSearch`` when it is told nothing else."""
        self._index.hnsw.efSearch = self._ef()

    def _ef(self) -> int:
        return self._config.ef_search or auto_ef_search(len(self))

    def vectors(self) -> Matrix:
        """All vectors, as a view ``[n, dimension]``."""
        faiss = _faiss()
        storage = faiss.downcast_index(self._index.storage)
        flat: Matrix = faiss.rev_swig_ptr(storage.get_xb(), len(self) * self._index.d)
        return flat.reshape(len(self), self._index.d)

    def screened(self) -> Screened:
        """All vectors with their short forms, which are made when they are first asked for."""
        vectors, short = self.vectors(), self._short
        if len(short) < len(vectors):
            short = np.concatenate([short, shortened(vectors[len(short) :])])
            self._short = short
        return Screened(vectors, short[: len(vectors)])

    @property
    def short_bytes(self) -> int:
        """Bytes of the short forms."""
        return self._short.nbytes

    def search(
        self, query: Vector, k: int, *, wanted: Bitmap | None = None, reachable: int = 0
    ) -> tuple[npt.NDArray[np.intp], Vector]:
        """The ``k`` nearest vectors, best first; -1 stands for one that was not found.

        Args:
            query: ``[dimension]``.
            k: How many.
            wanted: A bit for each vector, lowest first: 1 if it may be found.
            reachable: How many those are. The fewer, the longer the search.
        """
        faiss = _faiss()
        ef = max(self._ef(), 2 * k)
        parameters: Any = None
        if wanted is not None:
            parameters = faiss.SearchParametersHNSW(
                efSearch=int(ef * len(self) / reachable),
                sel=faiss.IDSelectorBitmap(len(self), faiss.swig_ptr(wanted)),
            )
        elif ef != self._index.hnsw.efSearch:
            parameters = faiss.SearchParametersHNSW(efSearch=ef)
        scores, rows = self._index.search(query[None], min(k, len(self)), params=parameters)
        return rows[0], scores[0]

    def to_bytes(self) -> Bitmap:
        """The graph as FAISS serialises it."""
        content: Bitmap = _faiss().serialize_index(self._index)
        return content
