"""What an agent's answer rests on: what its tools returned, and what its memories recalled.

A translation only: results of tools and notes become documents, `ECSCitations` cites them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langgraph.runtime import Runtime
from typing_extensions import override

from ecs_plugins.common.aio import run_memory
from ecs_plugins.common.config import strict_keywords
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.integrations.conversation import last_index
from ecs_plugins.langchain.citations import ECSCitations
from ecs_plugins.langchain.cited import without_citations, words_of
from ecs_plugins.langchain.context_middleware import are_documents
from ecs_plugins.langchain.history import is_user, text_of
from ecs_plugins.langchain.memory_middleware import EntropicMemoryMiddleware, EntropicMemoryState

ModelCall = Callable[[ModelRequest[Any]], ModelResponse[Any]]
AsyncModelCall = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]


class _Answered(NamedTuple):
    """An answer that can be cited."""

    question: str
    documents: list[Document]
    message: AIMessage


class ECSCitationMiddleware(AgentMiddleware[EntropicMemoryState, Any, Any]):
    """Cites, for every statement of an agent's answer, what its tools and memories brought.

    ```python
    memory = EntropicMemoryMiddleware(store, namespace=("memories", "{user_id}"))
    agent = create_agent(
        model, [search], middleware=[memory, ECSCitationMiddleware(memories=[memory])]
    )
    ```

    When the model has answered and calls no tool, its message gets citations as `ECSCitations`
    writes them. Cited are documents of tools' artifacts, else the text of what tools returned, and
    the notes of the memories that are named; of a note, ``document_id`` is the id of what it
    quotes. Results of tools that failed are not cited. The model is sent its earlier answers
    without their citations.

    Args:
        citations: What cites; by default one on the bundled model.
        memories: The middlewares of this agent whose notes are cited, too.

    Raises:
        ConfigurationError: ``citations`` or a memory is something else, or a keyword is unknown.
    """

    # What a memory's middleware keeps of its notes.
    state_schema = EntropicMemoryState

    @strict_keywords
    def __init__(
        self,
        citations: ECSCitations | None = None,
        *,
        memories: Sequence[EntropicMemoryMiddleware] = (),
    ) -> None:
        super().__init__()
        self._citations = ECSCitations() if citations is None else citations
        if not isinstance(self._citations, ECSCitations):
            raise ConfigurationError(f"citations is an ECSCitations, got {citations!r:.80}")
        self._memories = list(memories)
        for memory in self._memories:
            if not isinstance(memory, EntropicMemoryMiddleware):
                raise ConfigurationError(
                    f"memories are the agent's EntropicMemoryMiddlewares, got {memory!r:.80}"
                )

    @override
    def wrap_model_call(self, request: ModelRequest[Any], handler: ModelCall) -> ModelResponse[Any]:
        """Call the model with its earlier answers as it wrote them."""
        return handler(_as_written(request))

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: AsyncModelCall
    ) -> ModelResponse[Any]:
        """`wrap_model_call`."""
        return await handler(_as_written(request))

    @override
    def after_model(
        self, state: EntropicMemoryState, runtime: Runtime[Any]
    ) -> dict[str, Any] | None:
        """Cite the answer, if this is one."""
        given = self._answered(state, runtime)
        if given is None:
            return None
        return {"messages": [self._citations.cite(*given)]}

    @override
    async def aafter_model(
        self, state: EntropicMemoryState, runtime: Runtime[Any]
    ) -> dict[str, Any] | None:
        """`after_model` with the model off the event loop."""
        given = await run_memory(self._answered, state, runtime)
        if given is None:
            return None
        return {"messages": [await self._citations.acite(*given)]}

    def _answered(self, state: EntropicMemoryState, runtime: Runtime[Any]) -> _Answered | None:
        """The answer with its question and what it may rest on; None if there is nothing to do."""
        messages = state["messages"]
        message = messages[-1]
        if not isinstance(message, AIMessage) or message.tool_calls:
            return None
        asked = last_index(messages, is_user)
        if asked is None or not words_of(message).strip():
            return None
        documents = _brought_by_tools(messages)
        for memory in self._memories:
            for note in memory.recalled(state, runtime):
                documents += [
                    Document(quote.text, id=quote.id, metadata={"title": memory.name})
                    for quote in note.quotes
                ]
        if not documents:
            return None
        return _Answered(text_of(messages[asked]), _different(documents), message)


def _as_written(request: ModelRequest[Any]) -> ModelRequest[Any]:
    messages: list[AnyMessage] = []
    for message in request.messages:
        own = without_citations(message) if isinstance(message, AIMessage) else message
        messages.append(own)
    return request.override(messages=messages)


def _brought_by_tools(messages: Sequence[AnyMessage]) -> list[Document]:
    """What tools returned: the documents of an artifact, else the text."""
    documents: list[Document] = []
    for message in messages:
        if not isinstance(message, ToolMessage) or message.status == "error":
            continue
        if are_documents(message.artifact):
            documents += message.artifact
            continue
        text = text_of(message)
        if text.strip():
            title = message.name or "tool"
            documents.append(Document(text, id=message.tool_call_id, metadata={"title": title}))
    return documents


def _different(documents: Sequence[Document]) -> list[Document]:
    """The first of the documents that say the same."""
    by_text: dict[str, Document] = {}
    for document in documents:
        by_text.setdefault(document.page_content.strip(), document)
    return list(by_text.values())
