"""What the scoring model behind a router has read, which no file keeps."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from cachetools import TTLCache

from ecs_plugins.frontier.cost import PointKey

_READ_CONTEXTS = 4096  # whose reading is remembered, and for how many seconds
_READ_SECONDS = 3600.0


class ContextReadings:
    """What the scoring model behind one router has read of a context, and what that cost.

    It is in memory alone: a pickle begins without.
    """

    def __init__(self) -> None:
        self._costs: TTLCache[tuple[str, PointKey], float]
        self._costs = TTLCache(maxsize=_READ_CONTEXTS, ttl=_READ_SECONDS)
        self._lock = threading.Lock()

    def note(self, context: str, key: PointKey, cost: float) -> None:
        """A point's passages have been read."""
        with self._lock:
            self._costs[context, key] = cost

    def costs(self, context: str, keys: Iterable[PointKey]) -> dict[PointKey, float]:
        """Of those of ``keys`` that have been read."""
        with self._lock:
            costs = {}
            for key in keys:
                cost = self._costs.get((context, key))
                if cost is not None:
                    costs[key] = cost
            return costs

    def expire(self, seconds: float) -> None:
        """Forget what is older at a time of `time.monotonic`."""
        with self._lock:
            self._costs.expire(seconds)

    def __reduce__(self) -> tuple[type[ContextReadings], tuple[()]]:
        return ContextReadings, ()
