"""Messages of LangChain: who said something, and copies of a message as a model is shown it."""

from __future__ import annotations

import math
from typing import Any

from langchain_core.language_models import BaseChatModel, BaseLanguageModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage

from ecs_plugins.common.inert import without_marks
from ecs_plugins.common.text import well_formed
from ecs_plugins.integrations.fields import METADATA_KEY
from ecs_plugins.integrations.notes import TextLength, without_notes

UNMARKED = "unmarked"
"""Under which a message's ``ecs`` metadata hold its text before marks were put into it."""

Block = str | dict[str, Any]
"""A part of a message's content."""

_BYTES_OF_A_TOKEN = 3  # few: an estimate of tokens is to be too high rather than too low

REMEMBERED = ("user", "assistant")
"""Whose words may be remembered. Anybody may have written what tools return, or its summary."""


def role_of(message: BaseMessage) -> str:
    """Who a message is from: ``user``, ``assistant``, ``tool``, ``summary`` or ``system``.

    LangChain's middlewares write summaries and notices as messages of the user, and mark them.
    What an assistant says beside a call of a tool belongs to the call.
    """
    if isinstance(message, HumanMessage):
        made_by = message.additional_kwargs.get("lc_source")
        if not made_by:
            return "user"
        return "summary" if "summarization" in str(made_by) else "system"
    if isinstance(message, AIMessage):
        return "tool" if message.tool_calls else "assistant"
    return "system" if isinstance(message, SystemMessage) else "tool"


def is_user(message: BaseMessage) -> bool:
    """Whether the user said it."""
    return role_of(message) == "user"


def text_of(message: BaseMessage) -> str:
    """The text of a message; its blocks of text, parted by spaces."""
    content = message.content
    if isinstance(content, str):
        return content
    texts = []
    for block in content:
        text = block if isinstance(block, str) else block.get("text")
        if isinstance(text, str):
            texts.append(text)
    return " ".join(texts)


def own_words(message: BaseMessage) -> str | None:
    """What the user or the assistant said in a message; None for nothing."""
    if role_of(message) not in REMEMBERED:
        return None
    return without_notes(as_written(message))


def as_written(message: BaseMessage) -> str:
    """The text of a message before marks of citations were put into it."""
    details = message.response_metadata.get(METADATA_KEY)
    if isinstance(details, dict) and isinstance(details.get(UNMARKED), str):
        return str(details[UNMARKED])
    return text_of(message)


def speaker_metadata(message: BaseMessage) -> dict[str, object]:
    """Who said it: ``role``, and ``name`` where the message has one."""
    metadata: dict[str, object] = {"role": role_of(message)}
    if message.name:
        metadata["name"] = well_formed(message.name)
    return metadata


def without_marks_in(message: AnyMessage) -> AnyMessage:
    """A message whose author cannot pass anything off as recalled; as it is if nobody tried."""
    content = message.content
    changed: str | list[Block]
    if isinstance(content, str):
        changed = without_marks(content)
    else:
        changed = [_inert_part(part) for part in content]
    if changed == content:
        return message
    return message.model_copy(update={"content": changed})


def _inert_part(part: Block) -> Block:
    if isinstance(part, str):
        return without_marks(part)
    text = part.get("text")
    if not isinstance(text, str):
        return part
    return {**part, "text": without_marks(text)}


def with_note(message: AnyMessage, note: str) -> AnyMessage:
    """A copy of a message with a note before what it says."""
    content = message.content
    before = f"{note}\n\n"
    if isinstance(content, str):
        return message.model_copy(update={"content": before + content})
    blocks = [{"type": "text", "text": before}, *content]
    return message.model_copy(update={"content": blocks})


def token_counter(model: BaseChatModel) -> TextLength:
    """Tokens by a model's own tokenizer, or, if it has none, three bytes to a token: many.

    LangChain's own default would download the tokenizer of another model.
    """
    kind = type(model)
    counts_itself = (
        kind.get_num_tokens is not BaseLanguageModel.get_num_tokens
        or kind.get_token_ids is not BaseLanguageModel.get_token_ids
        or model.custom_get_token_ids is not None
    )
    return model.get_num_tokens if counts_itself else _upper_estimate


def _upper_estimate(text: str) -> int:
    size = len(text.encode(errors="replace"))
    return math.ceil(size / _BYTES_OF_A_TOKEN)


def special_tokens_of(model: BaseChatModel) -> tuple[str, ...]:
    """The special tokens of a model that has its tokenizer here; none of one behind a server."""
    tokenizer = getattr(model, "tokenizer", None)
    names = getattr(tokenizer, "all_special_tokens", None)
    if not isinstance(names, list | tuple):
        return ()
    added = getattr(tokenizer, "added_tokens_decoder", None) or {}
    special = [token for token in added.values() if getattr(token, "special", False)]
    return tuple(dict.fromkeys([*names, *map(str, special)]))
