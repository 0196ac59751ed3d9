"""Turns of a LangGraph thread that a memory stores: those that the thread kept, as it kept them.

Other middlewares redact, replace, remove and summarise messages. So a run first notes its turns,
takes over every change before each call of the model, and stores them after the answer.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypedDict

from langchain_core.messages import AIMessage, AnyMessage

from ecs_plugins.integrations.notes import NoteSource
from ecs_plugins.integrations.plain import as_json, last_index
from ecs_plugins.langchain.messages import REMEMBERED, is_user, own_words, role_of
from ecs_plugins.memory.entropic import EntropicMemory
from ecs_plugins.memory.records import Memory
from ecs_plugins.memory.store.messages import NewMessage
from ecs_plugins.memory.types import Namespace

_LOOK_BACK = 256  # messages of the log in which a turn that is stored again is looked for


class Turn(TypedDict):
    """Words of the user or the assistant."""

    id: str
    role: str
    text: str
    name: str | None


class Kept(TypedDict):
    """State of a thread between the hooks of a middleware.

    Attributes:
        namespace: Namespace of the latest run; nothing of another one is stored.
        since: Id of the last message before the turns that are not stored yet.
        last: Id of the last message that a hook saw.
        summary: Id of the latest summary.
        pending: Turns of the thread that are not stored yet.
        summarised: Turns of this run that a summary has replaced.
        stored: Id in the memory and checksum of the words, by the id of the message in the thread.
        notes: Notes that a question was sent with, by the id of the message that asks. They stay
            where they were, so that a provider's prompt cache serves the next call.
    """

    namespace: list[str]
    since: str | None
    last: str | None
    summary: str | None
    pending: list[Turn]
    summarised: list[Turn]
    stored: dict[str, tuple[str, int]]
    notes: dict[str, list[NoteSource]]


def new_kept(namespace: Namespace) -> Kept:
    """Return the state of a thread that no middleware has seen."""
    return Kept(
        namespace=list(namespace),
        since=None,
        last=None,
        summary=None,
        pending=[],
        summarised=[],
        stored={},
        notes={},
    )


def begun(
    kept: Kept | None,
    messages: Sequence[AnyMessage],
    namespace: Namespace,
) -> Kept:
    """Return the state at the start of a run, with the turns that are new.

    Turns that were said under another namespace are never stored under this one.
    """
    if kept is None:
        kept = new_kept(namespace)
    if tuple(kept["namespace"]) == namespace:
        kept = {**kept, "summary": _summary(messages)}
    else:
        since = _before_the_users(kept, messages)
        fresh = new_kept(namespace)
        kept = {**fresh, "since": since, "summary": _summary(messages), "notes": kept["notes"]}
    return synced(kept, messages)


def _before_the_users(kept: Kept, messages: Sequence[AnyMessage]) -> str | None:
    """Return the id of the message before the first one that the user of this run wrote."""
    known = {kept["last"], *kept["stored"], *(turn["id"] for turn in kept["pending"])}
    seen = last_index(messages, lambda message: message.id in known)
    start = last_index(messages, is_user) if seen is None else seen + 1
    if start is None:
        start = len(messages)
    while start < len(messages) and not is_user(messages[start]):
        start += 1
    return messages[start - 1].id if start else None


def synced(
    kept: Kept,
    messages: Sequence[AnyMessage],
    structured: object = None,
) -> Kept:
    """Return the state with the turns as the thread has them now.

    A turn that has left the thread is dropped, unless a new summary has replaced it.

    Args:
        kept: The state before.
        messages: All messages of the thread.
        structured: The structured response that the last message of the model holds, if any.
    """
    start = _start(kept, messages)
    pending_by_id = {turn["id"]: turn for turn in kept["pending"]}
    present: set[str] = set()
    pending: list[Turn] = []
    answer = last_index(messages, lambda message: isinstance(message, AIMessage))
    for index, message in enumerate(messages):
        id = message.id or ""
        present.add(id)
        before = pending_by_id.get(id)
        if before is None and (index < start or id in kept["stored"]):
            continue
        turn = turn_of(message, structured if index == answer else None)
        if turn is None and role_of(message) == "tool":
            turn = before  # its structured response is no longer in the state
        if turn is not None:
            pending.append(turn)
    summary = _summary(messages)
    summarised = list(kept["summarised"])
    if summary is not None and summary != kept["summary"]:
        summarised += [turn for turn in kept["pending"] if turn["id"] not in present]
    last = messages[-1].id if messages else None
    kept = {**kept, "pending": pending, "summarised": summarised}
    return {**kept, "summary": summary, "last": last}


def _start(kept: Kept, messages: Sequence[AnyMessage]) -> int:
    """Return the index of the first message that may be new."""
    for ids in ({kept["since"]}, set(kept["stored"])):
        index = last_index(messages, lambda message, ids=ids: message.id in ids)  # type: ignore[misc]
        if index is not None:
            return index + 1
    index = last_index(messages, is_user)
    return 0 if index is None else index


def _summary(messages: Sequence[AnyMessage]) -> str | None:
    index = last_index(messages, lambda message: role_of(message) == "summary")
    return None if index is None else messages[index].id


def turn_of(message: AnyMessage, structured: object = None) -> Turn | None:
    """Return the words of the user or the assistant in a message; None if there are none."""
    role = role_of(message)
    text = own_words(message)
    if structured is not None and isinstance(message, AIMessage):
        text = _spoken(message, structured) or text
        role = "assistant" if text else role
    if role not in REMEMBERED or not text:
        return None
    return Turn(id=message.id or "", role=role, text=text, name=message.name)


def _spoken(message: AIMessage, structured: object) -> str | None:
    """Return a structured response in words; None if the message does not hold it."""
    fields = as_json(structured)
    if not message.tool_calls:
        try:
            is_held = isinstance(json.loads(message.text), dict)
        except ValueError:
            is_held = False
    else:
        name = type(structured).__name__
        is_held = any(call["name"] == name or call["args"] == fields for call in message.tool_calls)
    if not is_held or not isinstance(fields, dict):
        return None
    texts = {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in fields.items()
    }
    if len(texts) == 1:
        return next(iter(texts.values()))
    return "\n".join(f"{key}: {text}" for key, text in texts.items())


class _Change(NamedTuple):
    record: Memory
    turn: Turn | None


class ThreadLog:
    """Messages of one thread in one namespace of a memory.

    Args:
        memory: The memory.
        namespace: Namespace of the run.
        thread: Id of the thread; None where runs have none. The ids of messages are unique only
            within a thread.
        roles: Roles whose turns are stored.
    """

    def __init__(
        self,
        memory: EntropicMemory,
        namespace: Namespace,
        thread: str | None,
        roles: Collection[str],
    ) -> None:
        self._memory = memory
        self._namespace = namespace
        self._thread = thread
        self._roles = roles

    def store(self, kept: Kept, messages: Sequence[AnyMessage]) -> Kept:
        """Store the turns that are new, and take over changes of those stored before.

        A message that was edited replaces its former text, and what followed it and has left the
        thread is erased. A turn that is stored already is not stored again.
        """
        wanted = [*kept["summarised"], *kept["pending"]]
        wanted = [turn for turn in wanted if turn["role"] in self._roles]
        changes = self._changes(kept, messages)
        added: list[tuple[Turn, str]] = []
        if wanted or changes:
            log = self._log()
            new: list[Turn] = []
            for turn in wanted:
                record = log.get(turn["id"])
                if record is None or (self._thread is None and record.text != turn["text"]):
                    new.append(turn)
                else:
                    changes.append(_Change(record, turn))
            self._apply(changes)
            self._erase_left(changes, log, {message.id for message in messages})
            added = [(change.turn, change.record.id) for change in changes if change.turn]
            added += self._add(new)
        return self._with_stored(kept, messages, added)

    def _changes(self, kept: Kept, messages: Sequence[AnyMessage]) -> list[_Change]:
        """Return the stored messages whose text in the thread is another now."""
        changes: list[_Change] = []
        for message in messages:
            stored = kept["stored"].get(message.id or "")
            turn = turn_of(message)
            if stored is None or role_of(message) == "tool":
                continue
            if _checksum(turn) == stored[1]:
                continue
            record = self._memory.get(stored[0], namespace=self._namespace)
            if record is not None:
                changes.append(_Change(record, turn))
        return changes

    def _log(self) -> dict[str, Memory]:
        """Return the latest messages of the thread by their ids in it, oldest first."""
        log: dict[str, Memory] = {}
        for record in self._memory.messages(self._namespace, limit=_LOOK_BACK):
            metadata = record.metadata
            id = metadata.get("message_id")
            if isinstance(id, str) and id and metadata.get("thread_id") == self._thread:
                log[id] = record
        return log

    def _apply(self, changes: Sequence[_Change]) -> None:
        for record, turn in changes:
            if turn is None:
                self._memory.delete(record.id)
            elif turn["text"] != record.text:
                self._memory.update(record.id, text=turn["text"])

    def _erase_left(
        self,
        changes: Sequence[_Change],
        log: Mapping[str, Memory],
        present: Collection[str | None],
    ) -> None:
        """Erase the messages that followed an edited one and have left the thread."""
        if not changes or self._thread is None:
            return
        first = min(change.record.step for change in changes)
        left = [
            record.id for id, record in log.items() if record.step > first and id not in present
        ]
        if left:
            self._memory.delete(*left)

    def _add(self, turns: Sequence[Turn]) -> list[tuple[Turn, str]]:
        drafts = []
        for turn in turns:
            metadata = {"role": turn["role"], "message_id": turn["id"]}
            if turn["name"]:
                metadata["name"] = turn["name"]
            if self._thread is not None:
                metadata["thread_id"] = self._thread
            drafts.append(NewMessage(turn["text"], turn["role"], metadata))
        ids = self._memory.add(drafts, namespace=self._namespace) if drafts else []
        return list(zip(turns, ids, strict=True))

    def _with_stored(
        self,
        kept: Kept,
        messages: Sequence[AnyMessage],
        added: Sequence[tuple[Turn, str]],
    ) -> Kept:
        ids = {turn["id"]: id for turn, id in added}
        stored: dict[str, tuple[str, int]] = {}
        for message in messages:
            name = message.id or ""
            if name in ids:
                stored[name] = (ids[name], _checksum(turn_of(message)))
            elif name in kept["stored"]:
                stored[name] = kept["stored"][name]
        kept = {**kept, "stored": stored, "pending": [], "summarised": []}
        return {**kept, "since": kept["last"]}


def _checksum(turn: Turn | None) -> int:
    text = "" if turn is None else turn["text"]
    return zlib.crc32(text.encode())
