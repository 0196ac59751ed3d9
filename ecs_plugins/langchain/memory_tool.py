"""Tool with which an agent creates, changes, erases and finds memories by id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.runtime import get_runtime
from pydantic import Field

from ecs_plugins.common.inert import inert
from ecs_plugins.errors import InvalidInputError, QuotaError
from ecs_plugins.integrations.namespace_templates import check_template, fill_namespace
from ecs_plugins.integrations.notes import Note
from ecs_plugins.integrations.recall import traced_recall
from ecs_plugins.langchain.memory_middleware import NamespaceSource
from ecs_plugins.memory.entropic import EntropicMemory, statements_behind
from ecs_plugins.memory.store.messages import NewMessage
from ecs_plugins.memory.store.namespaces import checked
from ecs_plugins.memory.types import Namespace

_DESCRIPTION = (
    "Create, update, delete or search long-term memories about the user. Use `create` when the "
    "user asks you to remember something, `update` when a memory is wrong, `delete` when the user "
    "asks you to forget something, and `search` to find memories and their ids. `update` and "
    "`delete` need the `id`."
)

_Action = Literal["create", "update", "delete", "search"]
_Content = Annotated[
    str | None, Field(description="Text to create or to update to, or the question to search for.")
]
_Id = Annotated[str | None, Field(description="Id of the memory to update or to delete.")]


def create_memory_tool(
    memory: EntropicMemory,
    *,
    namespace: NamespaceSource,
    k: int = 5,
    name: str = "manage_memory",
    description: str = _DESCRIPTION,
) -> BaseTool:
    """Return a tool for an agent with the arguments ``content``, ``action`` and ``id``.

    ```python
    tool = create_memory_tool(memory, namespace=("memories", "{user_id}"))
    agent = create_agent(model, [tool], context_schema=Context)
    ```

    Args:
        memory: The open memory; stays the caller's to close.
        namespace: Labels, of which ``"{user_id}"`` is filled from the run, or a function of the
            runtime, as for `EntropicMemoryMiddleware`.
        k: Memories that a search returns at most.
        name: Name of the tool.
        description: Description that the model reads.

    Raises:
        InvalidInputError: The namespace is no tuple of labels.
        ConfigurationError: A label mixes a field with text. In a run: nobody says whose memory it
            is.
    """
    template = namespace if callable(namespace) else check_template(namespace)

    def manage(content: _Content = None, action: _Action = "create", id: _Id = None) -> str:
        return _answered(lambda: _managed(memory, _namespace(template), action, content, id, k))

    return StructuredTool.from_function(
        manage, name=name, description=description, handle_tool_error=True
    )


def _namespace(template: NamespaceSource) -> Namespace:
    """Return the namespace of the run that calls the tool."""
    try:
        runtime = get_runtime()
    except RuntimeError:  # outside of a graph
        runtime = None
    if callable(template):
        assert runtime is not None
        return checked(template(runtime))
    context = None if runtime is None else runtime.context
    return fill_namespace(template, context, ensure_config().get("configurable", {}))


def _answered(call: Callable[[], str]) -> str:
    """Return the answer of a call; a refusal becomes an answer that the model can act on."""
    try:
        return call()
    except (InvalidInputError, QuotaError) as error:
        raise ToolException(str(error)) from error


def _managed(
    memory: EntropicMemory,
    namespace: Namespace,
    action: _Action,
    content: str | None,
    id: str | None,
    k: int,
) -> str:
    if action in ("update", "delete") and not id:
        raise InvalidInputError(f"{action} needs the id of a memory; search finds it")
    if action != "delete" and not (content or "").strip():
        raise InvalidInputError(f"{action} needs content")
    if action == "create":
        draft = NewMessage(content or "", "user", {"role": "user"})
        (created,) = memory.add(draft, namespace=namespace)
        return f"created memory {created}"
    if action == "search":
        return _found(memory, namespace, content or "", k)
    if action == "update":
        memory.update(id or "", text=content, namespace=namespace)
        return f"updated memory {id}"
    memory.delete(id or "", namespace=namespace)
    return f"deleted memory {id}"


def _found(memory: EntropicMemory, namespace: Namespace, question: str, k: int) -> str:
    """Return the memories about a question, each with its id, its date and its speaker."""
    notes = []
    for each in traced_recall(memory, question, namespace=namespace, k=k):
        statements = statements_behind(memory, each)
        notes.append(f"{each.id}: {Note(each.id, (statements[-1],)).shown()[2:]}")
    return inert("".join(notes)) or "nothing is remembered about it"
