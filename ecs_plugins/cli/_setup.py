"""What several commands set up in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ecs_plugins.lm.base import LanguageModel


def load_model(name_or_path: str | None) -> LanguageModel:
    """The model that a ``--model`` option names; the bundled one without it.

    Raises:
        ModelNotFoundError: It is not on this machine.
    """
    from transformers.utils.logging import disable_progress_bar

    from ecs_plugins.lm.local import LocalLM

    disable_progress_bar()  # type: ignore[no-untyped-call]  # commands show their own
    return LocalLM.bundled() if name_or_path is None else LocalLM.from_pretrained(name_or_path)
