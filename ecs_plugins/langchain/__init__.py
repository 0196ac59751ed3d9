"""LangChain: context shaping as a document compressor. Importing this loads no framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ecs_plugins._lazy import lazy_exports

if TYPE_CHECKING:
    from ecs_plugins.langchain.chat import ChatLocalLM as ChatLocalLM
    from ecs_plugins.langchain.compressor import CompressionInput as CompressionInput
    from ecs_plugins.langchain.compressor import ECSDocumentCompressor as ECSDocumentCompressor
    from ecs_plugins.langchain.context import FrontierContext as FrontierContext
    from ecs_plugins.langchain.router import FrontierRouter as FrontierRouter

_EXPORTS = {
    "ChatLocalLM": ".chat",
    "CompressionInput": ".compressor",
    "ECSDocumentCompressor": ".compressor",
    "FrontierContext": ".context",
    "FrontierRouter": ".router",
}

__all__ = [
    "ChatLocalLM",
    "CompressionInput",
    "ECSDocumentCompressor",
    "FrontierContext",
    "FrontierRouter",
]

__getattr__, _lazy_dir = lazy_exports(
    __name__, _EXPORTS, extra="langchain", requires=("langchain_core",)
)


def __dir__() -> list[str]:
    return sorted(__all__)
