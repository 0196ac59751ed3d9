"""Strategies without a language model of their own: everything, the gold documents, retrieval.

They have no stage 1, and stage 2 costs the tokens that the answering model reads. The time of the
embedder is counted, its tokens are not, as in the paper.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from ecs_plugins.common.text import sentence_spans
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.cost import ConfigValue
from ecs_plugins.frontier.data import CalibrationQuestion, Document
from ecs_plugins.frontier.strategies.base import BuiltContext, NoPreparation, Prepared, check_depth
from ecs_plugins.ranking import Ranker


class FullContext(NoPreparation):
    """All documents, as they are."""

    name = "full_context"
    config: Mapping[str, ConfigValue] = {}

    def build(self, prepared: Prepared, question: str) -> BuiltContext:
        """Return every document after its title."""
        del question
        return BuiltContext(prepared.context.text, shared=True)


class Oracle(NoPreparation):
    """The documents that hold the answer: an upper bound of selection, never routed."""

    name = "oracle"
    routable = False
    config: Mapping[str, ConfigValue] = {}

    def __init__(self, questions: Iterable[CalibrationQuestion]) -> None:
        self._supporting = {
            (question.context.id, question.question): question.supporting
            for question in questions
            if question.supporting
        }
        if not self._supporting:
            raise InvalidInputError("the oracle needs questions with supporting documents")

    def build(self, prepared: Prepared, question: str) -> BuiltContext:
        """Return the supporting documents; all of them where the data set names none."""
        documents = prepared.context.documents
        chosen = self._supporting.get((prepared.context.id, question))
        indices = range(len(documents)) if chosen is None else chosen
        texts = [documents[index].titled for index in indices]
        return BuiltContext("\n\n".join(texts))


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text that are not blank, without the space around them."""
    sentences = []
    for start, end in sentence_spans(text):
        sentence = text[start:end].strip()
        if sentence:
            sentences.append(sentence)
    return sentences


def sentences_of(documents: Sequence[Document]) -> list[tuple[int, str]]:
    """Return (document index, sentence) pairs in order; prefer sentences given by the document."""
    sentences = []
    for index, document in enumerate(documents):
        for given in document.sentences or split_sentences(document.text):
            sentence = given.strip()
            if sentence:
                sentences.append((index, sentence))
    return sentences


class Retrieval(NoPreparation):
    """The best parts of a context for a question, in their original order.

    Args:
        ranker: Orders parts for a question; a title counts as a piece of each of its parts.
        depth: How many are kept.
        by_document: Whether the parts are whole documents, and not sentences.
        uses_question: False where every question gets the same context.
    """

    def __init__(
        self, ranker: Ranker, depth: int, *, by_document: bool = False, uses_question: bool = True
    ) -> None:
        self._depth = check_depth(depth)
        self._ranker = ranker
        self._by_document = by_document
        self._uses_question = uses_question
        self.name = ranker.name
        self.config: Mapping[str, ConfigValue] = {"depth": depth}

    def build(self, prepared: Prepared, question: str) -> BuiltContext:
        """Return the best sentences, grouped by document after its title."""
        started = time.perf_counter()
        documents = prepared.context.documents
        parts = [(index, document.text) for index, document in enumerate(documents)]
        if not self._by_document:
            parts = sentences_of(documents)
        titled = [_titled(documents[index].title, text) for index, text in parts]
        ranking = self._ranker.rank(question, titled)
        kept: dict[int, list[str]] = {}
        for place in sorted(ranking.top(self._depth)):
            index, text = parts[place]
            kept.setdefault(index, []).append(text)
        together = []
        for index, texts in kept.items():
            text = " ".join(texts)
            together.append(_titled(documents[index].title, text))
        text = "\n\n".join(together)
        seconds = time.perf_counter() - started
        return BuiltContext(text, seconds=seconds, shared=not self._uses_question)


def _titled(title: str, text: str) -> str:
    return Document(text, title).titled
