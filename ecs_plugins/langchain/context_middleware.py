"""ECS context shaping inside an agent: the results of its tools.

A translation only: tool results become documents, `ECSDocumentCompressor` decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, NotRequired

from langchain.agents.middleware import AgentMiddleware, AgentState
from langchain.agents.middleware.types import PrivateStateAttr
from langchain_core.documents import Document
from langchain_core.messages import ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.prebuilt.tool_node import ToolCallRequest, ToolRuntime
from langgraph.types import Command
from typing_extensions import override

from ecs_plugins.common.aio import run_sync
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.integrations.fields import METADATA_KEY
from ecs_plugins.integrations.plain import last_index
from ecs_plugins.langchain.compressor import ECSDocumentCompressor
from ecs_plugins.langchain.messages import is_user, text_of
from ecs_plugins.langchain.tool_results import (
    RESTORABLE,
    RESTORE_DESCRIPTION,
    RESTORE_TOOL,
    Part,
    document_parts,
    is_json,
    kept_part,
    line_parts,
    restored,
    texts_of,
    with_parts,
)
from ecs_plugins.shaping.passages import UNIT_TOKENS, split_passages

ToolResult = ToolMessage | Command[Any]
ToolCall = Callable[[ToolCallRequest], ToolResult]
AsyncToolCall = Callable[[ToolCallRequest], Awaitable[ToolResult]]
Texts = dict[str, str]
"""Texts by id."""


def _latest(
    before: Texts,
    now: Texts,
) -> Texts:
    """Return the latest texts of both, as many as are held."""
    held = list({**before, **now}.items())
    return dict(held[-RESTORABLE:])


class ECSContextState(AgentState[Any]):
    """State of the middleware in an agent: texts that were left out of results, by id.

    So the tool that gives them back gives a thread texts of its own results alone.
    """

    ecs_dropped: NotRequired[Annotated[Texts, PrivateStateAttr, _latest]]


class ECSContextMiddleware(AgentMiddleware[ECSContextState, Any, Any]):
    """Middleware that shapes the results of an agent's tools.

    ```python
    agent = create_agent(model, [search_docs], middleware=[ECSContextMiddleware()])
    ```

    A tool result is shaped once, when the tool returns: documents of its artifact (as
    ``create_retriever_tool(..., response_format="content_and_artifact")`` hands them out), else,
    for tools that are named, its text cut into lines. The message keeps its id and its call.

    Where a document or some lines are left out stands a mark with an id, and the agent gets a tool
    ``ecs_restore`` that gives them back. All else stays as the tool made it: what its template
    wrote around the documents, other content blocks, and JSON, of which nothing is cut out.

    Args:
        compressor: Decides what helps; by default one on the bundled model, of 5 passages.
        tools: Names of the tools whose results are shaped; None: all that return documents.

    Raises:
        ConfigurationError: ``tools`` is a text.
    """

    state_schema = ECSContextState

    def __init__(
        self,
        compressor: ECSDocumentCompressor | None = None,
        *,
        tools: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        if isinstance(tools, str):
            raise ConfigurationError(f"tools is a list of names; write [{tools!r}]")
        self._compressor = compressor or ECSDocumentCompressor()
        self._named = None if tools is None else frozenset(tools)
        self.tools = [
            StructuredTool.from_function(
                _restore, name=RESTORE_TOOL, description=RESTORE_DESCRIPTION
            )
        ]

    @override
    def wrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: ToolCall,
    ) -> ToolResult:
        """Run the tool and shape its result."""
        return self._shape_result(request, handler(request))

    @override
    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: AsyncToolCall,
    ) -> ToolResult:
        """Run the tool and shape its result, with the model off the event loop."""
        return await run_sync(self._shape_result, request, await handler(request))

    def _shape_result(
        self,
        request: ToolCallRequest,
        result: ToolResult,
    ) -> ToolResult:
        if not isinstance(result, ToolMessage) or result.status == "error":
            return result
        name = request.tool_call["name"]
        if self._named is not None and name not in self._named:
            return result
        query = self._question(request)
        if not query:
            return result
        if _are_documents(result.artifact):
            found = document_parts(result.artifact, result.content)
            return self._shaped(result, result.artifact, found, query)
        lines = [] if self._named is None else self._lines(result)
        if len(lines) < 2:
            return result
        return self._shaped(result, [Document(line.stays) for line in lines], lines, query)

    def _shaped(
        self,
        result: ToolMessage,
        documents: Sequence[Document],
        parts: Sequence[Part | None],
        query: str,
    ) -> ToolResult:
        """Return a result whose parts are kept as their documents are, as it is without parts."""
        if not any(parts):
            return result
        kept = self._compressor.invoke({"documents": documents, "query": query})
        by_rank = {document.metadata[METADATA_KEY]["original_rank"]: document for document in kept}
        shown = [kept_part(part, by_rank.get(rank)) for rank, part in enumerate(parts, 1) if part]
        content, left_out = with_parts(result.content, shown)
        artifact = kept if documents is result.artifact else result.artifact
        message = result.model_copy(update={"content": content, "artifact": artifact})
        if not left_out:
            return message
        return Command(update={"messages": [message], "ecs_dropped": left_out})

    def _lines(
        self,
        result: ToolMessage,
    ) -> list[Part]:
        """Return the lines of a result, but none of JSON, which is not cut."""
        count = self._compressor.scoring_model().count_tokens
        lines: list[Part] = []
        for number, text in enumerate(texts_of(result.content)):
            if text.strip() and not is_json(text):
                lines += line_parts(number, text, split_passages([text], count, UNIT_TOKENS))
        return lines

    def _question(self, request: ToolCallRequest) -> str:
        """Return the argument ``query`` of a call, or else the user's latest message."""
        argument = request.tool_call["args"].get("query")
        if isinstance(argument, str) and argument.strip():
            return argument
        if not isinstance(request.state, dict):
            return ""
        messages = request.state.get("messages", [])
        index = last_index(messages, is_user)
        return "" if index is None else text_of(messages[index])


def _are_documents(artifact: object) -> bool:
    """Return True if a tool's artifact has at least one document and nothing else."""
    if not isinstance(artifact, list | tuple) or not artifact:
        return False
    return all(isinstance(each, Document) for each in artifact)


def _restore(
    runtime: ToolRuntime[Any, Any],
    id: str = "",
) -> str:
    """Return dropped text of this thread."""
    return restored(runtime.state.get("ecs_dropped") or {}, id)
