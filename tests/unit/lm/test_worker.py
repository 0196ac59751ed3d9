import asyncio
import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ecs_plugins.common.aio import run_sync
from ecs_plugins.errors import ModelBusyError, ModelError, ModelTimeoutError, ScoringError
from ecs_plugins.lm.scoring.request import Continuation, EngineResult, TokenRequest
from ecs_plugins.lm.worker import Call, Scoring, Worker

BUDGET = 100
WAIT = 20.0


def request(name="r", candidates=1, length=9, prefix=0):
    """Candidates of ``length`` tokens and a continuation of one: ``length + 1`` each."""
    before = (7,) * prefix
    behind = [(number,) * length for number in range(candidates)]
    answer = Continuation((1,), ((0, 1),))
    return TokenRequest(before, tuple(behind), (answer,), name)


class StubEngine:
    """Scores a candidate by its first token, a pack per candidate; can be held at the gate."""

    def __init__(self):
        self.rounds = []
        self.ended = []
        self.packs = 0
        self.gate = threading.Semaphore(0)
        self.held = False
        self.at_gate = threading.Event()

    def score(self, requests, *, window, token_budget, stopped, give_way=None):
        names = [each.name for each in requests]
        self.rounds.append(sorted(names))
        if self.held:
            self.at_gate.set()
            assert self.gate.acquire(timeout=WAIT)
        if "bad" in names:
            raise ScoringError("this one is bad")
        if "deadly" in names:
            raise SystemExit("gone")
        results = [self.result(each, stopped, give_way) for each in requests]
        self.ended += names
        return results

    def result(self, scored, stopped, give_way):
        scores = {}
        for k, (first, *_) in enumerate(scored.candidates):
            if stopped():
                raise ModelTimeoutError("nobody waits")
            if give_way is not None:
                give_way()
            self.packs += 1
            scores[k, 0] = np.array([first], dtype=np.float32)
        return EngineResult(scores, {}, scored.tokens)

    def hold(self):
        self.held = True
        self.at_gate.clear()

    def let_go(self):
        self.held = False
        self.gate.release(1000)


class Bench:
    """A worker on a stub, and threads that call it."""

    def __init__(self):
        self.engine = StubEngine()
        self.worker = Worker()
        self.pool = ThreadPoolExecutor(32)

    def job(self, *requests, window=1000, deadline_s=None):
        return Scoring(self.engine, requests, window, BUDGET, deadline_s)

    def score(self, *requests, max_waiting=100, **options):
        return self.worker.compute(self.job(*requests, **options), max_waiting)

    def run(self, function):
        return self.worker.compute(Call(function, None), 100)

    def call(self, *requests, **options):
        return self.pool.submit(self.score, *requests, **options)

    def occupied(self):
        """The worker is held in a round of its own until the engine is let go."""
        self.engine.hold()
        first = self.call(request("first"))
        assert self.engine.at_gate.wait(WAIT)
        return first

    def waiting(self, number):
        until = time.monotonic() + WAIT
        while len(self.worker._queue.jobs) != number and time.monotonic() < until:
            time.sleep(0.001)
        assert len(self.worker._queue.jobs) == number

    def go_on(self, number):
        """Let the engine go once so many calls wait beside the one that it computes."""
        self.waiting(1 + number)
        self.engine.let_go()

    def waiting_calls(self, *requests):
        """Calls that all waited, in this order, before the first of them was computed."""
        self.occupied()
        calls = []
        for number, one in enumerate(requests, 2):
            calls.append(self.call(one))
            self.waiting(number)
        self.engine.let_go()
        return calls


@pytest.fixture
def bench():
    made = Bench()
    yield made
    made.engine.let_go()
    made.pool.shutdown()


def values(call):
    """The scores of a call with one request, in the order of its candidates."""
    (result,) = call.result(WAIT)
    in_order = sorted(result.scores.items())
    return [logprobs.item() for _, logprobs in in_order]


def test_calls_that_wait_are_computed_together_and_get_their_own_results(bench) -> None:
    requests = [request(str(number), candidates=number) for number in (1, 2, 3)]
    one, two, three = bench.waiting_calls(*requests)
    assert values(one) == [0.0]
    assert values(two) == [0.0, 1.0]
    assert values(three) == [0.0, 1.0, 2.0]
    first, together = bench.engine.rounds
    assert first == ["first"]
    assert together == ["1", "2", "3"]


def test_a_round_is_one_pack_or_one_larger_call(bench) -> None:
    large = [request(name, 50) for name in ("large", "other")]
    small = [request(str(number), 4) for number in range(3)]  # 40 tokens each
    for call in bench.waiting_calls(*large, *small):
        call.result(WAIT)
    assert bench.engine.rounds[1:] == [["large"], ["0", "1"], ["2"], ["other"]]


def test_a_large_call_gives_way_to_small_ones_that_come_while_it_is_computed(bench) -> None:
    bench.occupied()
    calls = []
    for number, (name, candidates) in enumerate([("large", 50), ("small", 4), ("bad", 4)], 2):
        calls.append(bench.call(request(name, candidates)))
        bench.waiting(number)
    bench.engine.let_go()
    large, small, bad = calls
    assert values(large) == list(map(float, range(50)))
    assert values(small) == list(map(float, range(4)))
    with pytest.raises(ScoringError, match="bad"):
        bad.result(WAIT)
    ended = bench.engine.ended
    assert ended.index("large") > ended.index("small")


def test_calls_with_other_limits_take_turns_and_are_not_merged(bench) -> None:
    bench.occupied()
    calls = []
    for window in (500, 600, 500):
        named = request(str(window))
        calls.append(bench.call(named, window=window))
    bench.go_on(3)
    for call in calls:
        call.result(WAIT)
    _, *rounds = bench.engine.rounds
    assert sorted(rounds) == [["500", "500"], ["600"]]


def test_calls_that_cannot_merge_take_turns(bench) -> None:
    bench.occupied()
    alone = bench.pool.submit(bench.run, lambda: len(bench.engine.rounds))
    bench.waiting(2)
    behind = bench.call(request("behind"))
    bench.waiting(3)
    bench.engine.let_go()
    assert alone.result(WAIT) == 1
    behind.result(WAIT)


def test_an_error_reaches_only_the_call_that_caused_it(bench) -> None:
    names = ("good", "bad", "deadly", "fine")
    good, bad, deadly, fine = bench.waiting_calls(*map(request, names))
    assert values(good) == [0.0]
    assert values(fine) == [0.0]
    with pytest.raises(ScoringError, match="this one is bad"):
        bad.result(WAIT)
    with pytest.raises(ModelError, match="SystemExit: gone"):
        deadly.result(WAIT)


def test_a_deadline_ends_the_wait_and_the_work(bench) -> None:
    bench.engine.hold()
    late = bench.call(request("late", 1000), deadline_s=0.1)
    with pytest.raises(ModelTimeoutError, match="deadline_s"):
        late.result(WAIT)
    bench.engine.let_go()
    bench.score(request("next"))
    assert bench.engine.packs == 1


def test_a_full_queue_refuses(bench) -> None:
    bench.occupied()
    with pytest.raises(ModelBusyError, match="max_waiting"):
        bench.score(request("no"), max_waiting=1)
    patient = bench.call(request("yes"), max_waiting=2)
    bench.waiting(2)
    bench.engine.let_go()
    assert values(patient) == [0.0]
    assert ["no"] not in bench.engine.rounds


async def test_a_cancelled_task_leaves_no_work_behind(bench) -> None:
    bench.engine.hold()
    task = asyncio.create_task(run_sync(bench.score, request("gone", 1000)))
    await asyncio.to_thread(bench.engine.at_gate.wait, WAIT)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    bench.engine.let_go()
    await asyncio.to_thread(bench.score, request("next"))
    assert bench.engine.packs == 1


def test_an_idle_worker_keeps_no_engine_alive_and_ends_with_it() -> None:
    bench = Bench()
    bench.score(request())
    thread = bench.worker._queue.thread
    engine = weakref.ref(bench.engine)
    bench.pool.shutdown()
    del bench
    gc.collect()
    thread.join(WAIT)
    assert not thread.is_alive()
    assert engine() is None
