"""Models by name, each loaded once for all that use it in this process."""

from __future__ import annotations

from functools import cache

from ecs_plugins.lm.base import LanguageModel


def as_model(model: str | LanguageModel | None) -> LanguageModel:
    """A language model, the one of a name or directory, or with None the bundled one."""
    if model is None or isinstance(model, str):
        return _named_model(model)
    return model


@cache
def _named_model(name: str | None) -> LanguageModel:
    # Weights live as long as a handle on them. Frameworks rebuild their objects, even for each
    # call, so the handle is kept here and not by the object.
    from ecs_plugins.lm.local import LocalLM  # torch is loaded when a model is needed

    return LocalLM.bundled() if name is None else LocalLM.from_pretrained(name)
