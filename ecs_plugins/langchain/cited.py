"""Answers as LangChain's messages with citations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langchain_core.messages.content import Citation, ContentBlock, create_citation

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.integrations.citing import Attributed
from ecs_plugins.integrations.fields import METADATA_KEY
from ecs_plugins.langchain.messages import UNMARKED
from ecs_plugins.shaping.attribution.attributed import AttributedStatement, Attribution
from ecs_plugins.shaping.attribution.attributed import Citation as Evidence
from ecs_plugins.shaping.attribution.statements import Edit, edited, moved


def as_message(answer: object) -> AIMessage:
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


def words_of(message: AIMessage) -> str:
    """Return the text of all blocks."""
    return "".join(_texts(message.content_blocks))


def cited(
    message: AIMessage,
    attributed: Attributed,
    documents: Sequence[Document],
    *,
    marks: bool = False,
) -> AIMessage:
    """Return a message with citations in its blocks of text and the checks in its metadata.

    Without citations its content stays as it came.
    """
    details = attributed.details()
    metadata = {**message.response_metadata, METADATA_KEY: details}
    changes: dict[str, Any] = {"response_metadata": metadata}
    attribution = attributed.attribution
    if attribution is not None and attribution.cited:
        edits = attribution.mark_edits() if marks else []
        if edits:
            details[UNMARKED] = attribution.answer
        citations = citations_of(attribution, documents, edits)
        changes["content"] = _with_citations(message.content_blocks, citations, edits)
        metadata["output_version"] = "v1"
    return message.model_copy(update=changes)


def citations_of(
    attribution: Attribution, documents: Sequence[Document], edits: Sequence[Edit] = ()
) -> list[Citation]:
    """Return LangChain's citations, with places in the text after the edits."""
    citations: list[Citation] = []
    for statement in attribution.statements:
        for evidence in statement.citations:
            document = documents[evidence.passage]
            citations.append(_citation(statement, evidence, document, edits))
    return citations


def _citation(
    statement: AttributedStatement, evidence: Evidence, document: Document, edits: Sequence[Edit]
) -> Citation:
    source = _text_in(document, "source")
    is_address = source is not None and "://" in source
    address = _text_in(document, "url") or (source if is_address else None)
    title = _text_in(document, "title") or (None if is_address else source)
    return create_citation(
        url=address,
        title=title,
        start_index=moved(statement.start, edits),
        end_index=moved(statement.end, edits),
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


def _texts(blocks: Sequence[ContentBlock]) -> list[str]:
    return [block["text"] for block in blocks if block["type"] == "text"]


def _with_citations(
    blocks: Sequence[ContentBlock], citations: Sequence[Citation], edits: Sequence[Edit]
) -> list[dict[str, Any]]:
    """Return the blocks, those of text with the citations that begin in them."""
    changed: list[dict[str, Any]] = []
    before = 0  # characters of the blocks before, as they came
    for block in blocks:
        copy: dict[str, Any] = {**block}
        if block["type"] == "text":
            text = block["text"]
            after = before + len(text)
            copy["text"] = edited(text, _edits_within(edits, before, after))
            begin = moved(before, edits)
            own = within(citations, begin, begin + len(copy["text"]))
            if own:
                copy["annotations"] = [*copy.get("annotations", ()), *own]
            before = after
        changed.append(copy)
    return changed


def _edits_within(edits: Sequence[Edit], start: int, end: int) -> list[Edit]:
    """Return the edits of a part of a text, with places in that part."""
    own = [edit for edit in edits if start <= edit.start and edit.end <= end]
    return [Edit(edit.start - start, edit.end - start, edit.text) for edit in own]


def within(citations: Sequence[Citation], start: int, end: int) -> list[Citation]:
    """Return the citations that begin in a part of a text, with places in that part."""
    own: list[Citation] = []
    for citation in citations:
        first = citation["start_index"]
        if start <= first < end:
            last = min(citation["end_index"], end)
            places: Citation = {
                **citation,
                "start_index": first - start,
                "end_index": last - start,
            }
            own.append(places)
    return own
