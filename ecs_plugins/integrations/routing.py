"""What the routers of both frameworks share: the fields they have and what a call asks of them.

A translation only: `ecs_plugins.frontier` decides, prepares, builds and settles.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from numbers import Real
from typing import Annotated, Any, Self, TypeVar

from pydantic import Field, PlainValidator, Strict, model_validator

from ecs_plugins.common.checks import shown
from ecs_plugins.common.config import StrictFields
from ecs_plugins.errors import ConfigurationError, InvalidInputError, StorageError
from ecs_plugins.frontier.answering import TokenCounter
from ecs_plugins.frontier.decision import Objective
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.ledger import Ledger
from ecs_plugins.frontier.reloading import check_frontier, open_frontier
from ecs_plugins.frontier.reuse import ReuseLedger
from ecs_plugins.frontier.router_config import OnlinePolicy, RouterConfig
from ecs_plugins.frontier.routing import Router
from ecs_plugins.frontier.shadow import Shadow
from ecs_plugins.frontier.spending import SpendCap
from ecs_plugins.integrations.fields import ModelField
from ecs_plugins.integrations.routed_query import RoutedQuery
from ecs_plugins.integrations.supported import SupportJudge
from ecs_plugins.integrations.tracing import trace_attributes

METADATA_KEY = "frontier"
"""The metadata key under which a response carries its decision and its settlement."""

OBJECTIVES = tuple(str(objective) for objective in Objective)
SETTINGS = ("reuse", "context_id", *OBJECTIVES)
"""What a call asks of a router; ``reuse`` is N."""

T = TypeVar("T")

_log = logging.getLogger(__name__)
_WHOLE = (
    "No context_id, documents or retriever say what the query is about, so all queries of these "
    "chains count as one context"
)
_Number = Annotated[float | None, Strict()]


def settings_of(*sources: object) -> dict[str, Any]:
    """N, context and objective, each from the first mapping or object that gives it.

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
    """The settings of a mapping or an object that are not None."""
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
        frontier: An `EfficiencyFrontier`, or the path of an artefact, read when first needed.
        reuse: N, where it is known and the same for all.
        target_f1: Choose the cheapest that reaches it.
        budget: Choose the best F1 within this cost per query.
        weight: Choose the best efficiency score.
        context_id: What queries are about, where they do not say.
        ledger: A `ReuseLedger`, its path or address, or another `Ledger`; gives N otherwise.
        policy: How to decide when N is unknown; None trusts the forecast of the ledger.
        cautious: Whether the lower end of its interval counts as the F1 of a strategy.
        max_seconds: Choose among what answers within it at p95, as it was measured.
        spend_cap: What all queries of a tenant may cost in a day.
        shadow: Which queries another strategy answers as well, in the background; needs a ledger.
        observe_support: Whether the router learns, in the background, how well each answer is
            supported by the context that it was made from, where you observe no score yourself;
            needs a ledger. A shadow without a judge is judged by it, too.
        support_model: What tells the support; None for the bundled model.
    """

    frontier: Annotated[
        Any, PlainValidator(check_frontier, json_schema_input_type=str | dict[str, str])
    ]
    reuse: _Number = Field(default=None, description="N: queries that share the context.")
    target_f1: _Number = Field(default=None, description="The cheapest that reaches it.")
    budget: _Number = Field(default=None, description="The best F1 within this cost.")
    weight: _Number = Field(default=None, description="The best efficiency score.")
    context_id: str | None = Field(default=None, description="What queries are about.")
    ledger: Ledger | str | None = None
    policy: OnlinePolicy | None = None
    cautious: bool = False
    max_seconds: float | None = None
    spend_cap: SpendCap | None = None
    shadow: Shadow | None = None
    observe_support: bool = False
    support_model: ModelField = None

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        settings_of(self)
        self._router_config()
        if self.shadow is not None and self.ledger is None:
            raise ValueError("a shadow is to be learned from, so give a ledger")
        if self.observe_support and self.ledger is None:
            raise ValueError("support is to be learned from, so give a ledger")
        return self

    @property
    def support_judge(self) -> SupportJudge | None:
        """What scores answers by their support, if they are to be."""
        return SupportJudge(self.support_model) if self.observe_support else None

    def _router_config(self) -> RouterConfig:
        return RouterConfig(
            target_f1=self.target_f1,
            policy=self.policy,
            cautious=self.cautious,
            max_seconds=self.max_seconds,
            spend_cap=self.spend_cap,
        )

    @property
    def core(self) -> Router:
        """The engine's router: `Router.observe` and `Router.drift`.

        Raises:
            StorageError: The frontier or the ledger cannot be opened.
        """
        return self._core(())

    def _core(self, names: Iterable[str]) -> Router:
        ledger: Any = self.ledger
        if isinstance(ledger, str):
            ledger = _named_ledger(ledger)
        frontier = open_frontier(self.frontier, names)
        if isinstance(ledger, Hashable):
            return _router(frontier, self._router_config(), ledger)
        return Router(frontier, self._router_config(), ledger=ledger)

    def _decided(
        self,
        asked: Mapping[str, Any],
        *,
        count_tokens: TokenCounter | None = None,
        count: bool = True,
        names: Iterable[str] = (),
    ) -> RoutedQuery:
        """Decide for one query, by `settings_of` it.

        ``names`` is what runs the choices, where that is known; with ``count=False`` it is a dry
        run. A ledger that fails is noted in the decision and costs no answer.
        """
        frontier = open_frontier(self.frontier, names)
        failed = ""
        try:
            router = self._core(names)
        except StorageError as failure:
            failed = f"as the ledger failed: {failure}"
            _log.warning("%s", failed)
            router = Router(frontier, self._router_config())
        whole = self.ledger is not None and "context_id" not in asked and bool(names)
        if whole:
            asked = {**asked, "context_id": f"the data of {', '.join(sorted(names))}"}
        decision = router.route(count=count, **asked)
        if failed:
            decision = replace(decision, note=f"N = {decision.reuse:g}, {failed}")
        elif whole:
            note = f"{decision.note}. {_WHOLE}" if decision.note else _WHOLE
            decision = replace(decision, note=note)
        trace_attributes(decision.summary())
        return RoutedQuery(router, decision, asked.get("context_id"), count_tokens)


def named_fallback(fallback: T | str | None, made: Mapping[str, T]) -> T | None:
    """A fallback, or the one of a name."""
    if not isinstance(fallback, str):
        return fallback
    if fallback not in made:
        raise ConfigurationError(f"the fallback {fallback!r} is none of {', '.join(made)}")
    return made[fallback]
