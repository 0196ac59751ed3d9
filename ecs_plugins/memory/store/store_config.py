"""``StoreConfig``: how a memory is stored and run; what it keeps is `MemoryConfig`'s business."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.memory.store.database import Synchronous
from ecs_plugins.memory.store.index_config import IndexConfig


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """Storage and scheduling.

    Attributes:
        synchronous: ``full``: a write that returned survives a power cut. ``normal``: a power
            cut may lose the last writes; a killed process loses none.
        busy_timeout: Seconds to wait for another writer.
        index: How vectors are searched.
        sleep: Who runs the sleep phases that fall due: the ``caller`` of ``add``, a
            ``background`` thread, or nobody (``manual``).
        schedule: When one falls due: ``every`` ``MemoryConfig.sleep_every`` messages, or
            ``adaptive``: when so many messages were new rather than repeats, or when the hot
            tier is full.
        summary_deadline: Seconds that all summaries of one sleep phase may take together.
        on_summary_error: When the language model fails: take the text from the cluster
            (``extractive``), or leave the tiers as they were and raise (``raise``).
        log_retention: Seconds that the message log is kept for; None is for ever. What the
            hot tier holds is kept anyway.
    """

    synchronous: Synchronous = "full"
    busy_timeout: float = 30.0
    index: IndexConfig = field(default_factory=IndexConfig)
    sleep: Literal["caller", "background", "manual"] = "caller"
    schedule: Literal["every", "adaptive"] = "every"
    summary_deadline: float = 60.0
    on_summary_error: Literal["extractive", "raise"] = "extractive"
    log_retention: float | None = None

    def __post_init__(self) -> None:
        choices = {
            "synchronous": ("full", "normal"),
            "sleep": ("caller", "background", "manual"),
            "schedule": ("every", "adaptive"),
            "on_summary_error": ("extractive", "raise"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ConfigurationError(
                    f"{name} is {getattr(self, name)!r}; use one of {', '.join(allowed)}"
                )
        for name in ("busy_timeout", "summary_deadline", "log_retention"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigurationError(f"{name} is {value}; it must be positive")
