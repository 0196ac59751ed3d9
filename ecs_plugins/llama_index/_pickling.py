"""Pickles that hold all of a component, or fail.

LlamaIndex's own deletes what cannot be pickled, such as a live model, from the object that is
pickled; that one breaks, and its copy silently works with a default in place of it.
"""

from __future__ import annotations

from typing import Any

from llama_index.core.schema import BaseComponent
from typing_extensions import override

_OF_THE_PROCESS = frozenset({"callback_manager"})


class PickledWhole(BaseComponent):
    """A component that pickles as its fields; a callback manager stays with its process."""

    @override
    def __getstate__(self) -> dict[str, Any]:
        kept = set(type(self).model_fields) - _OF_THE_PROCESS
        return {
            "__dict__": {name: value for name, value in self.__dict__.items() if name in kept},
            "__pydantic_extra__": None,
            "__pydantic_fields_set__": self.__pydantic_fields_set__ & kept,
            "__pydantic_private__": None,
        }

    @override
    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["__dict__"])  # type: ignore[misc]
