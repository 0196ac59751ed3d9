"""Chats written down as JSON by OpenAI or LangChain, as messages of a memory.

Read are: lists of messages, one message or one ``{"messages": [...]}`` per line, the messages of
OpenAI's threads, an export of ChatGPT, and messages that LangChain has dumped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.drafts import role_named
from ecs_plugins.memory.store.messages import MAX_TEXT, NewMessage

_TIMES = ("at", "created_at", "create_time", "created", "timestamp", "time", "date")
_CARRIERS = ("metadata", "additional_kwargs", "response_metadata")
_ROLES = ("user", "assistant")
_FIRST_MILLISECOND = 1e11  # as seconds, the year 5138
_TOLD = "write {'role': 'user', 'content': '...', 'created_at': 1735689600}"

Fields = Mapping[str, Any]


class Chats(NamedTuple):
    """The messages of a file.

    Attributes:
        messages: Of users and assistants, in order.
        left_out: How many have another role, no text, or too long a text.
    """

    messages: list[NewMessage]
    left_out: int


def read_chats(text: str, name: str) -> Chats:
    """Return the messages of a file of chats.

    Raises:
        InvalidInputError: A record is no JSON, or no message.
    """
    messages: list[NewMessage] = []
    left_out = 0
    for place, fields in _records(text, name):
        message = _message(fields, place)
        if message is None:
            left_out += 1
        else:
            messages.append(message)
    return Chats(messages, left_out)


def _records(text: str, name: str) -> Iterator[tuple[str, Fields]]:
    """Yield each message of a file, with its place for errors."""
    try:
        whole = json.loads(text)
    except ValueError:
        whole = None
    if whole is not None:
        yield from _messages_in(whole, name)
        return
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        place = f"{name}, line {number}"
        try:
            value = json.loads(line)
        except ValueError as error:
            raise InvalidInputError(f"{place}: not JSON: {error}") from None
        yield from _messages_in(value, place)


def _messages_in(value: Any, place: str) -> Iterator[tuple[str, Fields]]:
    """Yield the messages of one message, of a conversation, or of a list of either."""
    if isinstance(value, list):
        for number, each in enumerate(value, 1):
            yield from _messages_in(each, f"{place}, record {number}")
    elif not isinstance(value, Mapping):
        raise InvalidInputError(f"{place}: {value!r:.80} is no message; {_TOLD}")
    elif isinstance(value.get("mapping"), Mapping):
        yield from _of_tree(value, place)
    elif isinstance(value.get("messages"), list):
        for each in value["messages"]:
            if isinstance(each, Mapping):
                yield place, {**_time_of(value), **each}
    elif value.get("object") == "list" and isinstance(value.get("data"), list):
        oldest_first = sorted(value["data"], key=lambda each: each.get("created_at") or 0)
        yield from ((place, each) for each in oldest_first)
    else:
        yield place, value


def _of_tree(conversation: Fields, place: str) -> Iterator[tuple[str, Fields]]:
    """Yield the messages of a ChatGPT conversation, from the root to the answer shown last."""
    nodes = conversation["mapping"]
    key = conversation.get("current_node")
    if key not in nodes:
        leaves = (name for name, node in nodes.items() if not node.get("children"))
        key = next(leaves, None)
    path: list[Fields] = []
    while key in nodes and len(path) < len(nodes):
        message = nodes[key].get("message")
        if isinstance(message, Mapping):
            path.append(message)
        key = nodes[key].get("parent")
    for message in reversed(path):
        yield place, {**_time_of(conversation), **message}


def _time_of(conversation: Fields) -> Fields:
    """Return the time of a conversation, for messages that have none."""
    given = conversation.get("create_time") or conversation.get("created_at")
    return {} if given is None else {"date": given}


def _message(fields: Fields, place: str) -> NewMessage | None:
    """Return a message of a user or an assistant; None for all else."""
    fields = {**fields, **_inner(fields)}
    role = role_named(_role(fields))
    if not isinstance(role, str) or not fields.keys() & {"content", "text"}:
        raise InvalidInputError(f"{place}: {dict(fields)!r:.80} is no message; {_TOLD}")
    text = " ".join(_texts(fields.get("content", fields.get("text")))).strip()
    if role not in _ROLES or not 0 < len(text) <= MAX_TEXT:
        return None
    metadata = {"role": role}
    name = fields.get("name")
    if isinstance(name, str) and name:
        metadata["name"] = name
    return NewMessage(text, role, metadata, at=_time(fields, place))


def _inner(fields: Fields) -> Fields:
    """Return the fields of a message that LangChain has dumped."""
    for key in ("data", "kwargs"):
        inner = fields.get(key)
        if isinstance(inner, Mapping) and "content" in inner:
            kind = inner.get("type") or fields.get("type")
            return {**inner, "type": kind}
    return {}


def _role(fields: Fields) -> object:
    author = fields.get("author")
    if isinstance(author, Mapping):
        return author.get("role")
    return fields.get("role") or fields.get("type")


def _texts(content: Any) -> Iterator[str]:
    """Yield the texts of a content: a text, blocks, or parts."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, Iterable) and not isinstance(content, Mapping):
        for each in content:
            yield from _texts(each)
    elif isinstance(content, Mapping):
        for key in ("text", "value", "parts"):
            yield from _texts(content.get(key) or ())


def _time(fields: Fields, place: str) -> float | None:
    """Return when a message was written, as Unix time; None if it does not say."""
    carriers = [fields, *(fields.get(key) for key in _CARRIERS)]
    for carrier in carriers:
        if isinstance(carrier, Mapping):
            for key in _TIMES:
                if carrier.get(key) is not None:
                    return _seconds(carrier[key], place)
    return None


def _seconds(value: object, place: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value / 1000 if value > _FIRST_MILLISECOND else float(value)
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        raise InvalidInputError(f"{place}: {value!r:.80} is no time") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()
