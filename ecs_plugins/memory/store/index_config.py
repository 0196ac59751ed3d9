"""``IndexConfig``: how vectors are searched."""

from __future__ import annotations

from dataclasses import dataclass

from ecs_plugins.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class IndexConfig:
    """How vectors are searched.

    Attributes:
        exact_limit: Up to so many vectors, and for filters that leave so few, the scan is exact.
            0 builds a graph always.
        links: HNSW's M: links per vector and layer.
        ef_construction: HNSW's candidate list while building.
        ef_search: HNSW's candidate list while searching; None lets it grow with the graph.
        threads: OpenMP threads used to build a graph.
        budget_bytes: Memory for open indexes; the least recently used ones are closed beyond it.
    """

    exact_limit: int = 2000
    links: int = 32
    ef_construction: int = 200
    ef_search: int | None = None
    threads: int = 1
    budget_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        if self.exact_limit < 0 or self.budget_bytes < 0:
            raise ConfigurationError("exact_limit and budget_bytes must not be negative")
        if self.links < 2 or self.ef_construction < 1 or self.threads < 1:
            raise ConfigurationError("links >= 2, ef_construction >= 1 and threads >= 1 are needed")
        if self.ef_search is not None and self.ef_search < 1:
            raise ConfigurationError("ef_search must be positive or None")


def auto_ef_search(linked: int) -> int:
    """An ``efSearch`` that keeps recall@3 at .99 as a graph grows (measured up to 100k)."""
    return int(min(512, max(64, 0.6 * linked**0.5)))
