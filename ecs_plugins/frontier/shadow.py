"""Shadow: a share of queries is also answered by one strategy that was not chosen.

A strategy that is never chosen is never observed, so nobody learns when it has become better. The
second answer is made in the background: it delays no answer and fails none. What it costs is
booked by itself, and its score is observed like that of any other.
"""

from __future__ import annotations

import logging
import os
import queue
import random
import threading
from collections.abc import Callable, Collection
from contextvars import Context
from dataclasses import dataclass

from pydantic import Field

from ecs_plugins.common.config import Config
from ecs_plugins.errors import EcsPluginsError
from ecs_plugins.frontier.cost import StrategyPoint
from ecs_plugins.frontier.decision import RoutingDecision, Terms
from ecs_plugins.frontier.routing import Router

_log = logging.getLogger(__name__)
_MOST_WAITING = 32  # second answers; beyond it they are left out


@dataclass(frozen=True, slots=True)
class ShadowAnswer:
    """A second answer, to be judged.

    Attributes:
        question: What was asked.
        answer: What the strategy that was not chosen answered.
        chosen_answer: What the user was given; empty where it was streamed.
        label: The strategy that was not chosen.
        chosen_label: The one that was.
    """

    question: str
    answer: str
    chosen_answer: str
    label: str
    chosen_label: str


class Shadow(Config):
    """Which queries are answered a second time, and what those answers are worth.

    Attributes:
        share: Of the queries; each is drawn by itself.
        judge: The score of a second answer in [0, 1], as F1 is measured; None where it cannot
            say. Without a judge only costs are learned.
    """

    share: float = Field(gt=0, le=1)
    judge: Callable[[ShadowAnswer], float | None] | None = None

    def draws(self) -> bool:
        """Whether the next query is one of the share."""
        return random.random() < self.share


def other_decision(
    router: Router, decision: RoutingDecision, names: Collection[str]
) -> RoutingDecision | None:
    """The decision for the point that is known the least; None where only the choice can run.

    Args:
        router: Has a ledger.
        decision: What was chosen.
        names: Labels and strategies of what can run.

    Raises:
        StorageError: The ledger cannot be read.
    """
    others = []
    for point in router.frontier.routable:
        can_run = point.label in names or point.strategy in names
        if can_run and point.key != decision.point.key:
            others.append(point)
    if not others or router.ledger is None:
        return None
    observed = router.ledger.observed("cost")

    def times(point: StrategyPoint) -> int:
        queries, _, _ = observed.get(point.key, (0, 0.0, 0.0))
        return queries

    fewest = min(times(point) for point in others)
    least_known = [point for point in others if times(point) == fewest]
    point = random.choice(least_known)
    terms = Terms(decision.reuse, decision.run, decision.due)
    return router.frontier.decided(
        point, decision.objective, decision.value, terms, note="shadow: answered beside the choice"
    )


class _Background:
    """One thread that works in the background, and as little as there is to do."""

    def __init__(self) -> None:
        self._process = 0
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._waiting: queue.Queue[Callable[[], None]] = queue.Queue(_MOST_WAITING)
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[], None]) -> None:
        """Do it some time, unless too much is waiting already."""
        with self._lock:
            if self._process != os.getpid():  # a fork takes no thread with it
                self._process = os.getpid()
                self._begin()
            try:
                if self._thread is None:
                    thread = threading.Thread(target=self._work, daemon=True)
                    thread.start()
                    self._thread = thread
                self._waiting.put_nowait(work)
            except (queue.Full, RuntimeError) as failure:  # too many are waiting, or threads
                _log.info("a second answer was left out: %s", type(failure).__name__)

    def finish(self) -> None:
        """Wait until nothing is waiting."""
        self._waiting.join()

    def _work(self) -> None:
        while True:
            work = self._waiting.get()
            try:
                # Of its own: what is traced or counted for a query ends with its answer.
                Context().run(work)
            except EcsPluginsError as error:
                _log.warning("a second answer failed: %s", error)
            except Exception:
                _log.exception("a second answer failed")
            finally:
                self._waiting.task_done()


background = _Background()
"""Where second answers are made."""
