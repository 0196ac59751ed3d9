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

import heapq
import math
from collections.abc import Iterable, Sequence, Set

from ecs_plugins.common.text import terms
from ecs_plugins.ranking.base import Ranking

MIN_TEXTS = 100
"""The least n."""
POSTINGS_READ = 20_000
"""Occurrences that are read to find candidates, those of the rarest terms first."""
_OCCURRENCE_BYTES = 100


class CoverageIndex:
    """An inverted index of numbered texts, to which texts are added and from which they are taken.

    Not thread-safe: who shares it holds a lock.
    """

    def __init__(self) -> None:
        self._postings: dict[str, set[int]] = {}
        self._terms: dict[int, tuple[str, ...]] = {}
        self._occurrences = 0

    def __len__(self) -> int:
        return len(self._terms)

    def numbers(self) -> Set[int]:
        """The numbers of the texts that are there."""
        return self._terms.keys()

    @property
    def size(self) -> int:
        """Bytes held, about."""
        return _OCCURRENCE_BYTES * self._occurrences

    def __contains__(self, number: int) -> bool:
        return number in self._terms

    def add(self, number: int, text: str) -> None:
        """Index a text; one that was there under the same number is replaced."""
        self.discard(number)
        found = tuple(dict.fromkeys(terms(text)))
        self._terms[number] = found
        self._occurrences += len(found)
        for term in found:
            self._postings.setdefault(term, set()).add(number)

    def discard(self, number: int) -> None:
        """Take a text out, if it is there."""
        gone = self._terms.pop(number, ())
        self._occurrences -= len(gone)
        for term in gone:
            having = self._postings[term]
            having.discard(number)
            if not having:
                del self._postings[term]

    def nearest(self, query: str, k: int) -> list[tuple[int, float]]:
        """The ``k`` texts that cover most of the query, with how much; ties by number.

        Exact while the terms of the query occur at most `POSTINGS_READ` times in all. Beyond that
        its most frequent terms only decide among the ``4 k`` texts that are best by the others.
        """
        known, total = self._weighed(query)
        sums: dict[int, float] = {}
        read = 0
        for having, idf in sorted(known, key=lambda each: len(each[0])):
            read += len(having)
            if sums and read > POSTINGS_READ:
                best = heapq.nlargest(4 * k, sums, key=sums.__getitem__)
                covered = self.coverage(query, best)
                break
            for number in having:
                sums[number] = sums.get(number, 0.0) + idf
        else:
            # Rounding costs more than comparing: only what may be among the best is rounded.
            floor = min(heapq.nlargest(k, sums.values()), default=0.0) - 1e-9 * total
            best = [number for number, value in sums.items() if value >= floor]
            covered = {number: round(sums[number] / total, 12) for number in best}
        return heapq.nsmallest(k, covered.items(), key=lambda each: (-each[1], each[0]))

    def coverage(self, query: str, numbers: Iterable[int]) -> dict[int, float]:
        """How much of the query each text covers, in [0, 1]; 0 for a text that is not there."""
        known, total = self._weighed(query)
        # Sums over the same terms in another order differ in the last bits; a tie must tie.
        return {
            number: round(sum(idf for having, idf in known if number in having) / total, 12)
            for number in numbers
        }

    def _weighed(self, query: str) -> tuple[list[tuple[set[int], float]], float]:
        """The postings of the query's terms with their weights, and the weight of all its terms."""
        known, total, n = [], 0.0, max(MIN_TEXTS, len(self._terms))
        for term in dict.fromkeys(terms(query)):
            having = self._postings.get(term, set())
            idf = math.log1p((n - len(having) + 0.5) / (len(having) + 0.5))
            known.append((having, idf))
            total += idf
        return known, total or 1.0


class CoverageRanker:
    """Query coverage within the passages at hand."""

    name = "coverage"

    def rank(self, query: str, passages: Sequence[str]) -> Ranking:
        """Scores in [0, 1]; all zero where no passage shares a term with the query."""
        index = CoverageIndex()
        for number, passage in enumerate(passages):
            index.add(number, passage)
        return Ranking.from_scores(index.coverage(query, range(len(passages))).values())
