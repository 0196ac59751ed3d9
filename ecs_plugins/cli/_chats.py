"""Chats written down as JSON by OpenAI or LangChain, as messages of a memory.

Read are: lists of messages, one message or one ``{"messages": [...]}`` per line, an export of
ChatGPT, and messages that LangChain has dumped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from ecs_plugins.cli._records import json_records
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.drafts import role_named, text_of
from ecs_plugins.memory.store.messages import MAX_TEXT, NewMessage

_TIMES = ("created_at", "create_time", "timestamp", "date")
_CARRIERS = ("additional_kwargs", "response_metadata")
_ROLES = ("user", "assistant")
_TOLD = "write {'role': 'user', 'content': '...', 'created_at': 1735689600}"
_MOMENT = TypeAdapter(datetime)

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
    for place, record in json_records(text, name):
        for fields in _messages_in(record, place):
            message = _message(fields, place)
            if message is None:
                left_out += 1
            else:
                messages.append(message)
    return Chats(messages, left_out)


def _messages_in(value: Any, place: str) -> Iterator[Fields]:
    """Yield the messages of one message, of a conversation, or of a list of either."""
    if isinstance(value, list):
        for each in value:
            yield from _messages_in(each, place)
    elif not isinstance(value, Mapping):
        raise InvalidInputError(f"{place}: {value!r:.80} is no message; {_TOLD}")
    elif isinstance(value.get("mapping"), Mapping):
        yield from _of_tree(value)
    elif isinstance(value.get("messages"), list):
        for each in value["messages"]:
            if isinstance(each, Mapping):
                yield {"date": value.get("created_at"), **each}
    else:
        yield value


def _of_tree(conversation: Fields) -> Iterator[Fields]:
    """Yield the messages of a ChatGPT conversation, from the root to the answer shown last."""
    nodes = conversation["mapping"]
    key = conversation.get("current_node")
    path: list[Fields] = []
    while key in nodes and len(path) < len(nodes):
        message = nodes[key].get("message")
        path += [message] if isinstance(message, Mapping) else []
        key = nodes[key].get("parent")
    for message in reversed(path):
        yield {"date": conversation.get("create_time"), **message}


def _message(fields: Fields, place: str) -> NewMessage | None:
    """Return the record as a message if a user or an assistant wrote it; otherwise None."""
    fields = {**fields, **_inner(fields)}
    role = role_named(_role(fields))
    if not isinstance(role, str) or not fields.keys() & {"content", "text"}:
        raise InvalidInputError(f"{place}: {dict(fields)!r:.80} is no message; {_TOLD}")
    content = fields.get("content", fields.get("text"))
    text = text_of(content.get("parts") if isinstance(content, Mapping) else content)
    is_text = isinstance(text, str) and 0 < len(text.strip()) <= MAX_TEXT
    if role not in _ROLES or not is_text:
        return None
    return NewMessage(text, role, {"role": role}, at=_time(fields, place))


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


def _time(fields: Fields, place: str) -> float | None:
    """Return when a message was written, as Unix time; None if it does not say."""
    carriers = [fields, *(fields.get(key) or {} for key in _CARRIERS)]
    given = [each[key] for each in carriers for key in _TIMES if each.get(key) is not None]
    if not given:
        return None
    try:
        moment = _MOMENT.validate_python(given[0])
    except ValidationError:
        raise InvalidInputError(f"{place}: {given[0]!r:.80} is no time") from None
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
