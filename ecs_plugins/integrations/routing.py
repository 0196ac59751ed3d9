"""What the routers of LangChain and LlamaIndex share: what is asked, and what is chosen for it.

A translation only: `ecs_plugins.frontier` decides. Here a call's settings are merged, and a
decision is matched with what the user gave to run it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ecs_plugins.errors import ConfigurationError, InvalidInputError, StorageError
from ecs_plugins.frontier.artefact import load
from ecs_plugins.frontier.decision import RoutingDecision
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.explain import amount, asked
from ecs_plugins.frontier.online import OnlinePolicy
from ecs_plugins.frontier.reuse import ReuseLedger
from ecs_plugins.frontier.routing import Router, RouterConfig

METADATA_KEY = "frontier"
"""The metadata key under which a response carries its decision and its settlement."""

OBJECTIVES = ("target_f1", "budget", "weight")


# Sources: an object, or the path of one, opened when it is needed and then shared.


def check_frontier(value: object) -> EfficiencyFrontier | str:
    """A frontier, or the path of an artefact that exists.

    Raises:
        StorageError: There is no such file.
        ConfigurationError: It is neither.
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


def open_frontier(source: EfficiencyFrontier | str) -> EfficiencyFrontier:
    """The frontier behind a field; a file is read again when it has changed.

    Raises:
        StorageError: It cannot be read.
        InvalidInputError: It is no valid artefact.
    """
    if isinstance(source, EfficiencyFrontier):
        return source
    try:
        status = Path(source).stat()
    except OSError as error:
        raise StorageError(
            f"cannot read the frontier {source}: {error.strerror}; check the path"
        ) from error
    return _read_frontier(source, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=32)
def _read_frontier(path: str, changed: int, size: int) -> EfficiencyFrontier:
    del changed, size
    return load(path)


def open_ledger(source: ReuseLedger | str | None) -> ReuseLedger | None:
    """The ledger behind a field; a path is opened once per process."""
    return _named_ledger(source, os.getpid()) if isinstance(source, str) else source


@lru_cache(maxsize=32)
def _named_ledger(path: str, process: int) -> ReuseLedger:
    del process  # A connection must not be carried into a forked child.
    return ReuseLedger(path)


# What a call asks for.


@dataclass(frozen=True, slots=True)
class Ask:
    """What one call asks of a router; None where it says nothing.

    Attributes:
        reuse: N.
        context_id: What the query is about.
        target_f1: At most one of this and the next two.
        budget: See `RouterConfig`.
        weight: See `RouterConfig`.
    """

    reuse: float | None = None
    context_id: str | None = None
    target_f1: float | None = None
    budget: float | None = None
    weight: float | None = None

    def __post_init__(self) -> None:
        for name in ("reuse", *OBJECTIVES):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
                raise InvalidInputError(f"{name} must be a number, got {value!r:.60}")
        if self.context_id is not None and (
            not isinstance(self.context_id, str) or not self.context_id
        ):
            raise InvalidInputError(f"context_id must be text, got {self.context_id!r:.60}")
        given = [name for name in OBJECTIVES if getattr(self, name) is not None]
        if len(given) > 1:
            raise InvalidInputError(f"give at most one of {', '.join(OBJECTIVES)}, got {given}")

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Ask:
        """The settings among ``values``; anything else there is left alone.

        Raises:
            InvalidInputError: A setting is no number, or two objectives are given.
        """
        return cls(**{name: values[name] for name in cls.__slots__ if name in values})

    def over(self, other: Ask) -> Ask:
        """This ask, with what it leaves open taken from ``other``."""
        own = any(getattr(self, name) is not None for name in OBJECTIVES)
        source = self if own else other
        return Ask(
            other.reuse if self.reuse is None else self.reuse,
            other.context_id if self.context_id is None else self.context_id,
            *(getattr(source, name) for name in OBJECTIVES),
        )


def plan(
    source: EfficiencyFrontier | str,
    ask: Ask,
    *,
    ledger: ReuseLedger | str | None = None,
    policy: OnlinePolicy | None = None,
    count: bool = True,
) -> tuple[Router, RoutingDecision]:
    """Decide for one query; the router that did so settles it.

    Raises:
        ConfigurationError: Nothing says what is wanted.
        InvalidInputError: A value is out of range.
        UnreachableTargetError: Nothing measured can do it.
        StorageError: The artefact or the ledger cannot be read.
    """
    objective = {name: getattr(ask, name) for name in OBJECTIVES}
    # Rent or buy compares at equal quality, so a call by budget or weight goes without it.
    usable = policy if ask.target_f1 is not None else None
    router = Router(
        open_frontier(source), RouterConfig(**objective, policy=usable), ledger=open_ledger(ledger)
    )
    decision = router.route(context_id=ask.context_id, reuse=ask.reuse, count=count)
    return router, decision


def chosen_name(decision: RoutingDecision, names: Collection[str]) -> str:
    """Which of ``names`` runs a decision: its label or, for all configurations, its strategy.

    Raises:
        ConfigurationError: None does.
    """
    for name in (decision.label, decision.strategy):
        if name in names:
            return name
    raise ConfigurationError(
        f"the frontier chose {decision.label}, and nothing runs that: there is "
        f"{', '.join(sorted(names)) or 'nothing'}. Add {decision.label!r} or "
        f"{decision.strategy!r}, or route among fewer: frontier.only([...])"
    )


def check_names(names: Iterable[str], frontier: EfficiencyFrontier) -> None:
    """Refuse names that no decision of ``frontier`` can have.

    Raises:
        ConfigurationError: A name is neither a routable strategy nor a label of one.
    """
    known = {name for point in frontier.routable for name in (point.label, point.strategy)}
    unknown = sorted(set(names) - known)
    if unknown:
        raise ConfigurationError(
            f"the frontier never chooses {', '.join(unknown)}; it chooses among "
            f"{', '.join(point.label for point in frontier.routable)}"
        )


def reason(decision: RoutingDecision) -> str:
    """A decision in one sentence with its numbers."""
    unit = decision.unit
    cost = f"{amount(decision.effective, unit)} per query at N = {decision.reuse:g}"
    if decision.sunk:
        split = f"{amount(decision.stage2, unit)}, already prepared"
    else:
        split = (
            f"{amount(decision.stage2, unit)} + {amount(decision.stage1, unit)} / "
            f"{decision.reuse:g}"
        )
    text = f"{decision.label}: {asked(decision)}; measured F1 {decision.f1:.3f}, {cost} ({split})"
    return f"{text}. {decision.note}" if decision.note else text
