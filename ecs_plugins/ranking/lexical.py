"""Rankers that count words: TF-IDF (vanilla and query-aware) and BM25.

The two TF-IDF rankers are the zero-cost strategies of The Efficiency Frontier: the vanilla one
ranks by corpus statistics alone, the query-aware one by the cosine with the question.
Statistics are those of the passages at hand; there is no index to keep.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ecs_plugins.common.text import terms
from ecs_plugins.ranking.base import Ranking

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import TfidfVectorizer


def tfidf_matrix(texts: Sequence[str]) -> csr_matrix | None:
    """Return L2-normalised TF-IDF rows, ``[len(texts), terms]``; None if no text has a term.

    Inverse document frequency is smoothed (scikit-learn's default), so a term that occurs in
    every text still counts a little and a single text has a vector.
    """
    fitted = _fitted(texts)
    return fitted and fitted.rows


class _Fitted(NamedTuple):
    vectorizer: TfidfVectorizer
    rows: csr_matrix


def _fitted(texts: Sequence[str], **settings: Any) -> _Fitted | None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    if not any(terms(text) for text in texts):
        return None
    vectorizer = TfidfVectorizer(tokenizer=terms, token_pattern=None, lowercase=False, **settings)
    rows = vectorizer.fit_transform(texts)
    return _Fitted(vectorizer, rows)


class TfidfQueryRanker:
    """Query-aware TF-IDF: cosine between the query's and the passage's TF-IDF vectors."""

    name = "tfidf_query"

    def rank(self, query: str, passages: Sequence[str]) -> Ranking:
        """Rank passages by TF-IDF cosine, in [0, 1]; all 0 if no passage shares a term."""
        fitted = _fitted(passages)
        if fitted is None:
            return _all_zero(passages)
        question = fitted.vectorizer.transform([query])
        products = fitted.rows @ question.T
        cosines = products.toarray()[:, 0]
        # Sums over the same terms in another order differ in the last bits; a tie must tie.
        return Ranking.from_scores(cosines.round(12))


class TfidfRanker:
    """Vanilla TF-IDF: the mean TF-IDF weight of a passage's distinct terms, query unused.

    The weights of a passage are ``tf * idf`` without length normalisation; their mean favours
    passages of rare and repeated terms, whatever their length.
    """

    name = "tfidf"

    def rank(self, query: str, passages: Sequence[str]) -> Ranking:
        """Rank passages by mean TF-IDF weight per distinct term; a passage without terms gets 0."""
        del query
        fitted = _fitted(passages, norm=None)
        if fitted is None:
            return _all_zero(passages)
        sums = fitted.rows.sum(axis=1)
        totals = np.asarray(sums).ravel()
        distinct = fitted.rows.getnnz(axis=1)
        at_least_one = distinct.clip(min=1)
        means = totals / at_least_one
        return Ranking.from_scores(means.round(12))


@dataclass(frozen=True)
class BM25Ranker:
    """Okapi BM25 in Lucene's variant and with its constants, by bm25s."""

    name = "bm25"

    def rank(self, query: str, passages: Sequence[str]) -> Ranking:
        """Rank passages by BM25 score, at least 0; all 0 if no passage shares a term."""
        bm25s = _bm25s()
        corpus = [terms(passage) for passage in passages]
        vocabulary = set(chain.from_iterable(corpus))
        shared = [term for term in terms(query) if term in vocabulary]
        if not shared:
            return _all_zero(passages)
        index = bm25s.BM25(k1=1.2, b=0.75, method="lucene")
        index.index(corpus, show_progress=False)
        scores = index.get_scores(shared)
        return Ranking.from_scores(scores.tolist())


def _all_zero(passages: Sequence[str]) -> Ranking:
    return Ranking.from_scores([0.0] * len(passages))


@cache
def _bm25s() -> ModuleType:
    import bm25s

    # It sets its logger to DEBUG when imported, and writes a line into every application's log
    # for every ranking. Here the application's own level decides.
    logging.getLogger("bm25s").setLevel(logging.NOTSET)
    return bm25s  # type: ignore[no-any-return]
