"""A Runnable that adds LangChain's citations to the answer of a chain.

A translation only: `ecs_plugins.shaping.attribution` decides.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForChainRun,
    CallbackManagerForChainRun,
    adispatch_custom_event,
    dispatch_custom_event,
)
from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig, RunnableSerializable
from pydantic import ConfigDict
from typing_extensions import override

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.integrations.citing import AttributionFields
from ecs_plugins.langchain.cited import as_message, cited, words_of
from ecs_plugins.langchain.compressor import WritableFields, checked_documents
from ecs_plugins.langchain.streamed import StreamedAnswer

CITATIONS_EVENT = "ecs_citations"
"""Name of the custom event that carries an attribution."""

_QUESTIONS = ("question", "query", "input")
_DOCUMENTS = ("documents", "context")
ANSWER = "answer"
"""Key of the answer in the input and in the output."""
_EXPECTED = (
    'citations take {"question": str, "documents": [Document, ...], "answer": str or AIMessage}'
)


class ECSCitations(WritableFields, AttributionFields, RunnableSerializable[Any, dict[str, Any]]):
    """Cites the documents that every statement of an answer rests on, and checks it.

    ```python
    chain = create_retrieval_chain(retriever, answer_chain) | ECSCitations()
    message = chain.invoke({"input": "When does the ferry leave?"})["answer"]
    message.content_blocks[0]["annotations"]  # LangChain's citations
    ```

    It takes a mapping with ``question`` (also ``query`` or ``input``), ``documents`` (also
    ``context``) and ``answer``, a text or an ``AIMessage``; all else in it is passed on. The
    ``answer`` that it gives is an ``AIMessage`` whose blocks of text have a ``Citation`` for each
    statement and document: the statement's place in the block, the sentence of the document as
    ``cited_text``, ``url`` and ``title`` by the document's metadata (``source`` stands for either),
    and as extras the document's index and id, the place of the sentence in it and the check. The
    statements, with the words that decided their checks, are in ``response_metadata["ecs"]``.

    An answer that streams is passed on as it comes and attributed when it ends: the last piece has
    the citations, and its text no marks. If it fails or takes longer than ``budget_s``, the answer
    is passed on as it came, with a warning in the log and ``error`` in its metadata.

    The fields are those of `AttributionFields`.

    Raises:
        InvalidInputError: On a call: question, documents or answer is missing or something else.
    """

    model_config = ConfigDict(protected_namespaces=())

    @override
    def invoke(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Cite the answer of an input, as a traced run."""
        return self._call_with_config(self._cite, input, config, **kwargs)

    @override
    async def ainvoke(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """`invoke` with the model off the event loop."""
        return await self._acall_with_config(self._acite, input, config, **kwargs)

    @override
    def transform(
        self, input: Iterator[Any], config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[dict[str, Any]]:
        """Pass on an answer as it comes, and its citations after it."""
        yield from self._transform_stream_with_config(input, self._stream, config, **kwargs)

    @override
    async def atransform(
        self, input: AsyncIterator[Any], config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """`transform` with the model off the event loop."""
        pieces = self._atransform_stream_with_config(input, self._astream, config, **kwargs)
        async for piece in pieces:
            yield piece

    @override
    def stream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[dict[str, Any]]:
        """`transform` of one piece."""
        yield from self.transform(iter([input]), config, **kwargs)

    @override
    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """`atransform` of one piece."""

        async def pieces() -> AsyncIterator[Any]:
            yield input

        async for piece in self.atransform(pieces(), config, **kwargs):
            yield piece

    def cite(self, question: str, documents: Sequence[Document], answer: AIMessage) -> AIMessage:
        """Cite an answer outside of a chain."""
        texts = _texts(documents)
        attributed = self.attribute(question, texts, words_of(answer))
        return cited(answer, attributed, documents, marks=self.marks)

    async def acite(
        self, question: str, documents: Sequence[Document], answer: AIMessage
    ) -> AIMessage:
        """`cite` with the model off the event loop."""
        texts = _texts(documents)
        attributed = await self.aattribute(question, texts, words_of(answer))
        return cited(answer, attributed, documents, marks=self.marks)

    def _cite(self, input: Any, run_manager: CallbackManagerForChainRun) -> dict[str, Any]:
        asked = asked_in(input)
        message = as_message(asked.answer)
        attributed = self.attribute(asked.question, asked.texts, words_of(message))
        dispatch_custom_event(CITATIONS_EVENT, attributed.details(), config=_below(run_manager))
        answer = cited(message, attributed, asked.documents, marks=self.marks)
        return {**input, ANSWER: answer}

    async def _acite(
        self, input: Any, run_manager: AsyncCallbackManagerForChainRun
    ) -> dict[str, Any]:
        asked = asked_in(input)
        message = as_message(asked.answer)
        attributed = await self.aattribute(asked.question, asked.texts, words_of(message))
        config = _below(run_manager)
        await adispatch_custom_event(CITATIONS_EVENT, attributed.details(), config=config)
        answer = cited(message, attributed, asked.documents, marks=self.marks)
        return {**input, ANSWER: answer}

    def _stream(
        self, input: Iterator[Any], run_manager: CallbackManagerForChainRun
    ) -> Iterator[dict[str, Any]]:
        streamed = StreamedAnswer(ANSWER)
        for piece in input:
            yield streamed.passed_on(_checked(piece))
        asked = asked_in(streamed.whole)
        attributed = self.attribute(asked.question, asked.texts, streamed.words)
        dispatch_custom_event(CITATIONS_EVENT, attributed.details(), config=_below(run_manager))
        yield {ANSWER: streamed.last(attributed, asked.documents)}

    async def _astream(
        self, input: AsyncIterator[Any], run_manager: AsyncCallbackManagerForChainRun
    ) -> AsyncIterator[dict[str, Any]]:
        streamed = StreamedAnswer(ANSWER)
        async for piece in input:
            yield streamed.passed_on(_checked(piece))
        asked = asked_in(streamed.whole)
        attributed = await self.aattribute(asked.question, asked.texts, streamed.words)
        config = _below(run_manager)
        await adispatch_custom_event(CITATIONS_EVENT, attributed.details(), config=config)
        yield {ANSWER: streamed.last(attributed, asked.documents)}

    @property
    @override
    def lc_attributes(self) -> dict[str, Any]:
        """The config as plain fields, which LangChain's JSON knows."""
        return {"config": dict(self.config)}


@dataclass(frozen=True, slots=True)
class Asked:
    """An answer with its question and documents.

    Attributes:
        question: The question.
        documents: Documents that the answer may rest on.
        answer: The answer as given.
    """

    question: str
    documents: list[Document]
    answer: object

    @property
    def texts(self) -> list[str]:
        """The texts of the documents."""
        return _texts(self.documents)


def asked_in(input: Any) -> Asked:
    """Return the question, the documents and the answer of an input.

    Raises:
        InvalidInputError: One of them is missing or something else.
    """
    given = _checked(input)
    question = _value_in(given, _QUESTIONS)
    if not isinstance(question, str) or ANSWER not in given:
        keys = ", ".join(map(str, given))
        raise InvalidInputError(f"{_EXPECTED}, got the keys {keys}")
    documents = _documents_in(given)
    return Asked(question, documents, given[ANSWER])


def _documents_in(input: Mapping[str, Any]) -> list[Document]:
    given = _value_in(input, _DOCUMENTS)
    if isinstance(given, str | Document):
        given = [given]
    if not isinstance(given, Sequence):
        raise InvalidInputError(f"{_EXPECTED}, got documents of {type(given).__name__}")
    documents = [Document(each) if isinstance(each, str) else each for each in given]
    return list(checked_documents(documents))


def _below(
    run_manager: CallbackManagerForChainRun | AsyncCallbackManagerForChainRun,
) -> RunnableConfig:
    """Return the configuration of the parts of a run."""
    return {"callbacks": run_manager.get_child()}


def _checked(input: Any) -> Mapping[str, Any]:
    if not isinstance(input, Mapping):
        raise InvalidInputError(f"{_EXPECTED}, got {type(input).__name__}")
    return input


def _value_in(input: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Return the value under the first of some names that is there."""
    for name in names:
        if name in input:
            return input[name]
    return None


def _texts(documents: Sequence[Document]) -> list[str]:
    return [document.page_content for document in documents]
