"""Which passages say again what another one says already.

Exact repetitions are found by their text. Near repetitions are found by the cosine of their
TF-IDF vectors, with a guard that the paper does not have: a passage that brings a number or a
name which the kept one lacks is never redundant. "The meeting is on the 14th in Rome" and
"... on the 15th in Oslo" are all but equal for a cosine, and the difference is what matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ecs_plugins.ranking.lexical import tfidf_matrix
from ecs_plugins.ranking.wording import names_and_numbers

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


def exact_repetitions(passages: Sequence[str], read: Sequence[str]) -> dict[int, int]:
    """Later passage -> the first one with the same text, white space aside; blank ones never.

    Args:
        passages: As they were given.
        read: As the model reads them: "Yes." to another question is no repetition.
    """
    first: dict[tuple[str, str], int] = {}
    repeats: dict[int, int] = {}
    for index, (passage, text) in enumerate(zip(passages, read, strict=True)):
        key = (" ".join(passage.split()), " ".join(text.split()))
        if key[0] and first.setdefault(key, index) != index:
            repeats[index] = first[key]
    return repeats


class NearRepetitions:
    """Near repetitions among some passages.

    Args:
        passages: The passages by index; document frequencies are counted over them.
        similarity: Cosine from which on a passage repeats another; None finds none.
    """

    def __init__(self, passages: dict[int, str], similarity: float | None) -> None:
        self._passages = passages
        self._similarity = similarity
        self._row = {index: row for row, index in enumerate(passages)}

    @cached_property
    def _rows(self) -> csr_matrix | None:
        return tfidf_matrix(list(self._passages.values()))

    def of(self, index: int, kept: Sequence[int]) -> int | None:
        """The kept passage that ``index`` repeats, the most similar one; None if there is none."""
        if self._similarity is None or not kept or self._rows is None:
            return None
        others = self._rows[[self._row[k] for k in kept]]
        cosines = (others @ self._rows[[self._row[index]]].T).toarray()[:, 0]
        for place in np.argsort(-cosines, kind="stable"):
            if cosines[place] < self._similarity:
                return None
            if _facts(self._passages[index]) <= _facts(self._passages[kept[place]]):
                return kept[int(place)]
        return None


def _facts(text: str) -> set[str]:
    return set(names_and_numbers(text))
