"""LlamaIndex: context shaping as a node postprocessor. Importing this loads no framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ecs_plugins._lazy import lazy_exports

if TYPE_CHECKING:
    from ecs_plugins.llama_index.postprocessor import ECSPostprocessor as ECSPostprocessor

_EXPORTS = {"ECSPostprocessor": ".postprocessor"}

__all__ = ["ECSPostprocessor"]

__getattr__, _lazy_dir = lazy_exports(
    __name__, _EXPORTS, extra="llama-index", requires=("llama_index",)
)


def __dir__() -> list[str]:
    return sorted(__all__)
