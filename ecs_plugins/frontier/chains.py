"""Chains of the user's own: what is prepared once per context, kept, and answered from.

A chain has a stage 1, which may make something of a context, and a stage 2, which answers a
question from it. What was prepared is kept in memory, and in a directory for other processes.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from cachetools import LRUCache

from ecs_plugins.common.files import as_path, private, write_atomically
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.answering import TokenCounter
from ecs_plugins.frontier.cost import PointKey
from ecs_plugins.frontier.usage import NO_CACHE, CacheTokens, ReportedUsage, reported_usage
from ecs_plugins.tokens import Role, Stage, TokenLedger

_KEPT = 256  # contexts whose preparation is in memory


class CallTokens(NamedTuple):
    """Tokens of one call; 0 where they are not ``known``."""

    read: int
    written: int
    known: bool


def tokens_of_call(
    usage: ReportedUsage, prompt: str, reply: str, count_tokens: TokenCounter | None
) -> CallTokens:
    """What a call reports, and what it does not report by ``count_tokens``."""
    read = usage.prompt
    written = usage.written
    known = True
    if read is None or written is None:
        known = count_tokens is not None
        if count_tokens is not None:
            counted = count_tokens([prompt, reply])
            read = int(counted[0]) if read is None else read
            written = int(counted[1]) if written is None else written
    return CallTokens(read or 0, written or 0, known)


def check_lasting(
    kind: str, label: str, *, prepares: bool, directory: object, lasting: bool
) -> None:
    """Refuse what is forgotten with the process where the ledger remembers it.

    Raises:
        ConfigurationError: It prepares, has no directory, and the ledger is a file.
    """
    if lasting and prepares and directory is None:
        raise ConfigurationError(
            f"a ledger in a file remembers what {label} has prepared, but without a "
            f"directory it is lost with the process; give {kind}(directory=...)"
        )


@dataclass(slots=True)
class CallCounter:
    """Counts the calls of models in one stage of a chain.

    Calls that neither reported nor could be counted are ``uncounted``.
    """

    stage: Stage
    count_tokens: TokenCounter | None = None
    ledger: TokenLedger = field(default_factory=TokenLedger)
    cache: CacheTokens = NO_CACHE
    uncounted: int = 0

    def add_call(self, prompt: str, reply: str, message: object = None) -> None:
        """Count one call: as it reports, else by ``count_tokens``."""
        usage = reported_usage(message)
        tokens = tokens_of_call(usage, prompt, reply, self.count_tokens)
        self.cache = self.cache.plus(usage.cache)
        self.uncounted += not tokens.known
        prepares = self.stage == Stage.PREPARE
        inputs = Role.COMPRESS_INPUT if prepares else Role.ANSWER_INPUT
        outputs = Role.COMPRESS_OUTPUT if prepares else Role.ANSWER_OUTPUT
        self.ledger.book(self.stage, inputs, tokens.read)
        self.ledger.book(self.stage, outputs, tokens.written)

    def add_context(self, key: PointKey, tokens: TokenLedger, prepare_seconds: float) -> None:
        """Count what building a context cost."""
        del key, prepare_seconds
        self.ledger.add(tokens)

    def check(self, label: str) -> None:
        """Refuse to measure what could not be counted.

        Raises:
            ConfigurationError: A model did not report its tokens, and no counter was given.
        """
        if self.uncounted:
            raise ConfigurationError(
                f"a model of {label} does not report the tokens that it used; give "
                "count_tokens=..., such as that of its tokenizer"
            )


class CountsCalls(Protocol):
    """What is told of the calls of models below a run, and of the contexts that it builds."""

    def add_call(self, prompt: str, reply: str, message: object = None) -> None:
        """A call of a model."""

    def add_context(self, key: PointKey, tokens: TokenLedger, prepare_seconds: float) -> None:
        """A context that was built."""


class ChainPreparation(NamedTuple):
    """What a chain prepared of a context, what that cost, and whether it was found."""

    value: Any
    ledger: TokenLedger
    seconds: float
    found: bool = False


class _KeptPreparation:
    """A preparation that is being made or is there; whoever comes second waits for the first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.preparation: ChainPreparation | None = None


class PreparationStore:
    """What chains prepared, by chain and context; thread-safe.

    Args:
        directory: Keeps it for other processes and the next start, as JSON; None for the life of
            this process alone.
    """

    def __init__(self, directory: str | Path | None = None) -> None:
        self.directory = None if directory is None else as_path(directory)
        self._kept: LRUCache[tuple[PointKey, str], _KeptPreparation] = LRUCache(_KEPT)
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[PreparationStore], tuple[Path | None]]:
        return PreparationStore, (self.directory,)

    @contextmanager
    def _one(self, key: PointKey, context: str) -> Iterator[_KeptPreparation]:
        """What is kept of a chain and context, for one user at a time."""
        with self._lock:
            kept = self._kept.setdefault((key, context), _KeptPreparation())
        with kept.lock:
            yield kept

    def prepared(
        self, key: PointKey, context: str, make: Callable[[], ChainPreparation]
    ) -> ChainPreparation:
        """What is kept, or what ``make`` makes now.

        Raises:
            ConfigurationError: It cannot be written as JSON, and there is a directory.
            StorageError: It cannot be written.
        """
        with self._one(key, context) as kept:
            if kept.preparation is None:
                kept.preparation = self._read(key, context)
            if kept.preparation is not None:
                return kept.preparation._replace(found=True)
            made = make()
            self._write(key, context, made)
            kept.preparation = made
            return made

    def _path(self, key: PointKey, context: str) -> Path | None:
        if self.directory is None:
            return None
        text = json.dumps([*key, context])
        digest = hashlib.sha256(text.encode()).hexdigest()
        return self.directory / digest[:2] / f"{digest}.json"

    def _read(self, key: PointKey, context: str) -> ChainPreparation | None:
        path = self._path(key, context)
        if path is None:
            return None
        try:
            with open(path, encoding="utf-8", opener=private) as file:
                data = json.load(file)
            ledger = TokenLedger.from_dict(data["ledger"])
            return ChainPreparation(data["value"], ledger, float(data["seconds"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # not there, or damaged: it is made again

    def _write(self, key: PointKey, context: str, made: ChainPreparation) -> None:
        path = self._path(key, context)
        if path is None:
            return
        data = {"value": made.value, "ledger": made.ledger.to_dict(), "seconds": made.seconds}
        try:
            text = json.dumps(data, ensure_ascii=False)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f"what {key[0]} prepared cannot be kept in {self.directory}: {error}; let prepare "
                "give text or plain values, or leave the directory out"
            ) from error
        write_atomically(path, text)
