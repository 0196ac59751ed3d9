"""Frontiers in files: opened when they are needed, read again when they change."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Collection, Iterable
from functools import lru_cache
from pathlib import Path

from ecs_plugins.errors import ConfigurationError, EcsPluginsError, StorageError
from ecs_plugins.frontier.cost import StrategyPoint
from ecs_plugins.frontier.decision import RouterConfig, RoutingDecision
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.routing import Router

_log = logging.getLogger(__name__)


def check_frontier(value: object) -> EfficiencyFrontier | str:
    """Return the argument: a frontier, or the path of a frontier file that exists.

    Raises:
        ConfigurationError: The value is neither a frontier nor a path.
        StorageError: The file does not exist.
    """
    if isinstance(value, EfficiencyFrontier):
        return value
    if not isinstance(value, str | os.PathLike):
        raise ConfigurationError(
            f"frontier must be an EfficiencyFrontier or the path of one, got {type(value).__name__}"
        )
    if not Path(value).is_file():
        raise StorageError(
            f"there is no frontier at {value}; make one with: ecs-plugins calibrate --out {value}"
        )
    return str(value)


def open_frontier(
    source: EfficiencyFrontier | str,
    names: Iterable[str] = (),
    config: RouterConfig | None = None,
) -> EfficiencyFrontier:
    """Return the frontier of a source; a file is read again when it has changed.

    Refused is a frontier whose choices the ``names`` do not run, where there are some, and one
    that cannot reach the objective of a ``config``. A newer file that is refused is not taken.

    Raises:
        StorageError: The file cannot be read.
        ConfigurationError: The names do not run its choices.
        UnreachableTargetError: No query can reach the objective.
    """
    if isinstance(source, EfficiencyFrontier):
        _check(source, frozenset(names), config)
        return source
    return _artefact(source, frozenset(names), config or RouterConfig()).current()


@lru_cache(maxsize=64)
def _check(
    frontier: EfficiencyFrontier, names: frozenset[str], config: RouterConfig | None
) -> None:
    if names:
        check_names(names, frontier)
    if config is not None:
        Router(frontier, config).check_reachable()


class _Artefact:
    """Frontier in a file. The first reading pins its measurement and models.

    A newer file that does not fit them is logged, and the old frontier stays in use.
    """

    def __init__(self, path: str, names: frozenset[str], config: RouterConfig) -> None:
        self._path = path
        self._names = names
        self._config = config
        self._taken: EfficiencyFrontier | None = None
        self._stamp: object = None
        self._lock = threading.Lock()

    def current(self) -> EfficiencyFrontier:
        """Return the current frontier; a changed file is read again."""
        stamp = self._stamp  # where the file is gone, what was taken goes on
        with contextlib.suppress(OSError):
            status = Path(self._path).stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        with self._lock:
            if self._taken is None:
                self._taken = self._read()
            elif self._stamp != stamp:
                try:
                    self._taken = self._read(like=self._taken)
                except EcsPluginsError as error:
                    _log.warning(
                        "the frontier %s is not taken: %s; restart to use it", self._path, error
                    )
            self._stamp = stamp
            return self._taken

    def _read(self, like: EfficiencyFrontier | None = None) -> EfficiencyFrontier:
        new = EfficiencyFrontier.load(self._path)
        after = (new.provenance.fingerprint, new.unit)
        before = after if like is None else (like.provenance.fingerprint, like.unit)
        if before != after:
            raise ConfigurationError(f"it was measured with {after}, not {before}")
        _check(new, self._names, self._config)
        return new


_artefact = lru_cache(maxsize=32)(_Artefact)


def chosen_name(decision: RoutingDecision | StrategyPoint, names: Collection[str]) -> str:
    """Return the name that runs a choice: its label or, for all configurations, its strategy.

    Raises:
        ConfigurationError: None of them does.
    """
    for name in (decision.label, decision.strategy):
        if name in names:
            return name
    raise ConfigurationError(
        f"the frontier chooses {decision.label}, and nothing runs that: there is "
        f"{', '.join(sorted(names)) or 'nothing'}. Add {decision.label!r} or "
        f"{decision.strategy!r}, or route among fewer: frontier.only([...])"
    )


def check_names(names: Iterable[str], frontier: EfficiencyFrontier) -> None:
    """Refuse chains that no decision of a frontier chooses, and decisions that no chain runs."""
    given = set(names)
    possible = {name for point in frontier.routable for name in (point.label, point.strategy)}
    unknown = sorted(given - possible)
    if unknown:
        raise ConfigurationError(
            f"the frontier never chooses {', '.join(unknown)}; it chooses among "
            f"{', '.join(point.label for point in frontier.routable)}"
        )
    for point in frontier.routable:
        chosen_name(point, given)
