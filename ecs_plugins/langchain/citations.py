"""What an answer rests on, as a Runnable behind any chain: its citations, in LangChain's own form.

A translation only: `ecs_plugins.shaping.attribution` decides.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
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
"""Name of the custom event that carries what became of an attribution."""

_QUESTIONS = ("question", "query", "input")
_DOCUMENTS = ("documents", "context")
ANSWER = "answer"
"""Key of the answer, in what comes in and in what goes out."""
_EXPECTED = (
    'citations take {"question": str, "documents": [Document, ...], "answer": str or AIMessage}'
)


class ECSCitations(WritableFields, AttributionFields, RunnableSerializable[Any, dict[str, Any]]):
    """Cites, for every statement of an answer, the documents that it rests on.

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
    and as extras the document's index and id, the place of the sentence in it and the
    probability. The statements, with their words that no document has, are in
    ``response_metadata["ecs"]``.

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
        """The input with its answer cited, as a traced run."""
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
        """Pass on an answer as it comes, and its citations behind it."""
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
        """An answer with its citations, outside of a chain."""
        attributed = self.attribute(question, _texts(documents), words_of(answer))
        return cited(answer, attributed, documents, marks=self.marks)

    async def acite(
        self, question: str, documents: Sequence[Document], answer: AIMessage
    ) -> AIMessage:
        """`cite` with the model off the event loop."""
        attributed = await self.aattribute(question, _texts(documents), words_of(answer))
        return cited(answer, attributed, documents, marks=self.marks)

    def _cite(self, input: Any, run_manager: CallbackManagerForChainRun) -> dict[str, Any]:
        question, documents = given_in(input)
        message = as_message(input[ANSWER])
        attributed = self.attribute(question, _texts(documents), words_of(message))
        child: RunnableConfig = {"callbacks": run_manager.get_child()}
        dispatch_custom_event(CITATIONS_EVENT, attributed.details(), config=child)
        return {**input, ANSWER: cited(message, attributed, documents, marks=self.marks)}

    async def _acite(
        self, input: Any, run_manager: AsyncCallbackManagerForChainRun
    ) -> dict[str, Any]:
        question, documents = given_in(input)
        message = as_message(input[ANSWER])
        attributed = await self.aattribute(question, _texts(documents), words_of(message))
        child: RunnableConfig = {"callbacks": run_manager.get_child()}
        await adispatch_custom_event(CITATIONS_EVENT, attributed.details(), config=child)
        return {**input, ANSWER: cited(message, attributed, documents, marks=self.marks)}

    def _stream(
        self, input: Iterator[Any], run_manager: CallbackManagerForChainRun
    ) -> Iterator[dict[str, Any]]:
        streamed = StreamedAnswer(ANSWER)
        for piece in input:
            yield streamed.passed_on(_checked(piece))
        question, documents = given_in(streamed.whole)
        attributed = self.attribute(question, _texts(documents), streamed.words)
        child: RunnableConfig = {"callbacks": run_manager.get_child()}
        dispatch_custom_event(CITATIONS_EVENT, attributed.details(), config=child)
        yield {ANSWER: streamed.last(attributed, documents)}

    async def _astream(
        self, input: AsyncIterator[Any], run_manager: AsyncCallbackManagerForChainRun
    ) -> AsyncIterator[dict[str, Any]]:
        streamed = StreamedAnswer(ANSWER)
        async for piece in input:
            yield streamed.passed_on(_checked(piece))
        question, documents = given_in(streamed.whole)
        attributed = await self.aattribute(question, _texts(documents), streamed.words)
        child: RunnableConfig = {"callbacks": run_manager.get_child()}
        await adispatch_custom_event(CITATIONS_EVENT, attributed.details(), config=child)
        yield {ANSWER: streamed.last(attributed, documents)}

    @property
    @override
    def lc_attributes(self) -> dict[str, Any]:
        """The config as plain fields, because LangChain's JSON knows nothing of it."""
        return {"config": dict(self.config)}


def given_in(input: Any) -> tuple[str, list[Document]]:
    """The question and the documents of an answer.

    Raises:
        InvalidInputError: They are missing or something else.
    """
    question = _value_in(_checked(input), _QUESTIONS)
    if not isinstance(question, str) or ANSWER not in input:
        raise InvalidInputError(f"{_EXPECTED}, got the keys {', '.join(map(str, input))}")
    given = _value_in(input, _DOCUMENTS)
    if isinstance(given, str | Document):
        given = [given]
    if not isinstance(given, Sequence):
        raise InvalidInputError(f"{_EXPECTED}, got documents of {type(given).__name__}")
    documents = [Document(each) if isinstance(each, str) else each for each in given]
    return question, list(checked_documents(documents))


def _checked(input: Any) -> Mapping[str, Any]:
    if not isinstance(input, Mapping):
        raise InvalidInputError(f"{_EXPECTED}, got {type(input).__name__}")
    return input


def _value_in(input: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The value under the first of some names that there is."""
    for name in names:
        if name in input:
            return input[name]
    return None


def _texts(documents: Sequence[Document]) -> list[str]:
    return [document.page_content for document in documents]
