"""LangGraph: Entropic Memory as a store. Importing this loads no framework."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ecs_plugins._lazy import lazy_exports

if TYPE_CHECKING:
    from ecs_plugins.langgraph.store import EntropicStore as EntropicStore

_EXPORTS = {
    "EntropicStore": ".store",
}

__all__ = [
    "EntropicStore",
]

__getattr__, _lazy_dir = lazy_exports(__name__, _EXPORTS, extra="agents", requires=("langgraph",))


def __dir__() -> list[str]:
    return sorted(__all__)
