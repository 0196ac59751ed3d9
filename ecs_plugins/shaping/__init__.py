"""Entropic Context Shaping: which passages help to answer a question, and which hurt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ecs_plugins._lazy import lazy_exports

if TYPE_CHECKING:
    from ecs_plugins.shaping.answers import DraftAnswer as DraftAnswer
    from ecs_plugins.shaping.answers import Drafted as Drafted
    from ecs_plugins.shaping.calibrated import CalibratedSignal as CalibratedSignal
    from ecs_plugins.shaping.config import DEFAULT_TOP_K as DEFAULT_TOP_K
    from ecs_plugins.shaping.config import ShapingConfig as ShapingConfig
    from ecs_plugins.shaping.diagnostics.examples import LabelledExample as LabelledExample
    from ecs_plugins.shaping.diagnostics.examples import read_examples as read_examples
    from ecs_plugins.shaping.diagnostics.observe import red_herrings as red_herrings
    from ecs_plugins.shaping.diagnostics.result import ModelDiagnostics as ModelDiagnostics
    from ecs_plugins.shaping.diagnostics.verdicts import Fitness as Fitness
    from ecs_plugins.shaping.diagnostics.verdicts import SignalDiagnostics as SignalDiagnostics
    from ecs_plugins.shaping.divergence import DistributionShift as DistributionShift
    from ecs_plugins.shaping.divergence import TrajectoryShift as TrajectoryShift
    from ecs_plugins.shaping.fusion import RankFused as RankFused
    from ecs_plugins.shaping.judge import Judge as Judge
    from ecs_plugins.shaping.passages import Unit as Unit
    from ecs_plugins.shaping.passages import join_units as join_units
    from ecs_plugins.shaping.passages import split_passages as split_passages
    from ecs_plugins.shaping.protocol import ScoringTask as ScoringTask
    from ecs_plugins.shaping.protocol import Signal as Signal
    from ecs_plugins.shaping.protocol import UnitUtility as UnitUtility
    from ecs_plugins.shaping.result import PassageVerdict as PassageVerdict
    from ecs_plugins.shaping.result import ShapedContext as ShapedContext
    from ecs_plugins.shaping.screening import Screening as Screening
    from ecs_plugins.shaping.shaper import ContextShaper as ContextShaper
    from ecs_plugins.shaping.signals import SIGNALS as SIGNALS
    from ecs_plugins.shaping.signals import AnswerShift as AnswerShift
    from ecs_plugins.shaping.signals import JointShift as JointShift
    from ecs_plugins.shaping.signals import QueryLikelihood as QueryLikelihood
    from ecs_plugins.shaping.utility import Verdict as Verdict
    from ecs_plugins.shaping.utility import marginal_logprob as marginal_logprob
    from ecs_plugins.shaping.utility import pragmatic_utility as pragmatic_utility

_EXPORTS = {
    "AnswerShift": ".signals",
    "CalibratedSignal": ".calibrated",
    "ContextShaper": ".shaper",
    "DEFAULT_TOP_K": ".config",
    "DistributionShift": ".divergence",
    "DraftAnswer": ".answers",
    "Drafted": ".answers",
    "Fitness": ".diagnostics.verdicts",
    "JointShift": ".signals",
    "Judge": ".judge",
    "LabelledExample": ".diagnostics.examples",
    "ModelDiagnostics": ".diagnostics.result",
    "PassageVerdict": ".result",
    "QueryLikelihood": ".signals",
    "RankFused": ".fusion",
    "SIGNALS": ".signals",
    "ScoringTask": ".protocol",
    "Screening": ".screening",
    "ShapedContext": ".result",
    "ShapingConfig": ".config",
    "Signal": ".protocol",
    "SignalDiagnostics": ".diagnostics.verdicts",
    "TrajectoryShift": ".divergence",
    "Unit": ".passages",
    "UnitUtility": ".protocol",
    "Verdict": ".utility",
    "join_units": ".passages",
    "marginal_logprob": ".utility",
    "pragmatic_utility": ".utility",
    "read_examples": ".diagnostics.examples",
    "red_herrings": ".diagnostics.observe",
    "split_passages": ".passages",
}

__all__ = [
    "DEFAULT_TOP_K",
    "SIGNALS",
    "AnswerShift",
    "CalibratedSignal",
    "ContextShaper",
    "DistributionShift",
    "DraftAnswer",
    "Drafted",
    "Fitness",
    "JointShift",
    "Judge",
    "LabelledExample",
    "ModelDiagnostics",
    "PassageVerdict",
    "QueryLikelihood",
    "RankFused",
    "ScoringTask",
    "Screening",
    "ShapedContext",
    "ShapingConfig",
    "Signal",
    "SignalDiagnostics",
    "TrajectoryShift",
    "Unit",
    "UnitUtility",
    "Verdict",
    "join_units",
    "marginal_logprob",
    "pragmatic_utility",
    "read_examples",
    "red_herrings",
    "split_passages",
]

__getattr__, _lazy_dir = lazy_exports(__name__, _EXPORTS)


def __dir__() -> list[str]:
    return sorted(__all__)
