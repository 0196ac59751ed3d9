"""LlamaIndex: shaping, memory and routing as its own parts. Importing this loads no framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ecs_plugins._lazy import lazy_exports

if TYPE_CHECKING:
    from ecs_plugins.llama_index.llm import LocalLLM as LocalLLM
    from ecs_plugins.llama_index.memory import EntropicChatMemory as EntropicChatMemory
    from ecs_plugins.llama_index.memory_block import EntropicMemoryBlock as EntropicMemoryBlock
    from ecs_plugins.llama_index.postprocessor import ECSPostprocessor as ECSPostprocessor
    from ecs_plugins.llama_index.query_engine import FrontierQueryEngine as FrontierQueryEngine
    from ecs_plugins.llama_index.selector import FrontierQuery as FrontierQuery
    from ecs_plugins.llama_index.selector import FrontierSelector as FrontierSelector

_EXPORTS = {
    "ECSPostprocessor": ".postprocessor",
    "EntropicChatMemory": ".memory",
    "EntropicMemoryBlock": ".memory_block",
    "FrontierQuery": ".selector",
    "FrontierQueryEngine": ".query_engine",
    "FrontierSelector": ".selector",
    "LocalLLM": ".llm",
}

__all__ = [
    "ECSPostprocessor",
    "EntropicChatMemory",
    "EntropicMemoryBlock",
    "FrontierQuery",
    "FrontierQueryEngine",
    "FrontierSelector",
    "LocalLLM",
]

__getattr__, _lazy_dir = lazy_exports(
    __name__, _EXPORTS, extra="llama-index", requires=("llama_index",)
)


def __dir__() -> list[str]:
    return sorted(__all__)
