"""The Efficiency Frontier: retrieve, compress or send everything, given how often it is reused.

``calibrate`` measures strategies on a user's own questions, ``EfficiencyFrontier`` holds what
follows from it, ``ReuseLedger`` knows how often a context is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ecs_plugins._lazy import lazy_exports

if TYPE_CHECKING:
    from ecs_plugins.frontier.answering import AnswerModel as AnswerModel
    from ecs_plugins.frontier.answering import CallableAnswerModel as CallableAnswerModel
    from ecs_plugins.frontier.answering import as_answer_model as as_answer_model
    from ecs_plugins.frontier.artefact import load as load
    from ecs_plugins.frontier.artefact import save as save
    from ecs_plugins.frontier.bootstrap import Bootstrap as Bootstrap
    from ecs_plugins.frontier.bootstrap import Interval as Interval
    from ecs_plugins.frontier.calibration import CalibrationConfig as CalibrationConfig
    from ecs_plugins.frontier.calibration import calibrate as calibrate
    from ecs_plugins.frontier.cost import ModelPrice as ModelPrice
    from ecs_plugins.frontier.cost import PriceVector as PriceVector
    from ecs_plugins.frontier.cost import Usage as Usage
    from ecs_plugins.frontier.cost import effective_tokens as effective_tokens
    from ecs_plugins.frontier.cost import efficiency_score as efficiency_score
    from ecs_plugins.frontier.cost import exchange_rate as exchange_rate
    from ecs_plugins.frontier.data import CalibrationQuestion as CalibrationQuestion
    from ecs_plugins.frontier.data import Context as Context
    from ecs_plugins.frontier.data import Document as Document
    from ecs_plugins.frontier.data import about_first as about_first
    from ecs_plugins.frontier.data import fit_contexts as fit_contexts
    from ecs_plugins.frontier.decision import Objective as Objective
    from ecs_plugins.frontier.decision import RoutingDecision as RoutingDecision
    from ecs_plugins.frontier.decision import UnreachableTargetError as UnreachableTargetError
    from ecs_plugins.frontier.envelope import EfficiencyFrontier as EfficiencyFrontier
    from ecs_plugins.frontier.forecast import ReuseForecast as ReuseForecast
    from ecs_plugins.frontier.lookup import lookup_table as lookup_table
    from ecs_plugins.frontier.lookup import regimes as regimes
    from ecs_plugins.frontier.measurements import Measurements as Measurements
    from ecs_plugins.frontier.online import OnlineDecision as OnlineDecision
    from ecs_plugins.frontier.online import OnlinePolicy as OnlinePolicy
    from ecs_plugins.frontier.online import decide_online as decide_online
    from ecs_plugins.frontier.points import StrategyPoint as StrategyPoint
    from ecs_plugins.frontier.prices import read_prices as read_prices
    from ecs_plugins.frontier.provenance import Provenance as Provenance
    from ecs_plugins.frontier.readers import read_questions as read_questions
    from ecs_plugins.frontier.report import write_report as write_report
    from ecs_plugins.frontier.reuse import ReuseLedger as ReuseLedger
    from ecs_plugins.frontier.routing import Router as Router
    from ecs_plugins.frontier.routing import RouterConfig as RouterConfig
    from ecs_plugins.frontier.routing import Settlement as Settlement
    from ecs_plugins.frontier.simulate import PolicyCost as PolicyCost
    from ecs_plugins.frontier.simulate import simulate_deployment as simulate_deployment
    from ecs_plugins.frontier.strategies.base import BuiltContext as BuiltContext
    from ecs_plugins.frontier.strategies.base import Prepared as Prepared
    from ecs_plugins.frontier.strategies.base import Strategy as Strategy
    from ecs_plugins.frontier.strategies.grid import Grid as Grid
    from ecs_plugins.frontier.strategies.grid import default_strategies as default_strategies

_EXPORTS = {
    "AnswerModel": ".answering",
    "Bootstrap": ".bootstrap",
    "BuiltContext": ".strategies.base",
    "CalibrationConfig": ".calibration",
    "CalibrationQuestion": ".data",
    "CallableAnswerModel": ".answering",
    "Context": ".data",
    "Document": ".data",
    "EfficiencyFrontier": ".envelope",
    "Grid": ".strategies.grid",
    "Interval": ".bootstrap",
    "Measurements": ".measurements",
    "ModelPrice": ".cost",
    "Objective": ".decision",
    "OnlineDecision": ".online",
    "OnlinePolicy": ".online",
    "PolicyCost": ".simulate",
    "Prepared": ".strategies.base",
    "PriceVector": ".cost",
    "Provenance": ".provenance",
    "ReuseForecast": ".forecast",
    "ReuseLedger": ".reuse",
    "Router": ".routing",
    "RouterConfig": ".routing",
    "RoutingDecision": ".decision",
    "Settlement": ".routing",
    "Strategy": ".strategies.base",
    "StrategyPoint": ".points",
    "UnreachableTargetError": ".decision",
    "Usage": ".cost",
    "about_first": ".data",
    "as_answer_model": ".answering",
    "calibrate": ".calibration",
    "decide_online": ".online",
    "default_strategies": ".strategies.grid",
    "effective_tokens": ".cost",
    "efficiency_score": ".cost",
    "exchange_rate": ".cost",
    "fit_contexts": ".data",
    "load": ".artefact",
    "lookup_table": ".lookup",
    "read_prices": ".prices",
    "read_questions": ".readers",
    "regimes": ".lookup",
    "save": ".artefact",
    "simulate_deployment": ".simulate",
    "write_report": ".report",
}

__all__ = [
    "AnswerModel",
    "Bootstrap",
    "BuiltContext",
    "CalibrationConfig",
    "CalibrationQuestion",
    "CallableAnswerModel",
    "Context",
    "Document",
    "EfficiencyFrontier",
    "Grid",
    "Interval",
    "Measurements",
    "ModelPrice",
    "Objective",
    "OnlineDecision",
    "OnlinePolicy",
    "PolicyCost",
    "Prepared",
    "PriceVector",
    "Provenance",
    "ReuseForecast",
    "ReuseLedger",
    "Router",
    "RouterConfig",
    "RoutingDecision",
    "Settlement",
    "Strategy",
    "StrategyPoint",
    "UnreachableTargetError",
    "Usage",
    "about_first",
    "as_answer_model",
    "calibrate",
    "decide_online",
    "default_strategies",
    "effective_tokens",
    "efficiency_score",
    "exchange_rate",
    "fit_contexts",
    "load",
    "lookup_table",
    "read_prices",
    "read_questions",
    "regimes",
    "save",
    "simulate_deployment",
    "write_report",
]

__getattr__, _lazy_dir = lazy_exports(__name__, _EXPORTS)


def __dir__() -> list[str]:
    return sorted(__all__)
