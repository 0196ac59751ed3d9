"""Signals by name: one line of `SIGNALS` each, also for those of other packages.

Behind a name may stand ``+`` and a ranker. `likelihood` holds Definition 3.1 of Entropic Context
Shaping and its label-free stand-in, `drafted` answers that the model drafts, `fused` the order
together with a ranker, `divergence` Eq. 3 and Definition 3.3, `judge` section 3.5. `base` says what
a signal is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ecs_plugins.shaping.signals.base import Signal
from ecs_plugins.shaping.signals.divergence import DistributionShift, TrajectoryShift
from ecs_plugins.shaping.signals.drafted import Drafted
from ecs_plugins.shaping.signals.fused import RankFused as RankFused
from ecs_plugins.shaping.signals.judge import Judge
from ecs_plugins.shaping.signals.likelihood import AnswerShift, JointShift, QueryLikelihood

SIGNALS: dict[str, Callable[[], Signal]] = {
    "answer_shift": AnswerShift,
    "query_likelihood": QueryLikelihood,
    "joint_shift": JointShift,
    "drafted_joint_shift": partial(Drafted, JointShift()),
    "distribution_shift": DistributionShift,
    "trajectory_shift": TrajectoryShift,
    "judge": Judge,
}
"""What makes the signal of each name; a name that is added is known everywhere."""
