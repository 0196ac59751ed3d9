"""Entropic Memory inside an agent: recall before the model is called, remember after the answer.

A translation only: messages become questions and turns, `ecs_plugins.memory` decides.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, TypeVar

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain.agents.middleware.types import ExtendedModelResponse, PrivateStateAttr
from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.runnables.config import ensure_config
from langgraph.runtime import Runtime
from langgraph.types import Command
from typing_extensions import override

from ecs_plugins.common.aio import bridged, run_memory, run_sync
from ecs_plugins.common.config import strict_keywords
from ecs_plugins.errors import ConfigurationError, MissingExtraError, ModelNotFoundError
from ecs_plugins.integrations.conversation import last_index
from ecs_plugins.integrations.namespaces import check_template, fill_namespace
from ecs_plugins.integrations.notes import (
    NoteSource,
    RecalledNote,
    TextLength,
    block_of,
    notes_again,
    without_notes,
)
from ecs_plugins.integrations.recall import RecalledBlock, RecallOptions, recall
from ecs_plugins.langchain.messages import (
    REMEMBERED,
    is_user,
    own_words,
    role_of,
    speaker_metadata,
    special_tokens_of,
    text_of,
    token_counter,
    with_note,
    without_marks_in,
)
from ecs_plugins.memory.entropic import EntropicMemory
from ecs_plugins.memory.store.messages import NewMessage
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

_LOOK_BACK = 64  # messages of the log in which a turn that is saved again is looked for


Notes = list[NoteSource]
"""What the notes of one question are made of again."""
NotesOfMessages = dict[str, Notes]
"""The notes of questions, by the id of the message that asks."""

ValueT = TypeVar("ValueT")
ByName = dict[str, ValueT]
"""Something of each middleware, by its name."""

ModelCall = Callable[[ModelRequest[Any]], ModelResponse[Any]]
AsyncModelCall = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]


class EntropicMemoryState(AgentState[Any]):
    """What the middleware keeps in an agent's state between its hooks.

    By the middleware's name: an agent may have one memory of its user and one of the team. The
    turns that a run began with are kept until they are remembered, because other middlewares
    replace them by summaries; of the rest, ids only. Of each question, the notes that it was sent
    with: they stay where they were said, so that prompts begin as those before them did and a
    provider's prompt cache serves them.
    """

    ecs_notes: NotRequired[Annotated[ByName[NotesOfMessages], PrivateStateAttr, operator.or_]]
    ecs_remembered: NotRequired[Annotated[ByName[str], PrivateStateAttr, operator.or_]]
    ecs_heard: NotRequired[Annotated[ByName[list[AnyMessage]], PrivateStateAttr, operator.or_]]


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
            the block, ``filter``, ``also`` (further namespaces), ``shaper`` (a second stage).
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
        ConfigurationError: A label mixes a field with text, or a role, ``on_error`` or a keyword is
            unknown. In a run: nobody says whose memory it is; the model is not called then.
    """

    state_schema = EntropicMemoryState

    @strict_keywords
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
        """Note what is said, and refuse a run that does not say whose memory it uses."""
        self._namespace_of(runtime)
        return {"ecs_heard": {self.name: self._to_remember(state)}}

    @override
    def wrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: ModelCall,
    ) -> ModelResult:
        """Call the model with what is remembered about the user's latest message."""
        view, notes = self._view(request)
        return self._with_notes(handler(view), notes)

    @override
    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: AsyncModelCall,
    ) -> ModelResult:
        """`wrap_model_call` with the embedder and the database off the event loop."""
        run = run_memory if self._options.shaper is None else run_sync
        view, notes = await run(self._view, request)
        return self._with_notes(await handler(view), notes)

    def recalled(self, state: Mapping[str, Any], runtime: Runtime[Any]) -> list[RecalledNote]:
        """The notes that the thread's prompts were given, as far as they are still there.

        Only those of the memory that the run uses: a thread may have had other users before.
        """
        namespaces = {self._namespace_of(runtime), *self._options.also}
        notes: list[RecalledNote] = []
        for sources in self._notes_of(state).values():
            notes += notes_again(self.memory, sources, namespaces)
        return notes

    @override
    def after_agent(
        self, state: EntropicMemoryState, runtime: Runtime[Any]
    ) -> dict[str, Any] | None:
        """Remember the turns of this run; if that fails, ``on_error`` decides."""
        messages = state["messages"]
        namespace = self._namespace_of(runtime)
        try:
            self._remember(state, runtime, namespace)
        except _ALWAYS_RAISED:
            raise
        except Exception:
            if self._on_error == "raise":
                raise
            _log.warning("the run has its answer but could not be remembered", exc_info=True)
            return {"ecs_heard": {self.name: self._to_remember(state)}}
        update: dict[str, Any] = {"ecs_heard": {self.name: []}}
        last_id = messages[-1].id if messages else None
        if last_id:
            update["ecs_remembered"] = {self.name: last_id}
        return update

    aafter_agent = bridged(after_agent)

    def _remember(
        self, state: EntropicMemoryState, runtime: Runtime[Any], namespace: Namespace
    ) -> None:
        fresh = self._to_remember(state)
        self._observe(state, fresh, namespace)
        turns = self._turns(fresh, runtime)
        if not turns:
            return
        # A run that was resumed or repeated has saved some of them before.
        log = self.memory.messages(namespace, limit=_LOOK_BACK)
        saved_ids = {message.metadata.get("message_id") for message in log}
        new = []
        for turn in turns:
            message_id = turn.metadata["message_id"]
            if not message_id or message_id not in saved_ids:
                new.append(turn)
        if new:
            self.memory.add(new, namespace=namespace)

    def _observe(
        self, state: EntropicMemoryState, fresh: Sequence[AnyMessage], namespace: Namespace
    ) -> None:
        """Tell the memory what was answered with what it had recalled."""
        messages = state["messages"]
        question = _question(fresh) or _question(messages)
        if question is None or role_of(messages[-1]) != "assistant":
            return
        words = own_words(question)
        answer = own_words(messages[-1])
        notes_of_messages = self._notes_of(state)
        notes = notes_of_messages.get(question.id or "", [])
        if words and answer and notes:
            self.memory.observe(words, answer, namespace=namespace)

    def _turns(
        self,
        fresh: Sequence[AnyMessage],
        runtime: Runtime[Any],
    ) -> list[NewMessage]:
        """What was said by those who are remembered."""
        info = runtime.execution_info
        thread_id = None if info is None else info.thread_id
        turns = []
        for message in fresh:
            role = role_of(message)
            text = own_words(message)
            if role in self._roles and text:
                metadata = speaker_metadata(message)
                metadata["message_id"] = message.id or ""
                if thread_id:
                    metadata["thread_id"] = thread_id
                turns.append(NewMessage(text, role, metadata))
        return turns

    def _to_remember(self, state: Mapping[str, Any]) -> list[AnyMessage]:
        """What was said since the last run that was remembered, summarised since or not.

        That is after the last message remembered, if it is there, else since the user's latest
        message; where a summary has taken the place of both, all of the run.
        """
        messages = state["messages"]
        heard_by_name: ByName[list[AnyMessage]] = state.get("ecs_heard") or {}
        heard = heard_by_name.get(self.name) or []
        heard_ids = {message.id for message in heard}
        start = self._start(state)
        if start is None and not heard:
            return []
        fresh = messages[start:]  # all of them where a summary has taken the place of both
        spoken = [message for message in fresh if own_words(message)]
        new = [message for message in spoken if message.id not in heard_ids]
        return [*heard, *new]

    def _start(self, state: Mapping[str, Any]) -> int | None:
        """Index of the first message that may be new; None if nothing shows it."""
        messages = state["messages"]
        last_ids: ByName[str] = state.get("ecs_remembered") or {}
        last_id = last_ids.get(self.name)
        if last_id:
            remembered = last_index(messages, lambda message: message.id == last_id)
            if remembered is not None:
                return remembered + 1
        return last_index(messages, is_user)

    def _namespace_of(self, runtime: Runtime[Any] | None) -> Namespace:
        if callable(self._namespace):
            assert runtime is not None
            return checked(self._namespace(runtime))
        context = None if runtime is None else runtime.context
        return fill_namespace(self._namespace, context, ensure_config()["configurable"])

    def _notes_of(self, state: Mapping[str, Any]) -> NotesOfMessages:
        notes_by_name: ByName[NotesOfMessages] = state.get("ecs_notes") or {}
        return dict(notes_by_name.get(self.name) or {})

    def _view(
        self,
        request: ModelRequest[Any],
    ) -> tuple[ModelRequest[Any], NotesOfMessages]:
        """The messages with what is recalled, and the notes of each question that is among them."""
        namespace = self._namespace_of(request.runtime)
        messages = request.messages
        notes = self._notes_of(request.state)
        view, visible = self._with_earlier_notes(request, notes, namespace)
        question = _question(messages) or _question(self._to_remember(request.state))
        index = _place_of(question, messages)
        if question is None or index is None:
            return request.override(messages=view), notes
        question_id = question.id or ""
        if question_id in notes and messages[index] is question:
            return request.override(messages=view), notes
        block = self._recalled(request, question, namespace, visible)
        if block.text:
            view[index] = with_note(view[index], block.text)
        kept = _of_present(notes, messages)
        kept[question_id] = list(block.sources)
        return request.override(messages=view), kept

    def _recalled(
        self,
        request: ModelRequest[Any],
        question: AnyMessage,
        namespace: Namespace,
        visible: set[str],
    ) -> RecalledBlock:
        """What is remembered about a question and not visible anyway."""
        return recall(
            self.memory,
            own_words(question) or "",
            namespace,
            self._options,
            self._count_tokens or token_counter(request.model),
            # A question is asked once, however often tools make the agent come back to it.
            record=question is request.messages[-1],
            visible=visible,
            special_tokens=special_tokens_of(request.model),
        )

    def _with_earlier_notes(
        self,
        request: ModelRequest[Any],
        notes: NotesOfMessages,
        namespace: Namespace,
    ) -> tuple[list[AnyMessage], set[str]]:
        """The messages, each behind the notes that it was sent with, and all texts they show."""
        # What another middleware has changed since may be a note of its own.
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
            sources = notes.get(message.id or "", [])
            again = notes_again(self.memory, sources, namespaces)
            for note in again:
                visible.update(note.texts())
            block = block_of(again, special_tokens)
            view.append(with_note(shown, block) if block else shown)
        return view, visible

    def _with_notes(self, result: ModelResponse[Any], notes: NotesOfMessages) -> ModelResult:
        update = {"ecs_notes": {self.name: notes}}
        command: Command[Any] = Command(update=update)
        return ExtendedModelResponse(model_response=result, command=command)


def _question(messages: Sequence[AnyMessage]) -> AnyMessage | None:
    """The user's latest message."""
    index = last_index(messages, is_user)
    return None if index is None else messages[index]


def _place_of(question: AnyMessage | None, messages: Sequence[AnyMessage]) -> int | None:
    """Index of a question, or of the summary that may have taken its place."""
    index = last_index(messages, lambda message: message is question)
    if index is None:
        return last_index(messages, lambda message: role_of(message) == "summary")
    return index


def _of_present(notes: NotesOfMessages, messages: Sequence[AnyMessage]) -> NotesOfMessages:
    """The notes of messages that are still there."""
    present_ids = {message.id for message in messages}
    return {id: sources for id, sources in notes.items() if id in present_ids}
