"""Entropic Memory inside an agent: recall before the model is called, remember after the answer.

A translation only: messages become questions and turns, `ecs_plugins.memory` decides.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain.agents.middleware.types import ExtendedModelResponse, PrivateStateAttr
from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.runnables.config import ensure_config
from langgraph.runtime import Runtime
from langgraph.types import Command
from typing_extensions import override

from ecs_plugins.common.aio import bridged, run_memory, run_sync
from ecs_plugins.errors import ConfigurationError, MissingExtraError, ModelNotFoundError
from ecs_plugins.integrations.namespace_templates import check_template, fill_namespace
from ecs_plugins.integrations.notes import (
    NoteSource,
    TextLength,
    block_of,
    notes_again,
    without_notes,
)
from ecs_plugins.integrations.plain import last_index
from ecs_plugins.integrations.recall import RecallOptions, recall
from ecs_plugins.langchain.messages import (
    REMEMBERED,
    is_user,
    role_of,
    special_tokens_of,
    text_of,
    token_counter,
    with_note,
    without_marks_in,
)
from ecs_plugins.langchain.turns import (
    Kept,
    ThreadLog,
    Turn,
    begun,
    new_kept,
    synced,
    turn_of,
)
from ecs_plugins.memory.entropic import EntropicMemory
from ecs_plugins.memory.outdating import ChatModelJudge as ChatModelJudge
from ecs_plugins.memory.store.namespaces import checked
from ecs_plugins.memory.types import Namespace

ModelResult = ModelResponse[Any] | AIMessage | ExtendedModelResponse[Any]

NamespaceSource = Sequence[str] | Callable[[Runtime[Any]], Sequence[str]]
"""Labels, of which ``"{user_id}"`` is filled from the run, or a function of the runtime, whose
labels are taken as they are. Only a function may use labels that a user has chosen."""

OnError = Literal["warn", "raise"]

_log = logging.getLogger(__name__)

_ALWAYS_RAISED = (ConfigurationError, MissingExtraError, ModelNotFoundError)
"""Faults of the set-up: a warning per run would hide them for good."""

ModelCall = Callable[[ModelRequest[Any]], ModelResponse[Any]]
AsyncModelCall = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]


class EntropicMemoryState(AgentState[Any]):
    """State of a thread, by the name of the middleware: an agent may have several memories."""

    ecs_memory: NotRequired[Annotated[dict[str, Kept], PrivateStateAttr, operator.or_]]


class EntropicMemoryMiddleware(AgentMiddleware[EntropicMemoryState, Any, Any]):
    """Gives an agent a long-term memory of its conversations with each user.

    ```python
    memory = EntropicMemory.open("agent.db")
    agent = create_agent(
        model, tools, context_schema=Context,
        middleware=[EntropicMemoryMiddleware(memory, namespace=("memories", "{user_id}"))],
    )
    agent.invoke({"messages": [...]}, context=Context(user_id="u1"))
    ```

    Before each call of the model, what is remembered about the user's latest message is put
    before that message, between marks and as data. It is a view: the state is not changed. After
    the answer, what the user and the assistant said is remembered, without recalled notes, tool
    calls, tool results and summaries, and the memory is told the answer
    (`EntropicMemory.observe`).

    Args:
        memory: The open memory; stays the caller's to close.
        namespace: Whose memory a run uses: labels, of which ``"{user_id}"`` is filled from
            ``runtime.context`` or from the run's ``configurable``, or a function of the runtime.
        recall: Settings of recall, such as ``{"k": 5}``: ``k``, ``threshold``, ``max_tokens`` of
            the block, ``filter``, ``also`` (further namespaces), ``outdated`` (``"mark"``
            or ``"hide"``) and ``shaper`` (a second stage).
        remember: Roles whose turns are remembered: ``user``, ``assistant``, both or none.
        count_tokens: Tokens of a text; by default by the tokenizer of the agent's model, or an
            upper estimate where the model has none of its own.
        on_error: What happens when a run that has its answer cannot be remembered, because the
            database or the embedder fails: ``"warn"`` logs a warning and keeps the answer, and a
            thread that is checkpointed offers the turns again after its next run; ``"raise"``
            raises. A set-up that is at fault, and a recall that fails before the answer, raise
            either way.
        name: Needed where an agent has several memories, which LangChain tells apart by it.

    Raises:
        InvalidInputError: The namespace is no tuple of labels.
        ConfigurationError: A label mixes a field with text, or a role or ``on_error`` is
            unknown. In a run: nobody says whose memory it is; the model is not called then.
    """

    state_schema = EntropicMemoryState

    def __init__(
        self,
        memory: EntropicMemory,
        *,
        namespace: NamespaceSource,
        recall: RecallOptions | Mapping[str, Any] | None = None,
        remember: Sequence[str] = ("user", "assistant"),
        count_tokens: TextLength | None = None,
        on_error: OnError = "warn",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._name = name or type(self).__name__
        if on_error not in ("warn", "raise"):
            raise ConfigurationError(f"unknown on_error {on_error!r}: use warn or raise")
        if isinstance(remember, str) or not set(remember) <= set(REMEMBERED):
            raise ConfigurationError(
                f"remember is a list of 'user' and 'assistant', got {remember!r}; what tools "
                "return is not remembered, because anybody may have written it"
            )
        self.memory = memory
        self._namespace = namespace if callable(namespace) else check_template(namespace)
        self._options = RecallOptions.from_any(recall)
        self._roles = frozenset(remember)
        self._count_tokens = count_tokens
        self._on_error = on_error

    @property
    @override
    def name(self) -> str:
        return self._name

    @override
    def before_agent(
        self, state: EntropicMemoryState, runtime: Runtime[Any]
    ) -> dict[str, Any] | None:
        """Note the new turns, and refuse a run that does not name the memory's owner."""
        namespace = self._namespace_of(runtime)
        return self._update(begun(self._kept(state), state["messages"], namespace))

    @override
    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: ModelCall,
    ) -> ModelResult:
        """Call the model with the notes about the user's latest message."""
        view, kept = self._view(request)
        return self._with_state(handler(view), kept)

    @override
    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: AsyncModelCall,
    ) -> ModelResult:
        """Do as `wrap_model_call`, with the embedder and the database off the event loop."""
        run = run_memory if self._options.shaper is None else run_sync
        view, kept = await run(self._view, request)
        return self._with_state(await handler(view), kept)

    @override
    def after_agent(
        self, state: EntropicMemoryState, runtime: Runtime[Any]
    ) -> dict[str, Any] | None:
        """Remember the turns of this run; if that fails, ``on_error`` decides."""
        messages = state["messages"]
        namespace = self._namespace_of(runtime)
        kept = self._kept(state) or new_kept(namespace)
        kept = synced(kept, messages, state.get("structured_response"))
        try:
            self._observe(kept, namespace)
            kept = self._thread_log(runtime, namespace).store(kept, messages)
        except _ALWAYS_RAISED:
            raise
        except Exception:
            if self._on_error == "raise":
                raise
            _log.warning("the run has its answer but could not be remembered", exc_info=True)
        return self._update(kept)

    aafter_agent = bridged(after_agent)

    def _thread_log(self, runtime: Runtime[Any], namespace: Namespace) -> ThreadLog:
        info = runtime.execution_info
        thread = None if info is None else info.thread_id
        return ThreadLog(self.memory, namespace, thread, self._roles)

    def _observe(self, kept: Kept, namespace: Namespace) -> None:
        """Tell the memory the answer that was given with its notes."""
        turns = [*kept["summarised"], *kept["pending"]]
        questions = [turn for turn in turns if turn["role"] == "user"]
        answer = turns[-1] if turns else None
        if not questions or answer is None or answer["role"] != "assistant":
            return
        question = questions[-1]
        notes = kept["notes"].get(question["id"], [])
        if notes:
            self.memory.observe(question["text"], answer["text"], namespace=namespace)

    def _namespace_of(self, runtime: Runtime[Any] | None) -> Namespace:
        if callable(self._namespace):
            assert runtime is not None
            return checked(self._namespace(runtime))
        context = None if runtime is None else runtime.context
        return fill_namespace(self._namespace, context, ensure_config()["configurable"])

    def _kept(self, state: Mapping[str, Any]) -> Kept | None:
        by_name: dict[str, Kept] = state.get("ecs_memory") or {}
        return by_name.get(self.name)

    def _update(self, kept: Kept) -> dict[str, Any]:
        return {"ecs_memory": {self.name: kept}}

    def _view(self, request: ModelRequest[Any]) -> tuple[ModelRequest[Any], Kept]:
        """Return the messages with notes before each question, and the state with those notes."""
        namespace = self._namespace_of(request.runtime)
        messages = request.messages
        kept = self._kept(request.state) or new_kept(namespace)
        kept = synced(kept, request.state["messages"])
        notes = kept["notes"]
        view, visible = self._with_earlier_notes(request, notes, namespace)
        question, index = _question(messages, kept)
        if question is None or index is None:
            return request.override(messages=view), kept
        is_there = messages[index].id == question["id"]
        if question["id"] in notes and is_there:
            return request.override(messages=view), kept
        block = recall(
            self.memory,
            question["text"],
            namespace,
            self._options,
            self._count_tokens or token_counter(request.model),
            # A question is asked once, however often tools make the agent come back to it.
            record=is_there and index == len(messages) - 1,
            visible=visible,
            special_tokens=special_tokens_of(request.model),
        )
        if block.text:
            view[index] = with_note(view[index], block.text)
        present = {message.id for message in messages}
        notes = {id: sources for id, sources in notes.items() if id in present}
        notes[question["id"]] = [note.source() for note in block.notes]
        return request.override(messages=view), {**kept, "notes": notes}

    def _with_earlier_notes(
        self,
        request: ModelRequest[Any],
        notes: Mapping[str, Sequence[NoteSource]],
        namespace: Namespace,
    ) -> tuple[list[AnyMessage], set[str]]:
        """Return the messages, each after the notes that it was sent with, and all their texts."""
        # A message that another middleware has changed since may hold notes of its own.
        given = request.state["messages"]
        contents = {message.id: message.content for message in given}
        namespaces = {namespace, *self._options.also}
        special_tokens = special_tokens_of(request.model)
        view = []
        visible = set()
        for message in request.messages:
            own = without_notes(text_of(message))
            if own:
                visible.add(own)
            shown = message
            if message.content == contents.get(message.id):
                shown = without_marks_in(message)
            again = notes_again(self.memory, notes.get(message.id or "", []), namespaces)
            for note in again:
                visible.update(statement.text for statement in note.statements)
            block = block_of(again, special_tokens)
            view.append(with_note(shown, block) if block else shown)
        return view, visible

    def _with_state(self, result: ModelResponse[Any], kept: Kept) -> ModelResult:
        command: Command[Any] = Command(update=self._update(kept))
        return ExtendedModelResponse(model_response=result, command=command)


def _question(messages: Sequence[AnyMessage], kept: Kept) -> tuple[Turn | None, int | None]:
    """Return the user's latest words, and the index of their message or of its summary."""
    index = last_index(messages, is_user)
    if index is not None:
        return turn_of(messages[index]), index
    turns = [turn for turn in kept["summarised"] if turn["role"] == "user"]
    index = last_index(messages, lambda message: role_of(message) == "summary")
    return (turns[-1] if turns else None), index
