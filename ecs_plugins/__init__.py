"""Context shaping, bounded memory and cost-aware routing on one local language model.

Importing this package loads neither torch nor a framework; names are resolved on first access.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ecs_plugins import errors
from ecs_plugins._lazy import lazy_exports
from ecs_plugins.errors import EcsPluginsError

if TYPE_CHECKING:
    from ecs_plugins.lm.base import LanguageModel as LanguageModel
    from ecs_plugins.lm.fake import FakeLanguageModel as FakeLanguageModel
    from ecs_plugins.tokens import TokenLedger as TokenLedger

__version__ = "0.1.0"

_EXPORTS = {
    "FakeLanguageModel": ".lm.fake",
    "LanguageModel": ".lm.base",
    "TokenLedger": ".tokens",
}

__all__ = [
    "EcsPluginsError",
    "FakeLanguageModel",
    "LanguageModel",
    "TokenLedger",
    "__version__",
    "errors",
]

__getattr__, _lazy_dir = lazy_exports(__name__, _EXPORTS)


def __dir__() -> list[str]:
    return sorted(__all__)
