"""The local language model: one seam, `LanguageModel`, behind which everything is scored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ecs_plugins._lazy import lazy_exports

if TYPE_CHECKING:
    from ecs_plugins.lm.base import ChatLayout as ChatLayout
    from ecs_plugins.lm.base import Divergence as Divergence
    from ecs_plugins.lm.base import Generation as Generation
    from ecs_plugins.lm.base import LanguageModel as LanguageModel
    from ecs_plugins.lm.base import ScoreRequest as ScoreRequest
    from ecs_plugins.lm.base import ScoreResult as ScoreResult
    from ecs_plugins.lm.base import Segment as Segment
    from ecs_plugins.lm.base import SegmentScore as SegmentScore
    from ecs_plugins.lm.concurrency import Concurrency as Concurrency
    from ecs_plugins.lm.fake import FakeLanguageModel as FakeLanguageModel
    from ecs_plugins.lm.local import LocalLM as LocalLM
    from ecs_plugins.lm.prompts import PromptTemplate as PromptTemplate
    from ecs_plugins.lm.remote import RemoteLM as RemoteLM
    from ecs_plugins.lm.remote import RemoteOptions as RemoteOptions
    from ecs_plugins.lm.scoring.prefix import CacheStatistics as CacheStatistics
    from ecs_plugins.lm.screening import Screened as Screened
    from ecs_plugins.lm.screening import screen as screen

_EXPORTS = {
    "CacheStatistics": ".scoring.prefix",
    "ChatLayout": ".base",
    "Concurrency": ".concurrency",
    "Divergence": ".base",
    "FakeLanguageModel": ".fake",
    "Generation": ".base",
    "LanguageModel": ".base",
    "LocalLM": ".local",
    "PromptTemplate": ".prompts",
    "RemoteLM": ".remote",
    "RemoteOptions": ".remote",
    "ScoreRequest": ".base",
    "ScoreResult": ".base",
    "Screened": ".screening",
    "Segment": ".base",
    "SegmentScore": ".base",
    "screen": ".screening",
}

__all__ = [
    "CacheStatistics",
    "ChatLayout",
    "Concurrency",
    "Divergence",
    "FakeLanguageModel",
    "Generation",
    "LanguageModel",
    "LocalLM",
    "PromptTemplate",
    "RemoteLM",
    "RemoteOptions",
    "ScoreRequest",
    "ScoreResult",
    "Screened",
    "Segment",
    "SegmentScore",
    "screen",
]

__getattr__, _lazy_dir = lazy_exports(__name__, _EXPORTS)


def __dir__() -> list[str]:
    return sorted(__all__)
