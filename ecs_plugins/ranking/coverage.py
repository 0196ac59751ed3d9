"""Query coverage: the share of a question's terms that a text contains.

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
from typing import NamedTuple, TypeAlias

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


class _Posting(NamedTuple):
    """Texts with a term, ascending, and the term's value in each.

    ``weights`` is one number for all of the texts, or one for each.
    """

    numbers: Numbers
    weights: Shares | np.float64

    def weights_of(self, wanted: Numbers) -> Shares:
        """Return the weight in each wanted text; 0 where a text does not have the term."""
        places = self.numbers.searchsorted(wanted)
        nearest = self.numbers.take(places, mode="clip")
        having = nearest == wanted
        weights = self.weights
        if weights.ndim:
            weights = weights.take(places, mode="clip")
        found: Shares = weights * having
        return found


class _QueryTerms(NamedTuple):
    """Postings of the query's terms, the rarest first, and the weight of all its terms."""

    postings: list[_Posting]
    total: float


class CoverageIndex:
    """Inverted index of numbered texts, with addition and removal of texts.

    Not thread-safe: callers that share one must hold a lock.
    """

    def __init__(self) -> None:
        self._postings: dict[str, array[int]] = defaultdict(_no_numbers)  # ascending
        self._terms: dict[int, tuple[str, ...]] = {}
        # One string for each term, which all texts that have it share.
        self._shared: dict[str, str] = {}
        self._occurrences = 0

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        return _OCCURRENCE_BYTES * self._occurrences

    def add(self, number: int, text: str) -> None:
        """Index a text; one that was there under the same number is replaced."""
        self.discard(number)
        shared: list[str] = []
        for term in dict.fromkeys(terms(text)):
            same = self._shared.setdefault(term, term)
            shared.append(same)
        self._terms[number] = tuple(shared)
        self._occurrences += len(shared)
        for term in shared:
            numbers = self._postings[term]
            if numbers and numbers[-1] > number:
                insort(numbers, number)
            else:  # many are read at once when a memory opens
                numbers.append(number)

    def discard(self, number: int) -> None:
        """Take a text out, if it is there."""
        gone = self._terms.pop(number, ())
        self._occurrences -= len(gone)
        for term in gone:
            numbers = self._postings[term]
            del numbers[bisect_left(numbers, number)]
            if not numbers:
                del self._postings[term]
                del self._shared[term]

    def nearest(
        self,
        query: str,
        k: int,
        others: Numbers,
    ) -> tuple[Numbers, Shares, float]:
        """``others``, and the ``k`` texts that cover most of the query, scored together.

        Exact while the terms of the query occur at most `POSTINGS_READ` times in all. Beyond that
        its most frequent terms only decide among the ``2 k`` texts that are best by the others.

        Returns:
            Numbers ``[n]``, ``others`` first and behind them what else is among the best, the share
            that each covers ``[n]``, and the share that no other text exceeds. Ties are found by
            number.
        """
        postings, total = self._query_terms(query)
        if not postings:
            return others, np.zeros(len(others)), 0.0
        sizes = [_texts_having(posting) for posting in postings]
        is_read = np.cumsum(sizes) <= POSTINGS_READ
        rare = max(1, int(is_read.sum()))
        merged = _merged(postings[:rare])
        candidates = k if rare == len(postings) else 2 * k
        likely = _with_largest_weights(merged, candidates)
        wanted = np.concatenate([others, likely])
        shares = _shares([merged, *postings[rare:]], total, wanted)

        count = len(others)
        by_share = np.argsort(-shares[count:], kind="stable")
        best = count + by_share[:k]
        least = 0.0
        if len(best) == k:
            last = best[-1]
            least = float(shares[last])
        is_new = np.isin(wanted[best], others, assume_unique=True, invert=True)
        new = best[is_new]
        places = np.concatenate([np.arange(count), new])
        return wanted[places], shares[places], least

    def has(self, term: str) -> bool:
        """Return True if any text has a term."""
        return term in self._postings

    def coverage(self, query: str, numbers: Numbers) -> Shares:
        """Return the share of the query that each text covers, in [0, 1]; 0 for a missing text."""
        postings, total = self._query_terms(query)
        return _shares(postings, total, numbers)

    def _query_terms(self, query: str) -> _QueryTerms:
        postings: list[_Posting] = []
        total = 0.0
        n = max(MIN_TEXTS, len(self._terms))
        for term in dict.fromkeys(terms(query)):
            numbers = self._postings.get(term, ())
            df = len(numbers)
            odds = (n - df + 0.5) / (df + 0.5)
            idf = math.log1p(odds)
            total += idf
            if numbers:
                read_only = np.frombuffer(numbers, dtype=np.int64)
                posting = _Posting(read_only, np.float64(idf))
                postings.append(posting)
        postings.sort(key=_texts_having)
        return _QueryTerms(postings, total or 1.0)


def _no_numbers() -> array[int]:
    return array("q")


def _texts_having(posting: _Posting) -> int:
    return len(posting.numbers)


def _merged(postings: Sequence[_Posting]) -> _Posting:
    """Return all numbers of some postings, and for each the sum of its weights."""
    # Sorted by number and then by term, so that sums over the same terms are equal.
    count = len(postings)
    parts: list[Numbers] = []
    for place, posting in enumerate(postings):
        parts.append(posting.numbers * count + place)
    keys = np.concatenate(parts)
    keys.sort()
    numbers, places = np.divmod(keys, count)
    is_change = numbers[1:] != numbers[:-1]
    changes = np.flatnonzero(is_change)
    firsts = np.append(0, changes + 1)
    weights = np.array([posting.weights for posting in postings])
    by_key = weights[places]
    sums = np.add.reduceat(by_key, firsts)
    return _Posting(numbers[firsts], sums)


def _with_largest_weights(posting: _Posting, k: int) -> Numbers:
    """Return the ``k`` numbers with the largest weights, and all that may tie with the last."""
    worst = max(_texts_having(posting) - k, 0)
    weights = np.asarray(posting.weights)
    ordered = np.partition(weights, worst)
    # Sums that may be equal are compared once they are rounded.
    least = ordered[worst] - 1e-9
    likely: Numbers = posting.numbers[weights >= least]
    return likely


def _shares(postings: Sequence[_Posting], total: float, numbers: Numbers) -> Shares:
    sums = np.zeros(len(numbers))
    for posting in postings:
        sums += posting.weights_of(numbers)
    # Sums over the same terms in another order differ in the last bits; a tie must tie.
    return np.round(sums / total, 12)


class CoverageRanker:
    """Query coverage within the passages at hand."""

    name = "coverage"

    def rank(self, query: str, passages: Sequence[str]) -> Ranking:
        """Rank passages by coverage of the query, in [0, 1]; all 0 if no passage shares a term."""
        index = CoverageIndex()
        for number, passage in enumerate(passages):
            index.add(number, passage)
        numbers = np.arange(len(passages))
        shares = index.coverage(query, numbers)
        return Ranking.from_scores(shares)
