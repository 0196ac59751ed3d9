"""LangChain: context shaping and memory as its own parts. Importing this loads no framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ecs_plugins._lazy import lazy_exports

if TYPE_CHECKING:
    from ecs_plugins.langchain.chat_model import LocalChatModel as LocalChatModel
    from ecs_plugins.langchain.compressor import CompressionInput as CompressionInput
    from ecs_plugins.langchain.compressor import ECSDocumentCompressor as ECSDocumentCompressor

_EXPORTS = {
    "CompressionInput": ".compressor",
    "ECSDocumentCompressor": ".compressor",
    "LocalChatModel": ".chat_model",
}

__all__ = [
    "CompressionInput",
    "ECSDocumentCompressor",
    "LocalChatModel",
]

__getattr__, _lazy_dir = lazy_exports(
    __name__, _EXPORTS, extra="langchain", requires=("langchain_core",)
)


def __dir__() -> list[str]:
    return sorted(__all__)
