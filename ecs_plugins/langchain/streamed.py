"""A streamed answer: passed on piece by piece, whole at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk

from ecs_plugins.integrations.citing import Attributed
from ecs_plugins.integrations.fields import METADATA_KEY
from ecs_plugins.langchain.cited import as_message, citations_of, within

_INDEX = 0  # of the one block that pieces of plain text become


class StreamedAnswer:
    """Collects the pieces of mappings of which one key is an answer.

    Pieces of text become blocks of one message, so that citations can be added to them.

    Args:
        key: The key of the answer.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._message: AIMessageChunk | None = None
        self.whole: dict[str, Any] = {}

    def passed_on(self, piece: Mapping[str, Any]) -> dict[str, Any]:
        """Collect a piece and return it as it is passed on."""
        passed: dict[str, Any] = {}
        for key, value in piece.items():
            if key == self._key:
                passed[key] = self._answer_piece(value)
                self.whole[key] = self._message
            else:
                passed[key] = value
                self.whole[key] = _added(self.whole.get(key), value)
        return passed

    @property
    def words(self) -> str:
        """The text of the answer so far."""
        return "".join(block["text"] for block in self._text_blocks())

    def last(self, attributed: Attributed, documents: Sequence[Document]) -> AIMessageChunk:
        """Return the last piece of the answer: its citations and checks."""
        metadata: dict[str, Any] = {METADATA_KEY: attributed.details()}
        blocks: list[str | dict[Any, Any]] = []
        attribution = attributed.attribution
        if attribution is not None and attribution.cited:
            citations = citations_of(attribution, documents)
            before = 0
            for block in self._text_blocks():
                after = before + len(block["text"])
                own = within(citations, before, after)
                if own:
                    added = {"type": "text", "text": "", "index": block["index"]}
                    blocks.append({**added, "annotations": own})
                before = after
            if self._is_standard():
                metadata["output_version"] = "v1"
        return AIMessageChunk(content=blocks, response_metadata=metadata)

    def _answer_piece(self, piece: object) -> AIMessageChunk:
        chunk = _in_blocks(_as_chunk(as_message(piece)))
        if self._message is None:
            self._message = chunk
        else:
            joined = self._message + chunk
            assert isinstance(joined, AIMessageChunk)
            self._message = joined
        return chunk

    def _blocks(self) -> list[dict[str, Any]]:
        content = [] if self._message is None else self._message.content
        return [block for block in content if isinstance(block, dict)]

    def _text_blocks(self) -> list[dict[str, Any]]:
        return [block for block in self._blocks() if block.get("type") == "text"]

    def _is_standard(self) -> bool:
        """Return True if the blocks are LangChain's own but not marked so."""
        assert self._message is not None
        if "output_version" in self._message.response_metadata:
            return False
        return self._blocks() == self._text_blocks()


def _as_chunk(message: AIMessage) -> AIMessageChunk:
    if isinstance(message, AIMessageChunk):
        return message
    fields = message.model_dump(exclude={"type"})
    return AIMessageChunk(**fields)


def _in_blocks(chunk: AIMessageChunk) -> AIMessageChunk:
    """Return a piece with its text in blocks that others can be added to."""
    content = chunk.content
    given = [content] if isinstance(content, str) else content
    blocks: list[str | dict[Any, Any]] = []
    for block in given:
        if isinstance(block, str):
            if block:
                blocks.append({"type": "text", "text": block, "index": _INDEX})
        elif block.get("type") == "text":
            blocks.append({"index": _INDEX, **block})
        else:
            blocks.append(block)
    return chunk.model_copy(update={"content": blocks})


def _added(before: Any, value: Any) -> Any:
    """Return the sum of two pieces of one key, or the later one."""
    if before is None:
        return value
    try:
        return before + value
    except TypeError:
        return value
