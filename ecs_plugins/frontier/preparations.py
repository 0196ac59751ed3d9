"""Preparations of contexts, each made and paid once.

A preparation is keyed by everything that it depends on: the tenant, the id and the content of the
context, and the identity of the code that prepares. It is kept in memory, and in a directory for
other processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from cachetools import LRUCache

from ecs_plugins.common.files import as_path, private, write_atomically
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.cost import PointKey
from ecs_plugins.frontier.usage import CacheTokens, ModelCall
from ecs_plugins.tokens import Stage, TokenLedger

_KEPT_CHARACTERS = 50_000_000  # of preparations in memory


class ContextCost(NamedTuple):
    """Cost of building a context.

    Attributes:
        tokens: Of all models.
        calls: The calls among them.
        seconds: Of stage 1.
        unknown: Calls whose tokens nobody reported.
    """

    tokens: TokenLedger
    calls: tuple[ModelCall, ...] = ()
    seconds: float = 0.0
    unknown: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for events and files."""
        calls = [[*call[:3], list(call.cache)] for call in self.calls]
        return {
            "tokens": self.tokens.to_dict(),
            "calls": calls,
            "prepare_seconds": self.seconds,
            "unknown": self.unknown,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ContextCost:
        """Return the cost that `to_dict` wrote."""
        calls = []
        for stage, read, written, cache in data["calls"]:
            calls.append(ModelCall(Stage(stage), int(read), int(written), CacheTokens(*cache)))
        tokens = TokenLedger.from_dict(data["tokens"])
        return cls(tokens, tuple(calls), float(data["prepare_seconds"]), int(data["unknown"]))


NOTHING_PAID = ContextCost(TokenLedger())


class PreparationKey(NamedTuple):
    """Everything that a preparation depends on.

    Attributes:
        namespace: The tenant.
        context: The id of the context, as the caller gives it.
        content: Hash of the documents.
        point: The chain and its settings.
        identity: Version or hash of the code that prepares. A preparation without one is valid in
            this process only, and is never written to disk.
    """

    namespace: tuple[str, ...]
    context: str
    content: str
    point: PointKey
    identity: str


class ChainPreparation(NamedTuple):
    """A preparation of a context, its cost, and True if it was there before."""

    value: Any
    cost: ContextCost
    found: bool = False


@dataclass(slots=True)
class _Flight:
    """A preparation that is being made; others wait for its result."""

    done: Future[ChainPreparation] = field(default_factory=Future)
    thread: int = field(default_factory=threading.get_ident)
    is_async: bool = False


class PreparationStore:
    """The preparations of chains; thread-safe, each made once by all threads and tasks.

    Args:
        directory: Keeps them as JSON for other processes and the next start; None keeps the latest
            50 million characters for the life of this process.
    """

    def __init__(self, directory: str | Path | None = None) -> None:
        self.directory = None if directory is None else as_path(directory)
        self._kept: LRUCache[PreparationKey, ChainPreparation]
        self._kept = LRUCache(_KEPT_CHARACTERS, getsizeof=_size_of)
        self._flights: dict[PreparationKey, _Flight] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[PreparationStore], tuple[Path | None]]:
        return PreparationStore, (self.directory,)

    def find(self, key: PreparationKey) -> ChainPreparation | None:
        """Return the preparation; None if it is not there."""
        with self._lock:
            kept = self._kept.get(key)
        if kept is None:
            kept = self._read(key)
            if kept is not None:
                self._remember(key, kept)
        return None if kept is None else kept._replace(found=True)

    def keep(self, key: PreparationKey, made: ChainPreparation) -> None:
        """Keep a preparation, on disk and in memory.

        Raises:
            ConfigurationError: It cannot be written as JSON, and there is a directory.
            StorageError: It cannot be written.
        """
        self._write(key, made)
        self._remember(key, made)

    def prepared(
        self, key: PreparationKey, make: Callable[[], ChainPreparation]
    ) -> ChainPreparation:
        """Return the preparation, or ``make`` it; raises as `keep` does."""
        while True:
            found, flight, is_own = self._join(key, is_async=False)
            if found is not None:
                return found
            if is_own:
                with self._landing(key, flight) as made:
                    made.append(make())
                return made[0]
            if flight.is_async and flight.thread == threading.get_ident():
                # Its event loop would wait for itself.
                return make()
            if flight.done.exception() is None:
                return flight.done.result()._replace(found=True)

    async def aprepared(
        self, key: PreparationKey, make: Callable[[], Awaitable[ChainPreparation]]
    ) -> ChainPreparation:
        """Return the preparation, or await ``make``; raises as `keep` does."""
        while True:
            found, flight, is_own = self._join(key, is_async=True)
            if found is not None:
                return found
            if is_own:
                with self._landing(key, flight) as made:
                    made.append(await make())
                return made[0]
            waiting = asyncio.wrap_future(flight.done)
            await asyncio.wait([waiting])
            if waiting.exception() is None:
                return waiting.result()._replace(found=True)

    def _join(
        self, key: PreparationKey, *, is_async: bool
    ) -> tuple[ChainPreparation | None, _Flight, bool]:
        """Return the preparation, or its pending computation and whether the caller must run it."""
        found = self.find(key)
        own = _Flight(is_async=is_async)
        if found is not None:
            return found, own, False
        with self._lock:
            landed = self._kept.get(key)  # since then
            if landed is not None:
                return landed._replace(found=True), own, False
            flight = self._flights.setdefault(key, own)
            return None, flight, flight is own

    @contextlib.contextmanager
    def _landing(self, key: PreparationKey, flight: _Flight) -> Iterator[list[ChainPreparation]]:
        """Keep the preparation that the block makes, and give it or the error to all who wait."""
        made: list[ChainPreparation] = []
        try:
            yield made
            self.keep(key, made[0])
        except BaseException as error:
            self._end(key)
            flight.done.set_exception(error)
            raise
        self._end(key)
        flight.done.set_result(made[0])

    def _end(self, key: PreparationKey) -> None:
        with self._lock:
            del self._flights[key]

    def _remember(self, key: PreparationKey, made: ChainPreparation) -> None:
        with self._lock, contextlib.suppress(ValueError):  # longer than all that is kept
            self._kept[key] = made

    def _path(self, key: PreparationKey) -> Path | None:
        if self.directory is None or not key.identity:
            return None
        tenant = hashlib.sha256(json.dumps(key.namespace).encode()).hexdigest()
        digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
        return self.directory / tenant[:32] / digest[:2] / f"{digest}.json"

    def _read(self, key: PreparationKey) -> ChainPreparation | None:
        path = self._path(key)
        if path is None:
            return None
        try:
            with open(path, encoding="utf-8", opener=private) as file:
                data = json.load(file)
            return ChainPreparation(data["value"], ContextCost.from_dict(data["cost"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # not there, or damaged: it is made again

    def _write(self, key: PreparationKey, made: ChainPreparation) -> None:
        path = self._path(key)
        if path is None:
            return
        try:
            data = {"value": made.value, "cost": made.cost.to_dict()}
            text = json.dumps(data, ensure_ascii=False)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f"the preparation of {key.point[0]} cannot be kept in {self.directory}: {error}; "
                "let prepare return text or plain values, or leave the directory out"
            ) from error
        write_atomically(path, text)


def _size_of(made: ChainPreparation) -> int:
    value = made.value
    text = value if isinstance(value, str) else repr(value)
    return 200 + len(text)
