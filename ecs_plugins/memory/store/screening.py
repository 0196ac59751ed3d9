"""Which of many vectors are near to which, without computing every cosine in full.

By Cauchy and Schwarz ``x.y <= a.b + |x - a| |y - b|``, where a and b are the first numbers of x
and y. With the length of what is left out as one more number, a product of these short forms
bounds the cosine from above. At a high threshold hardly a pair gets past the bound, which takes a
quarter of the work; whoever does is compared in full. So what is found is what a full product
finds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from ecs_plugins.memory.types import Matrix

_SHARE: Final = 4  # the short form has this part of the numbers
_LEAST: Final = 128  # dimensions from which on a short form pays
_PAST: Final = 64  # if more than one pair in so many gets past the bound, it is no help
_ROUNDING: Final = 1e-5  # more than the bound can be wrong by in float32

Pair = tuple[int, int, float]
"""Query, stored vector, cosine."""


@dataclass(frozen=True, slots=True)
class Screened:
    """Unit vectors ``[n, dimension]`` and the short form of each."""

    vectors: Matrix
    short: Matrix

    def __len__(self) -> int:
        return len(self.vectors)

    def part(self, start: int, stop: int) -> Screened:
        """Those from ``start`` to before ``stop``."""
        return Screened(self.vectors[start:stop], self.short[start:stop])


def short_width(dimension: int) -> int:
    """Numbers in the short form of a vector; all of them where it does not pay."""
    return dimension if dimension < _LEAST else dimension // _SHARE


def shortened(vectors: Matrix) -> Matrix:
    """The short forms of unit vectors."""
    width = short_width(vectors.shape[1])
    if width == vectors.shape[1]:
        return vectors
    short = np.empty((len(vectors), width), dtype=np.float32)
    short[:, :-1] = vectors[:, : width - 1]
    rest = vectors[:, width - 1 :]
    np.sqrt(np.einsum("ij,ij->i", rest, rest), out=short[:, -1])
    return short


def screened(vectors: Matrix) -> Screened:
    """Unit vectors with their short forms."""
    return Screened(vectors, shortened(vectors))


def near_pairs(queries: Screened, stored: Screened, least: float) -> list[Pair]:
    """The pairs of a cosine of at least that value, query by query.

    >>> axes = screened(np.eye(2, dtype=np.float32))
    >>> near_pairs(axes, axes, 0.5)
    [(0, 0, 1.0), (1, 1, 1.0)]
    """
    if not len(queries) or not len(stored):
        return []
    if queries.short.shape == queries.vectors.shape:
        return _compared(queries, stored, least)
    bounds = queries.short @ stored.short.T
    if bounds.max() < least - _ROUNDING:  # mostly, and quicker to see than where it is not so
        return []
    past = np.flatnonzero((bounds >= least - _ROUNDING).ravel())
    if len(past) * _PAST > bounds.size:
        return _compared(queries, stored, least)
    rows, columns = np.divmod(past, len(stored))
    cosines = np.einsum("ij,ij->i", queries.vectors[rows], stored.vectors[columns])
    near = cosines >= least
    return list(
        zip(rows[near].tolist(), columns[near].tolist(), cosines[near].tolist(), strict=True)
    )


def _compared(queries: Screened, stored: Screened, least: float) -> list[Pair]:
    cosines = queries.vectors @ stored.vectors.T
    if cosines.max() < least:
        return []
    near = np.flatnonzero((cosines >= least).ravel())
    rows, columns = np.divmod(near, len(stored))
    return list(zip(rows.tolist(), columns.tolist(), cosines.ravel()[near].tolist(), strict=True))
