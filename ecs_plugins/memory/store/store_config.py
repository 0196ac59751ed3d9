"""``StoreConfig``: how a memory is stored and run; what it keeps is `MemoryConfig`'s business."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ecs_plugins.common.config import Config
from ecs_plugins.memory.store.database import Synchronous


class StoreConfig(Config):
    """Storage and scheduling."""

    synchronous: Synchronous = Field(
        default="full",
        description="full: a write that returned survives a power cut. normal: a power cut may "
        "lose the last writes; a killed process loses none.",
    )
    busy_timeout: float = Field(
        default=30.0, gt=0, description="Seconds to wait for another writer."
    )
    sleep: Literal["caller", "background", "manual"] = Field(
        default="caller",
        description="Who runs the sleep phases that fall due: the caller of add, a background "
        "thread, or nobody.",
    )
    summary_deadline: float = Field(
        default=60.0,
        gt=0,
        description="Seconds that all summaries of one sleep phase may take together.",
    )
    on_summary_error: Literal["extractive", "raise"] = Field(
        default="extractive",
        description="When the language model fails: take the text from the cluster, or leave the "
        "tiers as they were and raise.",
    )
    log_retention: float | None = Field(
        default=None,
        gt=0,
        description="Seconds that the message log is kept for; None is for ever. What the hot "
        "tier holds is kept anyway.",
    )
