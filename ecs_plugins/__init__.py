"""Context shaping, bounded memory and cost-aware routing on one local language model.

Importing this package loads neither torch nor a framework; names are resolved on first access.
The integrations are packages of their own: `ecs_plugins.langchain`, `ecs_plugins.llama_index`.
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
    from ecs_plugins.lm.base import LanguageModel as LanguageModel
    from ecs_plugins.lm.fake import FakeLanguageModel as FakeLanguageModel
    from ecs_plugins.lm.local import LocalLM as LocalLM
    from ecs_plugins.lm.prompts import PromptTemplate as PromptTemplate
    from ecs_plugins.shaping.config import ShapingConfig as ShapingConfig
    from ecs_plugins.shaping.result import PassageVerdict as PassageVerdict
    from ecs_plugins.shaping.result import ShapedContext as ShapedContext
    from ecs_plugins.shaping.shaper import ContextShaper as ContextShaper
    from ecs_plugins.shaping.utility import Verdict as Verdict
    from ecs_plugins.tokens import TokenLedger as TokenLedger

__version__ = "0.1.0"

_EXPORTS = {
    "ContextShaper": ".shaping.shaper",
    "Embedder": ".embedding",
    "FakeEmbedder": ".embedding",
    "FakeLanguageModel": ".lm.fake",
    "LanguageModel": ".lm.base",
    "LocalLM": ".lm.local",
    "PassageVerdict": ".shaping.result",
    "PromptTemplate": ".lm.prompts",
    "SentenceTransformerEmbedder": ".embedding",
    "ShapedContext": ".shaping.result",
    "ShapingConfig": ".shaping.config",
    "TokenLedger": ".tokens",
    "Verdict": ".shaping.utility",
    "as_embedder": ".embedding",
    "default_embedder": ".embedding",
}

__all__ = [
    "ContextShaper",
    "EcsPluginsError",
    "Embedder",
    "FakeEmbedder",
    "FakeLanguageModel",
    "LanguageModel",
    "LocalLM",
    "PassageVerdict",
    "PromptTemplate",
    "SentenceTransformerEmbedder",
    "ShapedContext",
    "ShapingConfig",
    "TokenLedger",
    "Verdict",
    "__version__",
    "as_embedder",
    "default_embedder",
    "errors",
]

__getattr__, _lazy_dir = lazy_exports(__name__, _EXPORTS)


def __dir__() -> list[str]:
    return sorted(__all__)
