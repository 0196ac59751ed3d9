"""LangChain: context shaping and memory as its own parts. Importing this loads no framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ecs_plugins._lazy import lazy_exports

if TYPE_CHECKING:
    from ecs_plugins._recollection import RecallOptions as RecallOptions
    from ecs_plugins.langchain.chat_model import LocalChatModel as LocalChatModel
    from ecs_plugins.langchain.compressor import CompressionInput as CompressionInput
    from ecs_plugins.langchain.compressor import ECSDocumentCompressor as ECSDocumentCompressor
    from ecs_plugins.langchain.context import FrontierContext as FrontierContext
    from ecs_plugins.langchain.context_middleware import (
        ECSContextMiddleware as ECSContextMiddleware,
    )
    from ecs_plugins.langchain.history import (
        EntropicChatMessageHistory as EntropicChatMessageHistory,
    )
    from ecs_plugins.langchain.memory_middleware import (
        EntropicMemoryMiddleware as EntropicMemoryMiddleware,
    )
    from ecs_plugins.langchain.retriever import EntropicMemoryRetriever as EntropicMemoryRetriever
    from ecs_plugins.langchain.router import FrontierRouter as FrontierRouter

_EXPORTS = {
    "CompressionInput": ".compressor",
    "ECSDocumentCompressor": ".compressor",
    "EntropicChatMessageHistory": ".history",
    "EntropicMemoryRetriever": ".retriever",
    "FrontierContext": ".context",
    "FrontierRouter": ".router",
    "LocalChatModel": ".chat_model",
    "RecallOptions": "ecs_plugins._recollection",
}

_AGENT_EXPORTS = {
    "ECSContextMiddleware": ".context_middleware",
    "EntropicMemoryMiddleware": ".memory_middleware",
}

__all__ = [
    "CompressionInput",
    "ECSContextMiddleware",
    "ECSDocumentCompressor",
    "EntropicChatMessageHistory",
    "EntropicMemoryMiddleware",
    "EntropicMemoryRetriever",
    "FrontierContext",
    "FrontierRouter",
    "LocalChatModel",
    "RecallOptions",
]

_get, _ = lazy_exports(__name__, _EXPORTS, extra="langchain", requires=("langchain_core",))
_get_for_agents, _ = lazy_exports(
    __name__, _AGENT_EXPORTS, extra="agents", requires=("langchain", "langchain_core", "langgraph")
)


def __getattr__(name: str) -> object:
    return _get_for_agents(name) if name in _AGENT_EXPORTS else _get(name)


def __dir__() -> list[str]:
    return sorted(__all__)
