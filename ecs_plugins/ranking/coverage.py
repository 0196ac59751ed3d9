"""Query coverage: how much of what a question asks for do the words of a text hold?

    coverage(q, d) = sum of idf(t) over the terms t of q that d has, over the sum for all of q

It lies in [0, 1] and means the same for every question and collection, which a BM25 score does
not: so it can be averaged with a cosine, and a threshold on the average holds. The inverse document
frequency is that of BM25 (Robertson and Spärck Jones, Lucene's variant):

    idf(t) = ln(1 + (n - df + 0.5) / (df + 0.5))

A collection counts as one of `MIN_TEXTS` texts at least: in a smaller one, what a term is worth
cannot be told, and a term that none of three texts has would outweigh all that they have.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ecs_plugins.common.text import terms
from ecs_plugins.ranking.base import Ranking

MIN_TEXTS = 100
"""The least n."""
POSTINGS_READ = 5_000
"""Occurrences that are read to find candidates, those of the rarest terms first."""
_OCCURRENCE_BYTES = 30

Numbers: TypeAlias = npt.NDArray[np.int64]
Shares: TypeAlias = npt.NDArray[np.float64]
_Posting: TypeAlias = tuple[Numbers, float]  # the texts that have a term, and its weight


class CoverageIndex:
    """An inverted index of numbered texts, to which texts are added and from which they are taken.

    Not thread-safe: who shares it holds a lock.
    """

    def __init__(self) -> None:
        self._postings: dict[str, array[int]] = defaultdict(lambda: array("q"))  # ascending
        self._terms: dict[int, tuple[str, ...]] = {}
        self._known: dict[str, str] = {}  # so that texts share the strings of their terms
        self._occurrences = 0

    @property
    def size(self) -> int:
        """Bytes held, about."""
        return _OCCURRENCE_BYTES * self._occurrences

    def add(self, number: int, text: str) -> None:
        """Index a text; one that was there under the same number is replaced."""
        self.discard(number)
        found = tuple(self._known.setdefault(term, term) for term in dict.fromkeys(terms(text)))
        self._terms[number] = found
        self._occurrences += len(found)
        for term in found:
            having = self._postings[term]
            if having and having[-1] > number:
                insort(having, number)
            else:  # many are read at once when a memory opens
                having.append(number)

    def discard(self, number: int) -> None:
        """Take a text out, if it is there."""
        gone = self._terms.pop(number, ())
        self._occurrences -= len(gone)
        for term in gone:
            having = self._postings[term]
            del having[bisect_left(having, number)]
            if not having:
                del self._postings[term], self._known[term]

    def nearest(self, query: str, k: int, others: Numbers) -> tuple[Numbers, Shares, float]:
        """The ``k`` texts that cover most of the query, and ``others``, scored with them.

        Exact while the terms of the query occur at most `POSTINGS_READ` times in all. Beyond that
        its most frequent terms only decide among the ``4 k`` texts that are best by the others.

        Returns:
            Numbers ``[n]`` in ascending order, the share that each covers ``[n]``, and the share
            that no other text exceeds. Ties are found by number.
        """
        known, total = self._weighed(query)
        likely = _likely(known, k)
        numbers = np.union1d(likely, others)
        shares = _shares(known, total, numbers)
        at = numbers.searchsorted(likely)
        at = at[np.lexsort((likely, -shares[at]))[:k]]
        wanted = np.zeros(len(numbers), dtype=bool)
        wanted[at] = wanted[numbers.searchsorted(others)] = True
        least = float(shares[at[-1]]) if len(at) == k else 0.0
        return numbers[wanted], shares[wanted], least

    def coverage(self, query: str, numbers: Numbers) -> Shares:
        """How much of the query each text covers, in [0, 1]; 0 for a text that is not there."""
        return _shares(*self._weighed(query), numbers)

    def _weighed(self, query: str) -> tuple[list[_Posting], float]:
        """The postings of the query's terms with their weights, and the weight of all its terms."""
        known, total, n = list[_Posting](), 0.0, max(MIN_TEXTS, len(self._terms))
        for term in dict.fromkeys(terms(query)):
            having = self._postings.get(term, ())
            idf = math.log1p((n - len(having) + 0.5) / (len(having) + 0.5))
            total += idf
            if having:
                known.append((np.frombuffer(having, dtype=np.int64), idf))
        return known, total or 1.0


def _likely(known: Sequence[_Posting], k: int) -> Numbers:
    """The texts, in ascending order, of which `CoverageIndex.nearest` takes the best."""
    known = sorted(known, key=lambda each: len(each[0]))
    if not known:
        return np.empty(0, dtype=np.int64)
    read = np.cumsum([len(having) for having, _ in known])
    exact = max(1, int((read <= POSTINGS_READ).sum()))
    together = np.concatenate([having for having, _ in known[:exact]])
    idf = np.repeat([idf for _, idf in known[:exact]], np.diff(read[:exact], prepend=0))
    order = together.argsort(kind="stable")  # of runs that are sorted, hence linear
    firsts = np.flatnonzero(np.diff(together[order], prepend=-1))
    numbers, sums = together[order[firsts]], np.add.reduceat(idf[order], firsts)
    worst = max(len(sums) - (k if exact == len(known) else 4 * k), 0)
    # Sums that may be equal are compared once they are rounded.
    likely: Numbers = numbers[sums >= np.partition(sums, worst)[worst] - 1e-9]
    return likely


def _shares(known: Sequence[_Posting], total: float, numbers: Numbers) -> Shares:
    sums = np.zeros(len(numbers))
    for having, idf in known:
        sums += idf * (having.take(having.searchsorted(numbers), mode="clip") == numbers)
    # Sums over the same terms in another order differ in the last bits; a tie must tie.
    return np.round(sums / total, 12)


class CoverageRanker:
    """Query coverage within the passages at hand."""

    name = "coverage"

    def rank(self, query: str, passages: Sequence[str]) -> Ranking:
        """Scores in [0, 1]; all zero where no passage shares a term with the query."""
        index = CoverageIndex()
        for number, passage in enumerate(passages):
            index.add(number, passage)
        return Ranking.from_scores(index.coverage(query, np.arange(len(passages))))
