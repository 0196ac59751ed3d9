"""Fields and settings that the routers of both frameworks share.

A translation only: `ecs_plugins.frontier` decides, prepares, builds and settles.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from numbers import Real
from typing import Annotated, Any, Self, TypeVar

from pydantic import BeforeValidator, Field, PlainValidator, Strict, model_validator

from ecs_plugins.common.checks import shown
from ecs_plugins.common.config import StrictFields
from ecs_plugins.errors import ConfigurationError, InvalidInputError, StorageError
from ecs_plugins.frontier.answering import TokenCounter
from ecs_plugins.frontier.cost import PointKey
from ecs_plugins.frontier.decision import Objective
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.ledger import Ledger
from ecs_plugins.frontier.reloading import check_frontier, open_frontier
from ecs_plugins.frontier.reuse import ReuseLedger
from ecs_plugins.frontier.router_config import RouterConfig
from ecs_plugins.frontier.routing import Router
from ecs_plugins.integrations.routed_query import RoutedQuery
from ecs_plugins.integrations.tracing import trace_attributes

METADATA_KEY = "frontier"
"""The metadata key under which a response carries its decision and its settlement."""

OBJECTIVES = tuple(str(objective) for objective in Objective)
SETTINGS = ("reuse", "context_id", *OBJECTIVES)
"""Settings of one call of a router; ``reuse`` is N."""

T = TypeVar("T")

_log = logging.getLogger(__name__)
_WHOLE = (
    "No context_id, documents or retriever say what the query is about, so all queries of these "
    "chains count as one context"
)
_Number = Annotated[float | None, Strict()]


def settings_of(*sources: object) -> dict[str, Any]:
    """Return N, context and objective, each from the first mapping or object that gives it.

    Raises:
        InvalidInputError: A value is of the wrong type, or one source gives two objectives.
    """
    settings: dict[str, Any] = {}
    for source in sources:
        given = _given(source)
        for name, value in given.items():
            _check_setting(name, value)
        asked = [name for name in OBJECTIVES if name in given]
        if len(asked) > 1:
            raise InvalidInputError(f"give at most one of {', '.join(OBJECTIVES)}, got {asked}")
        if asked and not settings.keys().isdisjoint(OBJECTIVES):
            del given[asked[0]]
        settings = given | settings
    return settings


def _given(source: object) -> dict[str, Any]:
    """Return the settings of a mapping or an object that are not None."""
    values = source if isinstance(source, Mapping) else vars(source)
    return {name: values[name] for name in SETTINGS if values.get(name) is not None}


def _check_setting(name: str, value: object) -> None:
    if name == "context_id":
        kind = "text"
        fits = isinstance(value, str) and value != ""
    else:
        kind = "a number"
        fits = isinstance(value, Real) and not isinstance(value, bool)
    if not fits:
        raise InvalidInputError(f"{name} must be {kind}, got {shown(value, 60)}")


@lru_cache(maxsize=32)
def _named_ledger(path: str) -> ReuseLedger:
    # A path is opened once.
    return ReuseLedger(path)


@lru_cache(maxsize=32)
def _router(frontier: EfficiencyFrontier, config: RouterConfig, ledger: Ledger | None) -> Router:
    # Kept, as a cautious one works out its intervals once.
    return Router(frontier, config, ledger=ledger)


class RoutingFields(StrictFields):
    """The fields of every integration that routes.

    Attributes:
        frontier: An `EfficiencyFrontier`, or the path of an artefact, read again when it changes.
        reuse: N, where it is known and the same for all.
        target_f1: Choose the cheapest strategy that reaches it.
        context_id: Name of the context of queries that bring none.
        ledger: A `ReuseLedger`, its path or address, or another `Ledger`; gives N otherwise.
        routing: A `RouterConfig` with everything else: another objective, the policy, caution, a
            limit of latency.
    """

    frontier: Annotated[
        Any, PlainValidator(check_frontier, json_schema_input_type=str | dict[str, str])
    ]
    reuse: _Number = Field(default=None, description="N: queries that share the context.")
    target_f1: _Number = Field(default=None, description="The cheapest that reaches it.")
    context_id: str | None = Field(default=None, description="The context of queries.")
    ledger: Ledger | str | None = None
    routing: Annotated[RouterConfig, BeforeValidator(RouterConfig.from_any)] = RouterConfig()

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        settings_of(self._defaults)
        self._router_config()
        return self

    @property
    def _defaults(self) -> dict[str, Any]:
        return {"reuse": self.reuse, "context_id": self.context_id}

    def _router_config(self) -> RouterConfig:
        if self.target_f1 is None:
            return self.routing
        return self.routing.replace(target_f1=self.target_f1)

    def choices(self, names: Iterable[str] = ()) -> EfficiencyFrontier:
        """Return the frontier, or refuse one that cannot serve.

        Raises:
            StorageError: The artefact cannot be read.
            ConfigurationError: ``names`` do not run its choices.
            UnreachableTargetError: No query can reach the objective.
        """
        return open_frontier(self.frontier, names, self._router_config())

    @property
    def core(self) -> Router:
        """Return the router of `ecs_plugins.frontier`.

        Raises:
            StorageError: The frontier or the ledger cannot be opened.
        """
        return self._core(())

    def _core(self, names: Iterable[str]) -> Router:
        ledger: Any = self.ledger
        if isinstance(ledger, str):
            ledger = _named_ledger(ledger)
        frontier = self.choices(names)
        if isinstance(ledger, Hashable):
            return _router(frontier, self._router_config(), ledger)
        return Router(frontier, self._router_config(), ledger=ledger)

    def _decided(
        self,
        asked: Mapping[str, Any],
        *,
        namespace: tuple[str, ...] = (),
        stored: Mapping[PointKey, bool] | None = None,
        count_tokens: TokenCounter | None = None,
        count: bool = True,
        names: Iterable[str] = (),
    ) -> RoutedQuery:
        """Decide for one query, by the `settings_of` it.

        ``names`` run the choices, where they are known; with ``count=False`` it is a dry run. A
        ledger that fails is noted in the decision and costs no answer.
        """
        failed = ""
        try:
            router = self._core(names)
        except StorageError as failure:
            failed = f"as the ledger failed: {failure}"
            _log.warning("%s", failed)
            router = Router(self.choices(names), self._router_config())
        whole = self.ledger is not None and "context_id" not in asked and bool(names)
        if whole:
            asked = {**asked, "context_id": f"the data of {', '.join(sorted(names))}"}
        decision = router.route(namespace=namespace, stored=stored, count=count, **asked)
        if failed:
            decision = replace(decision, note=f"N = {decision.reuse:g}, {failed}")
        elif whole:
            note = f"{decision.note}. {_WHOLE}" if decision.note else _WHOLE
            decision = replace(decision, note=note)
        trace_attributes(decision.summary())
        context_id = asked.get("context_id")
        return RoutedQuery(router, decision, context_id, namespace, count_tokens)


def named_fallback(fallback: T | str | None, made: Mapping[str, T]) -> T | None:
    """Return a fallback, or the one of a name."""
    if not isinstance(fallback, str):
        return fallback
    if fallback not in made:
        raise ConfigurationError(f"the fallback {fallback!r} is none of {', '.join(made)}")
    return made[fallback]


def key_of_fallback(
    fallback: object, made: Mapping[str, object], frontier: EfficiencyFrontier
) -> PointKey | None:
    """Return the point that a fallback runs, where it is one of the chains of a router."""
    for name, chain in made.items():
        if getattr(chain, "chain", chain) is getattr(fallback, "chain", fallback):
            for point in frontier.points:
                if name in (point.label, point.strategy):
                    return point.key
    return None
