"""Quotas of namespaces, so that no tenant fills the memory."""

from __future__ import annotations

from ecs_plugins.errors import QuotaError
from ecs_plugins.memory.config import StoreConfig
from ecs_plugins.memory.store.namespaces import Space


def check_room(settings: StoreConfig, space: Space | None, messages: int, size: int) -> None:
    """See that a namespace, None if it is new, has room for so many messages and bytes more.

    Raises:
        QuotaError: It has none.
    """
    held = 0 if space is None else space.messages
    used = 0 if space is None else space.bytes
    most = settings.max_messages
    if most is not None and messages > 0 and held + messages > most:
        raise QuotaError(
            f"the namespace holds {held:,} messages and may hold {most:,}, got {messages:,} more; "
            "nothing was written: erase some, or raise max_messages"
        )
    limit = settings.max_bytes
    if limit is not None and size > 0 and used + size > limit:
        raise QuotaError(
            f"the messages of the namespace have {used:,} bytes and may have {limit:,}, got "
            f"{size:,} more; nothing was written: erase some, or raise max_bytes"
        )
