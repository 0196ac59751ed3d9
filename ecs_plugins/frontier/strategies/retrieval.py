"""Retrieval without a language model: sentences by TF-IDF or BM25, documents by embedding.

The paper's zero-cost methods: no stage 1, and stage 2 costs what the answering model reads. The
embedder's tokens are not counted, as in the paper; its time is.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.data import Context, Document
from ecs_plugins.frontier.points import ConfigValue
from ecs_plugins.frontier.strategies.base import BuiltContext, Prepared
from ecs_plugins.ranking.base import Ranker
from ecs_plugins.ranking.dense import DenseRanker
from ecs_plugins.ranking.embedder import Embedder
from ecs_plugins.ranking.lexical import BM25Ranker, TfidfQueryRanker, TfidfRanker
from ecs_plugins.ranking.text import sentence_spans


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence and the document that it stands in."""

    document: int
    text: str


def sentences_of(documents: Sequence[Document]) -> list[Sentence]:
    """All sentences that are not blank, in order; as the data set cuts them, where it does."""
    out = []
    for index, document in enumerate(documents):
        parts: Sequence[str] = document.sentences or [
            document.text[start:end] for start, end in sentence_spans(document.text)
        ]
        out += [Sentence(index, part.strip()) for part in parts if part.strip()]
    return out


def join_sentences(sentences: Sequence[Sentence], documents: Sequence[Document]) -> str:
    """Sentences in order, those of one document together behind its title."""
    parts: dict[int, list[str]] = {}
    for sentence in sentences:
        parts.setdefault(sentence.document, []).append(sentence.text)
    return "\n\n".join(
        Document(" ".join(texts), documents[index].title).titled
        for index, texts in sorted(parts.items())
    )


class SentenceRetrieval:
    """The best sentences of a context, in their original order.

    Args:
        ranker: Orders sentences for a question.
        depth: How many are kept.
        name: The strategy's name; the ranker's by default.
        uses_question: False where the ranker ignores the question, so that every question
            gets the same context.

    Raises:
        ConfigurationError: ``depth`` < 1.
    """

    routable = True

    def __init__(
        self, ranker: Ranker, depth: int, *, name: str | None = None, uses_question: bool = True
    ) -> None:
        self._depth = _checked(depth)
        self._ranker = ranker
        self._uses_question = uses_question
        self.name = name or ranker.name

    @property
    def config(self) -> Mapping[str, ConfigValue]:
        """``{"depth": sentences}``."""
        return {"depth": self._depth}

    def prepare(self, context: Context) -> Prepared:
        """Costs nothing."""
        return Prepared(context)

    def build(self, prepared: Prepared, question: str) -> BuiltContext:
        """Rank and keep; a title counts as part of each of its sentences."""
        started = time.perf_counter()
        documents = prepared.context.documents
        sentences = sentences_of(documents)
        ranked = self._ranker.rank(
            question, [Document(s.text, documents[s.document].title).titled for s in sentences]
        )
        kept = [sentences[index] for index in sorted(ranked.top(self._depth))]
        return BuiltContext(
            join_sentences(kept, documents),
            seconds=time.perf_counter() - started,
            shared=not self._uses_question,
        )


class DocumentRetrieval:
    """The best documents of a context, in their original order.

    Args:
        ranker: Orders documents for a question.
        depth: How many are kept.
        name: The strategy's name; the ranker's by default.

    Raises:
        ConfigurationError: ``depth`` < 1.
    """

    routable = True

    def __init__(self, ranker: Ranker, depth: int, *, name: str | None = None) -> None:
        self._depth = _checked(depth)
        self._ranker = ranker
        self.name = name or ranker.name

    @property
    def config(self) -> Mapping[str, ConfigValue]:
        """``{"depth": documents}``."""
        return {"depth": self._depth}

    def prepare(self, context: Context) -> Prepared:
        """Costs no tokens of a language model."""
        return Prepared(context)

    def build(self, prepared: Prepared, question: str) -> BuiltContext:
        """Rank and keep."""
        started = time.perf_counter()
        texts = [document.titled for document in prepared.context.documents]
        kept = sorted(self._ranker.rank(question, texts).top(self._depth))
        return BuiltContext(
            "\n\n".join(texts[index] for index in kept), seconds=time.perf_counter() - started
        )


class RememberingEmbedder:
    """An embedder that keeps the vectors of the documents it saw last.

    A context is embedded once and not again for every question and depth.

    Args:
        embedder: Embeds.
        capacity: How many vectors are kept.
    """

    def __init__(self, embedder: Embedder, capacity: int = 8192) -> None:
        self._embedder = embedder
        self._capacity = capacity
        self._vectors: OrderedDict[str, npt.NDArray[np.float32]] = OrderedDict()
        self.name = embedder.name

    @property
    def dimension(self) -> int:
        """Of the embedder behind."""
        return self._embedder.dimension

    def embed_documents(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Vectors of all texts, ``[n, dimension]``; only unknown ones are computed."""
        known = {text: self._vectors[text] for text in texts if text in self._vectors}
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        if missing:
            known |= zip(missing, self._embedder.embed_documents(missing), strict=True)
        for text in texts:
            self._vectors[text] = known[text]
            self._vectors.move_to_end(text)
        while len(self._vectors) > self._capacity:
            self._vectors.popitem(last=False)
        return np.stack([known[text] for text in texts])

    def embed_query(self, text: str) -> npt.NDArray[np.float32]:
        """As the embedder behind."""
        return self._embedder.embed_query(text)


def tfidf(depth: int) -> SentenceRetrieval:
    """Vanilla TF-IDF: sentences by corpus statistics alone, whatever is asked."""
    return SentenceRetrieval(TfidfRanker(), depth, uses_question=False)


def tfidf_query(depth: int) -> SentenceRetrieval:
    """Query-aware TF-IDF over sentences."""
    return SentenceRetrieval(TfidfQueryRanker(), depth)


def bm25(depth: int) -> SentenceRetrieval:
    """BM25 over sentences."""
    return SentenceRetrieval(BM25Ranker(), depth)


def dense(depth: int, embedder: Embedder) -> DocumentRetrieval:
    """Embeddings over documents; give all depths one `RememberingEmbedder`."""
    return DocumentRetrieval(DenseRanker(embedder), depth)


def _checked(depth: int) -> int:
    if depth < 1:
        raise ConfigurationError(f"depth must be at least 1, got {depth}")
    return depth
