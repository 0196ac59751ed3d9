"""Signals by name: one line of `SIGNALS` each, also for those of other packages.

A ``+`` and a ranker may follow a name. `likelihood` holds Definition 3.1 of Entropic Context
Shaping, its label-free stand-in and the judge of section 3.5, `drafted` answers that the model
drafts, `combined` the order together with rankers, `divergence` Eq. 3 and Definition 3.3. `base`
defines signals.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ecs_plugins.shaping.signals.base import Signal
from ecs_plugins.shaping.signals.combined import RankFused as RankFused
from ecs_plugins.shaping.signals.divergence import DistributionShift, TrajectoryShift
from ecs_plugins.shaping.signals.drafted import Drafted
from ecs_plugins.shaping.signals.likelihood import AnswerShift, JointShift, Judge, QueryLikelihood

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
