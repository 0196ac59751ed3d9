"""ECS context shaping inside an agent: results of retriever tools, and on request old turns.

A translation only: tool results and turns become documents, `ECSDocumentCompressor` decides.
"""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, NotRequired

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain.agents.middleware.types import ExtendedModelResponse, PrivateStateAttr
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    SystemMessage,
    ToolMessage,
    get_buffer_string,
)
from langchain_core.tools import StructuredTool
from langgraph.prebuilt.tool_node import ToolCallRequest, ToolRuntime
from langgraph.types import Command
from typing_extensions import override

from ecs_plugins.common.aio import run_sync
from ecs_plugins.common.config import strict_keywords
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.integrations.conversation import last_index, turns
from ecs_plugins.integrations.fields import (
    RESTORABLE,
    RESTORE_DESCRIPTION,
    RESTORE_TOOL,
    restored,
)
from ecs_plugins.langchain.compressor import ECSDocumentCompressor
from ecs_plugins.langchain.messages import is_user, text_of
from ecs_plugins.langchain.tool_results import (
    Content,
    Shaped,
    is_json,
    places_of,
    texts_of,
    whole_lines,
    with_documents,
    with_units,
)
from ecs_plugins.lm.local import as_model
from ecs_plugins.shaping.passages import UNIT_TOKENS, Unit, split_passages

ModelResult = ModelResponse[Any] | AIMessage | ExtendedModelResponse[Any]
ToolResult = ToolMessage | Command[Any]


Texts = dict[str, str]
"""Texts by id."""


def _latest(before: Texts, now: Texts) -> Texts:
    """Return the latest texts of both, as many as are held."""
    held = list({**before, **now}.items())
    return dict(held[-RESTORABLE:])


LeftOut = dict[str, list[str]]
"""Ids of the messages that begin turns left out, by the middleware's name."""
ToolCall = Callable[[ToolCallRequest], ToolResult]
AsyncToolCall = Callable[[ToolCallRequest], Awaitable[ToolResult]]
ModelCall = Callable[[ModelRequest[Any]], ModelResponse[Any]]
AsyncModelCall = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]


class ECSContextState(AgentState[Any]):
    """State of the middleware in an agent.

    Ids of the messages that begin turns left out: they stay left out, and the others stay, until
    turns are too many again. So prompts begin as those before them did, and a provider's prompt
    cache serves them. And texts that were left out of results, by id, for the tool that gives them
    back: a thread gets back what was left out of its own results alone.
    """

    ecs_left_out: NotRequired[Annotated[LeftOut, PrivateStateAttr, operator.or_]]
    ecs_dropped: NotRequired[Annotated[Texts, PrivateStateAttr, _latest]]


class ECSContextMiddleware(AgentMiddleware[ECSContextState, Any, Any]):
    """Middleware that shapes a tool's documents and long conversations for an agent.

    ```python
    agent = create_agent(model, [search_docs], middleware=[ECSContextMiddleware()])
    ```

    A tool result is shaped once, when the tool returns: documents of its artifact (as
    ``create_retriever_tool(..., response_format="content_and_artifact")`` hands them out), else,
    for tools that are named, its text cut into units. The message keeps its id and its call.

    Where a document or some lines are left out stands a mark with an id, and the agent gets a tool
    ``ecs_restore`` that gives them back. All else stays as the tool made it: what its template
    wrote around the documents, other content blocks, and JSON, of which nothing is cut out.

    With ``history_tokens``, the model sees older turns only as far as they helped with the user's
    message when turns became too many: then all of them are judged, and those that help most fill
    half of the room beside the ones that stay. It is a view: messages are not changed. A turn is
    kept or left out whole, from a user's message to the next, so no tool call is parted from its
    result; system messages and the last ``recent_turns`` turns always stay.

    Args:
        compressor: Decides what helps; by default one on the bundled model, of 5 passages.
        tools: Names of the tools whose results are shaped; None: all that return documents.
        query_argument: Argument of a tool call that holds its question; where a call has none,
            the user's latest message is the question.
        history_tokens: Tokens that the turns of a view may have in sum before old ones are judged;
            None: all turns are sent. Counted by the tokenizer of the model that judges.
        recent_turns: Turns that are always sent, the present one included.

    Raises:
        ConfigurationError: ``history_tokens`` or ``recent_turns`` is not positive, or a keyword is
            unknown.
    """

    state_schema = ECSContextState

    @strict_keywords
    def __init__(
        self,
        compressor: ECSDocumentCompressor | None = None,
        *,
        tools: Sequence[str] | None = None,
        query_argument: str = "query",
        history_tokens: int | None = None,
        recent_turns: int = 2,
    ) -> None:
        super().__init__()
        numbers = {"history_tokens": history_tokens, "recent_turns": recent_turns}
        for name, number in numbers.items():
            if number is not None and number < 1:
                raise ConfigurationError(f"{name} is {number}; it must be positive")
        if isinstance(tools, str):
            raise ConfigurationError(f"tools is a list of names; write [{tools!r}]")
        self._compressor = compressor or ECSDocumentCompressor()
        self._named = None if tools is None else frozenset(tools)
        self._query_argument = query_argument
        self._history_tokens = history_tokens
        self._recent_turns = recent_turns
        self.tools = [
            StructuredTool.from_function(
                _restore, name=RESTORE_TOOL, description=RESTORE_DESCRIPTION
            )
        ]

    @override
    def wrap_tool_call(self, request: ToolCallRequest, handler: ToolCall) -> ToolResult:
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

    @override
    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: ModelCall,
    ) -> ModelResult:
        """Call the model with a view of the turns that fit."""
        view, left_out = self._shape_history(_without_lone_tool(request))
        return self._noted(handler(view), left_out)

    @override
    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: AsyncModelCall,
    ) -> ModelResult:
        """`wrap_model_call` with the judging model off the event loop."""
        request = _without_lone_tool(request)
        if self._history_tokens is None:
            return await handler(request)
        view, left_out = await run_sync(self._shape_history, request)
        return self._noted(await handler(view), left_out)

    # Results of tools

    def _shape_result(self, request: ToolCallRequest, result: ToolResult) -> ToolResult:
        if not isinstance(result, ToolMessage) or result.status == "error":
            return result
        name = request.tool_call["name"]
        if self._named is not None and name not in self._named:
            return result
        query = self._question(request)
        if not query:
            return result
        if are_documents(result.artifact):
            return self._shape_documents(result, query)
        if self._named is None:
            return result
        shaped = self._shape_texts(result.content, query)
        return _with_restorable(result, shaped)

    def _shape_documents(self, result: ToolMessage, query: str) -> ToolResult:
        """Return a result whose documents stand in its text; as it is where none does."""
        documents: Sequence[Document] = result.artifact
        places = places_of(documents, result.content)
        if not any(places):
            return result
        kept = self._compressor.invoke({"documents": documents, "query": query})
        shaped = with_documents(result.content, documents, places, kept)
        message = result.model_copy(update={"artifact": kept})
        return _with_restorable(message, shaped)

    def _shape_texts(self, content: Content, query: str) -> Shaped:
        """Return a text, or blocks such as those of MCP tools, with the units that help."""
        units_of_texts = [self._units(text) for text in texts_of(content)]
        unit_texts = [unit.text for units in units_of_texts for unit in units]
        if len(unit_texts) < 2:
            return Shaped(content)
        kept = self._kept_indices(unit_texts, query)
        return with_units(content, units_of_texts, set(kept))

    def _units(self, text: str) -> list[Unit]:
        """Return the units of a text; none of a blank text or of JSON, which is not cut."""
        if not text.strip() or is_json(text):
            return []
        count = as_model(self._compressor.model).count_tokens
        return whole_lines(text, split_passages([text], count, UNIT_TOKENS))

    def _question(self, request: ToolCallRequest) -> str:
        argument = request.tool_call["args"].get(self._query_argument)
        if isinstance(argument, str) and argument.strip():
            return argument
        if not isinstance(request.state, dict):
            return ""
        messages = request.state.get("messages", [])
        index = last_index(messages, is_user)
        return "" if index is None else text_of(messages[index])

    # Turns

    def _shape_history(
        self,
        request: ModelRequest[Any],
    ) -> tuple[ModelRequest[Any], list[str]]:
        """Return the turns that fit, and the ids of the first messages of the others."""
        messages = request.messages
        question = last_index(messages, is_user)
        if self._history_tokens is None or question is None:
            return request, []
        parts = _parts(messages)
        gone = self._gone_before(request.state, parts)
        query = text_of(messages[question])
        if query.strip():
            gone = self._left_out(parts, gone, query, self._history_tokens)
        view: list[AnyMessage] = []
        gone_ids: list[str] = []
        for index, part in enumerate(parts):
            if index in gone:
                gone_ids.append(part[0].id or "")
            else:
                view += part
        return request.override(messages=view), gone_ids

    def _gone_before(
        self,
        state: Mapping[str, Any],
        parts: Sequence[list[AnyMessage]],
    ) -> set[int]:
        """Return indices of the turns that an earlier view has left out."""
        left_out: LeftOut = state.get("ecs_left_out") or {}
        gone_ids = left_out.get(self.name) or []
        first_ids = [part[0].id for part in parts]
        return {index for index, id in enumerate(first_ids) if id and id in gone_ids}

    def _left_out(
        self,
        parts: Sequence[list[AnyMessage]],
        gone: set[int],
        query: str,
        max_tokens: int,
    ) -> set[int]:
        """The turns to leave out: those of before, or others if the turns are too many again."""
        texts = [get_buffer_string(part, "user", "assistant") for part in parts]
        lengths = as_model(self._compressor.model).count_tokens(texts)
        total = sum(lengths)
        if total - sum(lengths[index] for index in gone) <= max_tokens:
            return gone
        old = parts[: -self._recent_turns]
        judged = [index for index, part in enumerate(old) if not _instructs(part)]
        always = total - sum(lengths[index] for index in judged)
        room = (max_tokens - always) // 2
        kept: list[int] = []
        if judged and room > 0:
            judged_texts = [texts[index] for index in judged]
            kept = self._kept_indices(judged_texts, query, room)
        return set(judged) - {judged[index] for index in kept}

    def _noted(self, response: ModelResponse[Any], left_out: list[str]) -> ModelResult:
        if self._history_tokens is None:
            return response
        update = {"ecs_left_out": {self.name: left_out}}
        command: Command[Any] = Command(update=update)
        return ExtendedModelResponse(model_response=response, command=command)

    def _kept_indices(
        self,
        texts: Sequence[str],
        query: str,
        max_tokens: int | None = None,
    ) -> list[int]:
        """Return indices of the texts that help, in order. A blank text is left out."""
        compressor = self._compressor
        if max_tokens is not None:
            limit = min(max_tokens, compressor.config.max_tokens or max_tokens)
            config = compressor.config.replace(max_tokens=limit)
            compressor = compressor.model_copy(update={"config": config})
        documents = []
        for index, text in enumerate(texts):
            if text.strip():
                documents.append(Document(text, id=str(index)))
        kept = compressor.invoke({"documents": documents, "query": query})
        return [int(document.id or 0) for document in kept]


def are_documents(artifact: object) -> bool:
    """Return True if a tool's artifact has at least one document and nothing else."""
    if not isinstance(artifact, list | tuple) or not artifact:
        return False
    return all(isinstance(each, Document) for each in artifact)


def _parts(messages: Sequence[AnyMessage]) -> list[list[AnyMessage]]:
    """Return the messages, turn by turn."""
    return [[messages[index] for index in turn] for turn in turns(messages, is_user)]


def _instructs(part: Sequence[AnyMessage]) -> bool:
    """Return True if there is a system message."""
    return any(isinstance(message, SystemMessage) for message in part)


def _with_restorable(result: ToolMessage, shaped: Shaped) -> ToolResult:
    """Return the shaped result, with the dropped text in the agent's state."""
    message = result.model_copy(update={"content": shaped.content})
    if not shaped.left_out:
        return message
    update = {"messages": [message], "ecs_dropped": dict(shaped.left_out)}
    return Command(update=update)


def _restore(runtime: ToolRuntime[Any, Any], id: str = "") -> str:
    """Return dropped text of this thread."""
    dropped: Texts = runtime.state.get("ecs_dropped") or {}
    return restored(dropped, id)


def _without_lone_tool(request: ModelRequest[Any]) -> ModelRequest[Any]:
    """The request without the restoring tool where there is no other, so nothing to restore."""
    names = [getattr(tool, "name", None) for tool in request.tools]
    if names == [RESTORE_TOOL]:
        return request.override(tools=[])
    return request
