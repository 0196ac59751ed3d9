"""Messages of LangChain: who said something, and copies of a message as a model is shown it."""

from __future__ import annotations

import math
from typing import Any

from langchain_core.language_models import BaseChatModel, BaseLanguageModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage

from ecs_plugins.common.inert import without_marks
from ecs_plugins.common.text import well_formed
from ecs_plugins.integrations.notes import TextLength, without_notes
from ecs_plugins.memory import drafts

Block = str | dict[str, Any]
"""Part of a message's content."""

_BYTES_OF_A_TOKEN = 3  # few: an estimate of tokens is to be too high rather than too low

REMEMBERED = ("user", "assistant")
"""Roles whose words may be remembered. Results of tools and summaries are untrusted."""


def role_of(message: BaseMessage) -> str:
    """Return the author of a message: ``user``, ``assistant``, ``tool``, ``summary`` or ``system``.

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
    """Return True if the user said it."""
    return role_of(message) == "user"


def text_of(message: BaseMessage) -> str:
    """Return the text of a message, its blocks of text separated by spaces."""
    return str(drafts.text_of(message.content))


def own_words(message: BaseMessage) -> str | None:
    """Return the words of the user or the assistant in a message; None if there are none."""
    if role_of(message) not in REMEMBERED:
        return None
    return without_notes(text_of(message))


def speaker_metadata(message: BaseMessage) -> dict[str, object]:
    """Return the speaker: ``role``, and ``name`` if the message has one."""
    metadata: dict[str, object] = {"role": role_of(message)}
    if message.name:
        metadata["name"] = well_formed(message.name)
    return metadata


def without_marks_in(message: AnyMessage) -> AnyMessage:
    """Return a message in which nothing looks like the tags of recalled notes."""
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
    """Return a copy of a message with a note before its text."""
    content = message.content
    before = f"{note}\n\n"
    if isinstance(content, str):
        return message.model_copy(update={"content": before + content})
    blocks = [{"type": "text", "text": before}, *content]
    return message.model_copy(update={"content": blocks})


def token_counter(model: BaseChatModel) -> TextLength:
    """Return a counter of tokens by the model's tokenizer, or else an upper estimate.

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
    """Return the special tokens of a model whose tokenizer is at hand."""
    tokenizer = getattr(model, "tokenizer", None)
    names = getattr(tokenizer, "all_special_tokens", None)
    if not isinstance(names, list | tuple):
        return ()
    added = getattr(tokenizer, "added_tokens_decoder", None) or {}
    special = [token for token in added.values() if getattr(token, "special", False)]
    return tuple(dict.fromkeys([*names, *map(str, special)]))
