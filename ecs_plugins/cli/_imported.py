"""An answering model that a user's own module holds: ``--answer-model module:attribute``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from ecs_plugins.errors import ConfigurationError

if TYPE_CHECKING:
    from ecs_plugins.frontier.answering import AnswerModel


def imported_answer_model(
    path: str, count_tokens: Callable[[Sequence[str]], Sequence[int]]
) -> AnswerModel:
    """Import a model; the working directory is looked in first.

    Args:
        path: ``module:attribute``: a LangChain chat model, a LlamaIndex LLM, an `AnswerModel`,
            or a function without arguments that returns one.
        count_tokens: For models that do not report the tokens they used.

    Raises:
        ConfigurationError: There is no such module or attribute, making the model fails, or it
            is none of these.
    """
    from ecs_plugins.frontier.answering import as_answer_model

    name, _, attribute = path.partition(":")
    if not name or not attribute:
        raise ConfigurationError(
            f"--answer-model takes module:attribute, such as my_models:chat, got {path!r}"
        )
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        model = getattr(import_module(name), attribute)
        if not any(hasattr(model, method) for method in ("complete", "invoke", "generate")):
            model = model()
    except Exception as error:  # the module is the user's: it may raise anything
        raise ConfigurationError(
            f"--answer-model {path}: {type(error).__name__}: {error}"
        ) from error
    return as_answer_model(model, count_tokens=count_tokens)
