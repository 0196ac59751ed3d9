"""Calls that wait for a model, and who of them computes how much in the next round.

A round is about one pack of tokens, shared out evenly between the calls that can be computed
together; what one cannot use goes to the others. A large call is cut between candidates, so it
delays a small one by one round at most, and a call that is alone fills every round by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar

import torch

from ecs_plugins.common.aio import abandoned
from ecs_plugins.errors import ModelError, ModelTimeoutError
from ecs_plugins.lm.concurrency import Concurrency
from ecs_plugins.lm.scoring.planner import EngineResult
from ecs_plugins.lm.scoring.request import TokenRequest
from ecs_plugins.lm.slicing import Part, SlicedRequest

T = TypeVar("T")

FAIR_SHARES = 8
"""A round is shared out between at most this many callers; the others are served in the next."""


class Scorer(Protocol):
    """What scores a batch; see `ecs_plugins.lm.scoring.planner.ScoringEngine`."""

    def score(
        self, requests: Sequence[TokenRequest], *, window: int | None, token_budget: int
    ) -> list[EngineResult]:
        """One result per request."""
        ...


class Job(Generic[T]):
    """One call on its way, known to its caller as a future."""

    key: object
    tokens: int

    def __init__(self, concurrency: Concurrency) -> None:
        self.window_s = concurrency.window_s
        limit = concurrency.deadline_s
        self.deadline = None if limit is None else time.monotonic() + limit
        self.abandoned = abandoned()
        self.threads = torch.get_num_threads()
        self.future: Future[T] = Future()

    @property
    def left(self) -> int:
        """Tokens that it still needs."""
        return 1

    @property
    def least(self) -> int:
        """Tokens below which a turn does it no good."""
        return 1

    def seconds(self) -> float | None:
        """Time left, if there is a deadline."""
        return None if self.deadline is None else self.deadline - time.monotonic()

    def over(self) -> bool:
        """Whether it needs no more turns; a deadline that has passed is reported."""
        if self.future.done():
            return True
        if self.abandoned is not None and self.abandoned.is_set():
            return self.future.cancel()
        left = self.seconds()
        if left is not None and left <= 0:
            self.fail(late())
        return self.future.done()

    def fail(self, error: BaseException) -> None:
        """Hand an error to the caller, if it still waits."""
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


class Call(Job[T]):
    """Something that runs alone."""

    def __init__(self, function: Callable[[], T], concurrency: Concurrency) -> None:
        super().__init__(concurrency)
        self.key = object()
        self.tokens = 1
        self.function = function

    def run(self) -> None:
        """Call it and hand over what comes of it."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self.function())
        except Exception as error:
            self.future.set_exception(error)
        except BaseException as error:
            self.future.set_exception(died(error))
            raise


class Scoring(Job[list[EngineResult]]):
    """Requests to score, a part in every turn."""

    def __init__(
        self,
        engine: Scorer,
        requests: Sequence[TokenRequest],
        window: int,
        token_budget: int,
        concurrency: Concurrency,
    ) -> None:
        super().__init__(concurrency)
        self.key = (window, token_budget)
        self.window = window
        self.tokens = token_budget
        self.engine = engine
        self.requests = [SlicedRequest(request) for request in requests]
        self._at = 0

    @property
    def left(self) -> int:
        """Tokens of everything that is not on its way yet."""
        return sum(request.left for request in self.requests[self._at :])

    @property
    def least(self) -> int:
        """Tokens of the next part."""
        return self.requests[self._at].least

    def take(self, tokens: int) -> list[Part]:
        """Parts for about ``tokens`` tokens, at least one."""
        parts: list[Part] = []
        while self._at < len(self.requests):
            request = self.requests[self._at]
            if parts and request.least > tokens:
                break
            part = request.take(tokens)
            parts.append(part)
            tokens -= part.tokens
            if not request.taken:
                break
            self._at += 1
        return parts

    def finish(self) -> None:
        """Hand over the result if nothing is missing."""
        done = self._at == len(self.requests)
        if done and self.future.set_running_or_notify_cancel():
            self.future.set_result([request.result for request in self.requests])


AnyJob = Job[Any]
Turn = tuple[AnyJob, list[Part]]


def share_out(jobs: Sequence[AnyJob]) -> list[Turn]:
    """Who computes how much in the next round, in the order of the line.

    Everybody who can be merged with the first in line gets an even share, or the least that does
    any good; what some do not need goes to the others. The first always gets a turn.
    """
    first = jobs[0]
    if not isinstance(first, Scoring):
        return [(first, [])]
    group = [job for job in jobs if isinstance(job, Scoring) and job.key == first.key]
    budget = first.tokens
    share = max(1, budget // min(len(group), FAIR_SHARES))
    granted: list[tuple[Scoring, int]] = []
    for job in group:
        wanted = min(job.left, max(share, job.least))
        if granted and wanted > budget:
            if job.least > budget:
                continue
            wanted = budget
        granted.append((job, wanted))
        budget -= wanted
        if budget <= 0:
            break
    turns: list[Turn] = []
    for job, tokens in granted:
        more = max(0, min(budget, job.left - tokens))
        budget -= more
        turns.append((job, job.take(tokens + more)))
    return turns


def late() -> ModelTimeoutError:
    """The error of a call whose deadline passed."""
    return ModelTimeoutError(
        "the deadline passed before the model had answered; give it more time (deadline_s), less "
        "to do, or fewer callers"
    )


def died(error: BaseException) -> ModelError:
    """The error of every call that waited when the worker died."""
    failure = ModelError(
        f"the worker of the language model died ({type(error).__name__}: {error}); the next call "
        "starts a new one"
    )
    failure.__cause__ = error
    return failure
