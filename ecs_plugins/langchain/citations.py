"""A Runnable that adds LangChain's citations to the answer of a chain.

A translation only: `ecs_plugins.shaping.attribution` decides.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from langchain_core.callbacks import (
    AsyncCallbackManagerForChainRun,
    CallbackManagerForChainRun,
    adispatch_custom_event,
    dispatch_custom_event,
)
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.content import Citation, create_citation
from langchain_core.runnables import RunnableConfig, RunnableSerializable
from pydantic import ConfigDict
from typing_extensions import override

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.integrations.citing import Attributed, AttributionFields
from ecs_plugins.integrations.fields import METADATA_KEY
from ecs_plugins.langchain.compressor import checked_documents
from ecs_plugins.shaping.attribution.attributed import AttributedStatement
from ecs_plugins.shaping.attribution.attributed import Citation as Evidence

CITATIONS_EVENT = "ecs_citations"
"""Name of the custom event that carries an attribution."""

_QUESTIONS = ("question", "query", "input")
_DOCUMENTS = ("documents", "context")
ANSWER = "answer"
"""Key of the answer in the input and in the output."""
_EXPECTED = (
    'citations take {"question": str, "documents": [Document, ...], "answer": str or AIMessage}'
)


class ECSCitations(AttributionFields, RunnableSerializable[Any, dict[str, Any]]):
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
    the citations. If it fails or takes longer than ``budget_s``, the answer
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
        """Return the input with its answer cited, as a traced run."""
        return self._call_with_config(self._cite, input, config, **kwargs)

    @override
    async def ainvoke(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Do as `invoke`, with the model off the event loop."""
        return await self._acall_with_config(self._acite, input, config, **kwargs)

    @override
    def transform(
        self, input: Iterator[Any], config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[dict[str, Any]]:
        """Yield the pieces of an answer as they come, and then its citations."""
        yield from self._transform_stream_with_config(input, self._stream, config, **kwargs)

    @override
    async def atransform(
        self, input: AsyncIterator[Any], config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """Do as `transform`, with the model off the event loop."""
        pieces = self._atransform_stream_with_config(input, self._astream, config, **kwargs)
        async for piece in pieces:
            yield piece

    def _cite(self, input: Any, run_manager: CallbackManagerForChainRun) -> dict[str, Any]:
        asked = _asked_in(input)
        attributed = self._attributed(asked, run_manager)
        return {**input, ANSWER: _cited(asked.answer, attributed, asked.documents)}

    async def _acite(
        self, input: Any, run_manager: AsyncCallbackManagerForChainRun
    ) -> dict[str, Any]:
        asked = _asked_in(input)
        attributed = await self._aattributed(asked, run_manager)
        return {**input, ANSWER: _cited(asked.answer, attributed, asked.documents)}

    def _stream(
        self, input: Iterator[Any], run_manager: CallbackManagerForChainRun
    ) -> Iterator[dict[str, Any]]:
        whole: dict[str, Any] = {}
        for piece in input:
            yield _passed_on(piece, whole)
        asked = _asked_in(whole)
        attributed = self._attributed(asked, run_manager)
        yield {ANSWER: _last_piece(whole[ANSWER], attributed, asked.documents)}

    async def _astream(
        self, input: AsyncIterator[Any], run_manager: AsyncCallbackManagerForChainRun
    ) -> AsyncIterator[dict[str, Any]]:
        whole: dict[str, Any] = {}
        async for piece in input:
            yield _passed_on(piece, whole)
        asked = _asked_in(whole)
        attributed = await self._aattributed(asked, run_manager)
        yield {ANSWER: _last_piece(whole[ANSWER], attributed, asked.documents)}

    def _attributed(self, asked: _Asked, run_manager: CallbackManagerForChainRun) -> Attributed:
        attributed = self.attribute(asked.question, asked.texts, _words_of(asked.answer))
        config: RunnableConfig = {"callbacks": run_manager.get_child()}
        dispatch_custom_event(CITATIONS_EVENT, attributed.details(), config=config)
        return attributed

    async def _aattributed(
        self, asked: _Asked, run_manager: AsyncCallbackManagerForChainRun
    ) -> Attributed:
        attributed = await self.aattribute(asked.question, asked.texts, _words_of(asked.answer))
        config: RunnableConfig = {"callbacks": run_manager.get_child()}
        await adispatch_custom_event(CITATIONS_EVENT, attributed.details(), config=config)
        return attributed


class _Asked(NamedTuple):
    """An answer as given, with its question and the documents that it may rest on."""

    question: str
    documents: list[Document]
    answer: AIMessage

    @property
    def texts(self) -> list[str]:
        """The texts of the documents."""
        return [document.page_content for document in self.documents]


def _asked_in(input: Any) -> _Asked:
    """Return the question, the documents and the answer of an input.

    Raises:
        InvalidInputError: One of them is missing or something else.
    """
    given = _checked(input)
    question = _value_in(given, _QUESTIONS)
    documents = _value_in(given, _DOCUMENTS)
    if isinstance(documents, str | Document):
        documents = [documents]
    is_whole = isinstance(question, str) and isinstance(documents, Sequence) and ANSWER in given
    if not is_whole:
        raise InvalidInputError(f"{_EXPECTED}, got {', '.join(map(str, given))}")
    found = [Document(each) if isinstance(each, str) else each for each in documents]
    return _Asked(question, list(checked_documents(found)), _as_message(given[ANSWER]))


def _checked(input: Any) -> Mapping[str, Any]:
    if not isinstance(input, Mapping):
        raise InvalidInputError(f"{_EXPECTED}, got {type(input).__name__}")
    return input


def _value_in(input: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Return the value under the first of some names that is there."""
    return next((input[name] for name in names if name in input), None)


# Answers.


def _as_message(answer: object) -> AIMessage:
    """Return an answer as a message.

    Raises:
        InvalidInputError: It is neither a text nor a message of a model.
    """
    if isinstance(answer, str):
        return AIMessage(answer)
    if isinstance(answer, AIMessage):
        return answer
    raise InvalidInputError(
        f"an answer is a text or an AIMessage, got {type(answer).__name__}; put a StrOutputParser "
        "after the model, or nothing"
    )


def _words_of(message: AIMessage) -> str:
    """Return the text of all blocks."""
    texts = [block["text"] for block in message.content_blocks if block["type"] == "text"]
    return "".join(texts)


def _cited(
    message: AIMessage,
    attributed: Attributed,
    documents: Sequence[Document],
) -> AIMessage:
    """Return a message with citations in its blocks of text and the checks in its metadata.

    Without citations its content stays as it came.
    """
    metadata = {**message.response_metadata, METADATA_KEY: attributed.details()}
    changes: dict[str, Any] = {"response_metadata": metadata}
    blocks: list[dict[str, Any]] = [{**block} for block in message.content_blocks]
    citations = _citations_by_block(blocks, attributed, documents)
    for index, own in citations.items():
        blocks[index]["annotations"] = [*blocks[index].get("annotations", ()), *own]
    if citations:
        changes["content"] = blocks
        metadata["output_version"] = "v1"
    return message.model_copy(update=changes)


def _citations_by_block(
    blocks: Sequence[Mapping[str, Any]],
    attributed: Attributed,
    documents: Sequence[Document],
) -> dict[int, list[Citation]]:
    """Return the citations that begin in each block of text, with places in that block."""
    attribution = attributed.attribution
    found: dict[int, list[Citation]] = {}
    before = 0  # characters of the blocks before
    for index, block in enumerate(blocks):
        if attribution is None or block.get("type") != "text":
            continue
        after = before + len(block["text"])
        for statement in attribution.statements:
            if before <= statement.start < after:
                span = (statement.start - before, min(statement.end, after) - before)
                for evidence in statement.citations:
                    document = documents[evidence.passage]
                    citation = _citation(span, statement, evidence, document)
                    found.setdefault(index, []).append(citation)
        before = after
    return found


def _citation(
    span: tuple[int, int],
    statement: AttributedStatement,
    evidence: Evidence,
    document: Document,
) -> Citation:
    source = _text_in(document, "source")
    is_address = source is not None and "://" in source
    address = _text_in(document, "url") or (source if is_address else None)
    title = _text_in(document, "title") or (None if is_address else source)
    return create_citation(
        url=address,
        title=title,
        start_index=span[0],
        end_index=span[1],
        cited_text=evidence.text,
        document=evidence.passage,
        document_id=document.id,
        check=str(statement.check),
        start=evidence.start,
        end=evidence.end,
    )


def _text_in(document: Document, key: str) -> str | None:
    value = document.metadata.get(key)
    return value if isinstance(value, str) and value.strip() else None


# Streams.


def _passed_on(piece: object, whole: dict[str, Any]) -> dict[str, Any]:
    """Return a piece as it is passed on, and add it to the whole.

    Pieces of text become blocks of one message, so that citations can be added to them.
    """
    passed = dict(_checked(piece))
    if ANSWER in passed:
        passed[ANSWER] = _in_blocks(_as_message(passed[ANSWER]))
    for key, value in passed.items():
        try:
            whole[key] = whole[key] + value if key in whole else value
        except TypeError:  # the later one counts
            whole[key] = value
    return passed


def _in_blocks(message: AIMessage) -> AIMessageChunk:
    chunk = message
    if not isinstance(message, AIMessageChunk):
        chunk = AIMessageChunk(**message.model_dump(exclude={"type"}))
    content = [message.content] if isinstance(message.content, str) else message.content
    blocks: list[str | dict[Any, Any]] = []
    for block in content:
        text: dict[Any, Any] = {"type": "text", "text": block} if isinstance(block, str) else block
        if text.get("type") != "text":
            blocks.append(text)
        elif text["text"]:
            blocks.append({"index": 0, **text})
    return cast("AIMessageChunk", chunk.model_copy(update={"content": blocks}))


def _last_piece(
    answer: AIMessageChunk,
    attributed: Attributed,
    documents: Sequence[Document],
) -> AIMessageChunk:
    """Return the last piece of an answer: its citations and checks."""
    metadata: dict[str, Any] = {METADATA_KEY: attributed.details()}
    given = [block for block in answer.content if isinstance(block, dict)]
    citations = _citations_by_block(given, attributed, documents)
    blocks: list[str | dict[Any, Any]] = []
    for index, own in citations.items():
        text = {"type": "text", "text": "", "index": given[index]["index"], "annotations": own}
        blocks.append(text)
    is_marked = "output_version" in answer.response_metadata
    if citations and not is_marked and all(block.get("type") == "text" for block in given):
        metadata["output_version"] = "v1"  # the blocks are LangChain's own
    return AIMessageChunk(content=blocks, response_metadata=metadata)
