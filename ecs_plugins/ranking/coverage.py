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
# The texts that have a term, ascending, and its weight, or one for each of them.
_Posting: TypeAlias = tuple[Numbers, Shares | np.float64]


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
        """``others``, and the ``k`` texts that cover most of the query, scored together.

        Exact while the terms of the query occur at most `POSTINGS_READ` times in all. Beyond that
        its most frequent terms only decide among the ``2 k`` texts that are best by the others.

        Returns:
            Numbers ``[n]``, ``others`` first and behind them what else is among the best, the share
            that each covers ``[n]``, and the share that no other text exceeds. Ties are found by
            number.
        """
        known, total = self._weighed(query)
        if not known:
            return others, np.zeros(len(others)), 0.0
        read = np.cumsum([having.size for having, _ in known])
        rare = max(1, int((read <= POSTINGS_READ).sum()))
        numbers, sums = _summed(known[:rare])
        worst = max(len(numbers) - (k if rare == len(known) else 2 * k), 0)
        # Sums that may be equal are compared once they are rounded.
        likely = numbers[sums >= np.partition(sums, worst)[worst] - 1e-9]
        wanted = np.concatenate([others, likely])
        shares = _shares([(numbers, sums), *known[rare:]], total, wanted)
        best = len(others) + np.argsort(-shares[len(others) :], kind="stable")[:k]
        least = float(shares[best[-1]]) if len(best) == k else 0.0
        further = best[np.isin(wanted[best], others, assume_unique=True, invert=True)]
        at = np.concatenate([np.arange(len(others)), further])
        return wanted[at], shares[at], least

    def coverage(self, query: str, numbers: Numbers) -> Shares:
        """How much of the query each text covers, in [0, 1]; 0 for a text that is not there."""
        return _shares(*self._weighed(query), numbers)

    def _weighed(self, query: str) -> tuple[list[_Posting], float]:
        """The postings of the query's terms, the rarest first, and the weight of all its terms."""
        known, total, n = list[_Posting](), 0.0, max(MIN_TEXTS, len(self._terms))
        for term in dict.fromkeys(terms(query)):
            having = self._postings.get(term, ())
            idf = math.log1p((n - len(having) + 0.5) / (len(having) + 0.5))
            total += idf
            if having:
                known.append((np.frombuffer(having, dtype=np.int64), np.float64(idf)))
        return sorted(known, key=lambda each: len(each[0])), total or 1.0


def _summed(known: Sequence[_Posting]) -> _Posting:
    """All numbers of some postings, and for each the sum of its weights."""
    # Sorted by number and then by term, so that sums over the same terms are equal.
    keys = np.concatenate([having * len(known) + at for at, (having, _) in enumerate(known)])
    keys.sort()
    numbers, at = np.divmod(keys, len(known))
    firsts = np.append(0, np.flatnonzero(numbers[1:] != numbers[:-1]) + 1)
    return numbers[firsts], np.add.reduceat(np.array([idf for _, idf in known])[at], firsts)


def _shares(known: Sequence[_Posting], total: float, numbers: Numbers) -> Shares:
    sums = np.zeros(len(numbers))
    for having, weight in known:
        at = having.searchsorted(numbers)
        found = having.take(at, mode="clip") == numbers
        sums += (weight.take(at, mode="clip") if weight.ndim else weight) * found
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
