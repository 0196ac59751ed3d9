"""Answers as LangChain's messages: what they say, and the citations that are written beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.messages.content import Citation, ContentBlock, create_citation

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.integrations.citing import Attributed
from ecs_plugins.integrations.fields import METADATA_KEY
from ecs_plugins.integrations.notes import NoteSource
from ecs_plugins.langchain.changed import Block
from ecs_plugins.langchain.history import UNMARKED, as_written
from ecs_plugins.shaping.attribution.cited import AttributedStatement
from ecs_plugins.shaping.attribution.cited import Citation as Evidence
from ecs_plugins.shaping.attribution.marks import Edit, edited, moved
from ecs_plugins.shaping.attribution.result import Attribution

_OF_OURS = "probability"
"""Among the extras of a citation, what tells that it was made here."""
_PLAIN = {"type", "text", "id", "index"}
"""Keys of a block that is a text and nothing else."""


def as_message(answer: object) -> AIMessage:
    """An answer as a message.

    Raises:
        InvalidInputError: It is neither a text nor a message of a model.
    """
    if isinstance(answer, str):
        return AIMessage(answer)
    if isinstance(answer, AIMessage):
        return answer
    raise InvalidInputError(
        f"an answer is a text or an AIMessage, got {type(answer).__name__}; put a StrOutputParser "
        "behind the model, or nothing"
    )


def words_of(message: AIMessage) -> str:
    """The text that citations are about: that of all its blocks."""
    return "".join(_texts(message.content_blocks))


def cited(
    message: AIMessage,
    attributed: Attributed,
    documents: Sequence[Document],
    *,
    marks: bool = False,
) -> AIMessage:
    """A message with citations in its blocks of text, and what became of it in its metadata.

    Without citations its content is as it came.
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
    """LangChain's citations, whose places are those of the text after the changes."""
    citations: list[Citation] = []
    for statement in attribution.statements:
        for evidence in statement.citations:
            document = documents[evidence.passage]
            citations.append(_citation(statement, evidence, document, edits))
    return citations


def without_citations(message: AIMessage) -> AIMessage:
    """A message as its model wrote it: without the citations that were made here.

    So a model is sent its own words again, and nothing that its provider does not know.
    """
    if METADATA_KEY not in message.response_metadata or isinstance(message.content, str):
        return message
    blocks = [_without_own(block) for block in message.content]
    first = blocks[0]
    is_plain = len(blocks) == 1 and isinstance(first, dict) and set(first) <= _PLAIN
    content = as_written(message) if is_plain else blocks
    return message.model_copy(update={"content": content})


def shares_in(message: AnyMessage, notes: Sequence[NoteSource]) -> dict[str, float] | None:
    """How much each note did for an answer: its best citation; None where none were looked for."""
    details = message.response_metadata.get(METADATA_KEY)
    if not isinstance(details, dict) or "statements" not in details:
        return None
    best: dict[str, float] = {}
    blocks: list[Any] = [*message.content_blocks]
    for block in blocks:
        for annotation in block.get("annotations", ()):
            extras = annotation.get("extras", {})
            id = extras.get("document_id")
            if id is not None:
                best[id] = max(best.get(id, 0.0), extras.get(_OF_OURS, 0.0))
    shares: dict[str, float] = {}
    for note in notes:
        shares[note["id"]] = max((best.get(id, 0.0) for id in note["quotes"]), default=0.0)
    return shares


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
        cited_text=evidence.quote,
        document=evidence.passage,
        document_id=document.id,
        probability=evidence.probability,
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
    """Blocks of which each one of text has the citations that begin in it."""
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
    """The changes of a part of a text, in places of that part."""
    own = [edit for edit in edits if start <= edit.start and edit.end <= end]
    return [Edit(edit.start - start, edit.end - start, edit.text) for edit in own]


def within(citations: Sequence[Citation], start: int, end: int) -> list[Citation]:
    """The citations that begin in a part of a text, in places of that part."""
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


def _without_own(block: Block) -> Block:
    if isinstance(block, str):
        return block
    annotations = block.get("annotations")
    if not annotations:
        return block
    others = [each for each in annotations if _OF_OURS not in each.get("extras", {})]
    rest = {name: value for name, value in block.items() if name != "annotations"}
    return {**rest, "annotations": others} if others else rest
