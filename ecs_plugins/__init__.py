"""Context shaping, bounded memory and cost-aware routing on one local language model.

Importing this package loads neither torch nor a framework; names are resolved on first access.
The integrations are packages of their own: `ecs_plugins.langchain`, `ecs_plugins.langgraph` and
`ecs_plugins.llama_index`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ecs_plugins import errors
from ecs_plugins._lazy import lazy_exports
from ecs_plugins.errors import EcsPluginsError

if TYPE_CHECKING:
    from ecs_plugins.embedding import Embedder as Embedder
    from ecs_plugins.embedding import FakeEmbedder as FakeEmbedder
    from ecs_plugins.embedding import SentenceTransformerEmbedder as SentenceTransformerEmbedder
    from ecs_plugins.embedding import as_embedder as as_embedder
    from ecs_plugins.embedding import default_embedder as default_embedder
    from ecs_plugins.frontier.calibration import calibrate as calibrate
    from ecs_plugins.frontier.cost import PriceVector as PriceVector
    from ecs_plugins.frontier.envelope import EfficiencyFrontier as EfficiencyFrontier
    from ecs_plugins.frontier.points import StrategyPoint as StrategyPoint
    from ecs_plugins.frontier.reuse import ReuseLedger as ReuseLedger
    from ecs_plugins.frontier.routing import Router as Router
    from ecs_plugins.frontier.routing import RouterConfig as RouterConfig
    from ecs_plugins.lm.base import LanguageModel as LanguageModel
    from ecs_plugins.lm.concurrency import Concurrency as Concurrency
    from ecs_plugins.lm.fake import FakeLanguageModel as FakeLanguageModel
    from ecs_plugins.lm.local import LocalLM as LocalLM
    from ecs_plugins.lm.prompts import PromptTemplate as PromptTemplate
    from ecs_plugins.lm.remote import RemoteLM as RemoteLM
    from ecs_plugins.lm.remote import RemoteOptions as RemoteOptions
    from ecs_plugins.memory.config import MemoryConfig as MemoryConfig
    from ecs_plugins.memory.entropic import EntropicMemory as EntropicMemory
    from ecs_plugins.shaping.config import ShapingConfig as ShapingConfig
    from ecs_plugins.shaping.result import PassageVerdict as PassageVerdict
    from ecs_plugins.shaping.result import ShapedContext as ShapedContext
    from ecs_plugins.shaping.shaper import ContextShaper as ContextShaper
    from ecs_plugins.shaping.utility import Verdict as Verdict
    from ecs_plugins.tokens import TokenLedger as TokenLedger

__version__ = "0.1.0"

_EXPORTS = {
    "Concurrency": ".lm.concurrency",
    "ContextShaper": ".shaping.shaper",
    "EfficiencyFrontier": ".frontier.envelope",
    "Embedder": ".embedding",
    "EntropicMemory": ".memory.entropic",
    "FakeEmbedder": ".embedding",
    "FakeLanguageModel": ".lm.fake",
    "LanguageModel": ".lm.base",
    "LocalLM": ".lm.local",
    "MemoryConfig": ".memory.config",
    "PassageVerdict": ".shaping.result",
    "PriceVector": ".frontier.cost",
    "PromptTemplate": ".lm.prompts",
    "RemoteLM": ".lm.remote",
    "RemoteOptions": ".lm.remote",
    "ReuseLedger": ".frontier.reuse",
    "Router": ".frontier.routing",
    "RouterConfig": ".frontier.routing",
    "SentenceTransformerEmbedder": ".embedding",
    "ShapedContext": ".shaping.result",
    "ShapingConfig": ".shaping.config",
    "StrategyPoint": ".frontier.points",
    "TokenLedger": ".tokens",
    "Verdict": ".shaping.utility",
    "as_embedder": ".embedding",
    "calibrate": ".frontier.calibration",
    "default_embedder": ".embedding",
}

__all__ = [
    "Concurrency",
    "ContextShaper",
    "EcsPluginsError",
    "EfficiencyFrontier",
    "Embedder",
    "EntropicMemory",
    "FakeEmbedder",
    "FakeLanguageModel",
    "LanguageModel",
    "LocalLM",
    "MemoryConfig",
    "PassageVerdict",
    "PriceVector",
    "PromptTemplate",
    "RemoteLM",
    "RemoteOptions",
    "ReuseLedger",
    "Router",
    "RouterConfig",
    "SentenceTransformerEmbedder",
    "ShapedContext",
    "ShapingConfig",
    "StrategyPoint",
    "TokenLedger",
    "Verdict",
    "__version__",
    "as_embedder",
    "calibrate",
    "default_embedder",
    "errors",
]

__getattr__, _lazy_dir = lazy_exports(__name__, _EXPORTS)


def __dir__() -> list[str]:
    return sorted(__all__)
