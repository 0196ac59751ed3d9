"""What a chat model's own tokenizer tells: how long a text is, and which texts are special."""

from __future__ import annotations

import math

from langchain_core.language_models import BaseChatModel, BaseLanguageModel

from ecs_plugins.integrations.notes import TextLength

_BYTES_OF_A_TOKEN = 3  # few: an estimate of tokens is to be too high rather than too low


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
