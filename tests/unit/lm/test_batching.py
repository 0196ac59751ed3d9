import asyncio
import gc
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tiny_models import model, tokenizer

from ecs_plugins.common.aio import run_sync
from ecs_plugins.errors import (
    ConfigurationError,
    ModelBusyError,
    ModelError,
    ModelTimeoutError,
    ScoringError,
)
from ecs_plugins.lm.base import ScoreRequest, Segment
from ecs_plugins.lm.batching import Batcher, _Queue
from ecs_plugins.lm.concurrency import Concurrency
from ecs_plugins.lm.local import LocalLM
from ecs_plugins.lm.scoring.planner import EngineResult
from ecs_plugins.lm.scoring.request import Continuation, TokenRequest
from ecs_plugins.lm.slicing import SlicedRequest
from ecs_plugins.lm.turns import Scoring, share_out

BUDGET = 100
WAIT = 20.0


def request(name="r", candidates=1, length=9, prefix=0):
    """Candidates of ``length`` tokens and a continuation of one: ``length + 1`` each."""
    made = tuple((k,) * length for k in range(candidates))
    return TokenRequest((7,) * prefix, made, (Continuation((1,), ((0, 1),)),), name)


class StubEngine:
    """Scores a candidate by its first token; can be held at the gate; keeps a log."""

    def __init__(self):
        self.rounds = []
        self.gate = threading.Semaphore(0)
        self.held = False
        self.at_gate = threading.Event()

    def score(self, requests, *, window, token_budget):
        self.rounds.append([(r.name, len(r.candidates)) for r in requests])
        if self.held:
            self.at_gate.set()
            assert self.gate.acquire(timeout=WAIT)
        for r in requests:
            if r.name == "bad":
                raise ScoringError("this one is bad")
            if r.name == "deadly":
                raise SystemExit("gone")
        return [self.result(r) for r in requests]

    def result(self, r):
        scores = {
            (k, 0): np.array([ids[0] if ids else -1], dtype=np.float32)
            for k, ids in enumerate(r.candidates)
        }
        tokens = len(r.prefix) + sum(len(c) + 1 for c in r.candidates)
        return EngineResult(scores, {}, tokens)

    def hold(self):
        self.held = True
        self.at_gate.clear()

    def let_go(self):
        self.held = False
        self.gate.release(1000)

    def let_one_go(self):
        self.at_gate.clear()
        self.gate.release()


class Bench:
    """A batcher on a stub, and threads that call it."""

    def __init__(self):
        self.engine = StubEngine()
        self.lock = threading.RLock()
        self.batcher = Batcher(self.engine, self.lock)
        self.pool = ThreadPoolExecutor(32)

    def score(self, *requests, window=1000, **options):
        return self.batcher.score(
            requests, window=window, token_budget=BUDGET, concurrency=Concurrency(**options)
        )

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
        while len(self.batcher._queue.jobs) != number and time.monotonic() < until:
            time.sleep(0.001)
        assert len(self.batcher._queue.jobs) == number


@pytest.fixture
def bench():
    made = Bench()
    yield made
    made.engine.let_go()
    made.pool.shutdown()


def values(results):
    return [[float(r.scores[k, 0][0]) for k in range(len(r.scores))] for r in results]


def test_calls_that_wait_are_computed_together_and_get_their_own_results(bench) -> None:
    bench.occupied()
    calls = [bench.call(request(str(n), candidates=n)) for n in (1, 2, 3)]
    bench.waiting(4)
    bench.engine.let_go()
    assert [values(c.result(WAIT)) for c in calls] == [[[0.0]], [[0.0, 1.0]], [[0.0, 1.0, 2.0]]]
    assert len(bench.engine.rounds) == 2
    assert sorted(bench.engine.rounds[1]) == [("1", 1), ("2", 2), ("3", 3)]


def test_a_call_that_is_alone_fills_every_round(bench) -> None:
    assert values(bench.score(request(candidates=35))) == [[float(k) for k in range(35)]]
    assert [n for ((_, n),) in bench.engine.rounds] == [10, 10, 10, 5]


def test_a_call_that_fits_one_round_reaches_the_engine_as_it_is(bench) -> None:
    bench.score(request("a", 3), request("b", 2))
    assert bench.engine.rounds == [[("a", 3), ("b", 2)]]


def test_a_large_call_does_not_starve_a_small_one(bench) -> None:
    bench.engine.hold()
    large = bench.call(request("large", 10_000))
    assert bench.engine.at_gate.wait(WAIT)
    small = bench.call(request("small", 5))
    bench.waiting(2)
    bench.engine.let_one_go()
    assert bench.engine.at_gate.wait(WAIT)
    bench.engine.let_one_go()
    assert values(small.result(WAIT)) == [[0.0, 1.0, 2.0, 3.0, 4.0]]
    assert not large.done()
    bench.engine.let_go()
    assert len(large.result(WAIT)[0].scores) == 10_000


def test_equal_callers_advance_equally(bench) -> None:
    bench.occupied()
    calls = [bench.call(request(str(n), 20)) for n in range(4)]
    bench.waiting(5)
    bench.engine.let_go()
    for call in calls:
        call.result(WAIT)
    progress = dict.fromkeys("0123", 0)
    for turns in bench.engine.rounds[1:]:
        for name, number in turns:
            progress[name] += number
        assert max(progress.values()) - min(progress.values()) <= 10
    assert progress == dict.fromkeys("0123", 20)


def test_calls_with_other_limits_take_turns_and_are_not_merged(bench) -> None:
    bench.occupied()
    calls = [bench.call(request(str(n)), window=n) for n in (500, 600, 500)]
    bench.waiting(4)
    bench.engine.let_go()
    for call in calls:
        call.result(WAIT)
    assert [[name for name, _ in turns] for turns in bench.engine.rounds[1:]] in (
        [["500", "500"], ["600"]],
        [["600"], ["500", "500"]],
    )


def test_what_cannot_be_merged_takes_its_turn_too(bench) -> None:
    bench.engine.hold()
    large = bench.call(request("large", 1000))
    assert bench.engine.at_gate.wait(WAIT)
    alone = bench.pool.submit(
        bench.batcher.run, lambda: (bench.lock._is_owned(), len(bench.engine.rounds))
    )
    bench.waiting(2)
    bench.engine.let_go()
    owned, rounds = alone.result(WAIT)
    assert owned
    assert rounds <= 2
    large.result(WAIT)


def test_an_error_reaches_only_the_call_that_caused_it(bench) -> None:
    bench.occupied()
    good, bad, fine = (bench.call(request(name)) for name in ("good", "bad", "fine"))
    bench.waiting(4)
    bench.engine.let_go()
    assert values(good.result(WAIT)) == values(fine.result(WAIT)) == [[0.0]]
    with pytest.raises(ScoringError, match="this one is bad"):
        bad.result(WAIT)


def test_when_the_worker_dies_all_who_wait_are_told_and_the_next_call_works(bench) -> None:
    bench.occupied()
    calls = [bench.call(request(name)) for name in ("deadly", "a", "b")]
    bench.waiting(4)
    bench.engine.let_go()
    for call in calls:
        with pytest.raises(ModelError, match="the next call starts a new one"):
            call.result(WAIT)
    assert values(bench.score(request("next", 2))) == [[0.0, 1.0]]


def test_when_a_call_kills_the_worker_it_is_told(bench) -> None:
    with pytest.raises(ModelError, match="died"):
        bench.batcher.run(lambda: sys.exit(1))
    assert bench.batcher.run(lambda: 5) == 5


def test_a_deadline_ends_the_wait_and_the_work(bench) -> None:
    bench.engine.hold()
    late = bench.call(request("late", 1000), deadline_s=0.1)
    with pytest.raises(ModelTimeoutError, match="deadline_s"):
        late.result(WAIT)
    bench.engine.let_go()
    bench.score(request("next"))
    assert sum(n for turns in bench.engine.rounds for name, n in turns if name == "late") == 10


def test_a_deadline_holds_while_others_compute(bench) -> None:
    bench.occupied()
    with pytest.raises(ModelTimeoutError):
        bench.call(request(), deadline_s=0.05).result(WAIT)


def test_a_full_queue_refuses_or_lets_wait(bench) -> None:
    bench.occupied()
    with pytest.raises(ModelBusyError, match="max_waiting"):
        bench.score(request("no"), max_waiting=1, queue_timeout_s=0)
    with pytest.raises(ModelBusyError):
        bench.score(request("no"), max_waiting=1, queue_timeout_s=0.02)
    with pytest.raises(ModelTimeoutError):
        bench.score(request("no"), max_waiting=1, deadline_s=0.02)
    patient = bench.call(request("yes"), max_waiting=1)
    bench.engine.let_go()
    assert values(patient.result(WAIT)) == [[0.0]]
    assert ("no", 1) not in [turn for turns in bench.engine.rounds for turn in turns]


@pytest.mark.parametrize("bridge", ["ascore", "run_sync"])
async def test_a_cancelled_task_leaves_no_work_behind(bench, bridge) -> None:
    bench.engine.hold()
    options = {"window": 1000, "token_budget": BUDGET}
    work = [request("gone", 1000)]
    if bridge == "ascore":
        task = asyncio.create_task(bench.batcher.ascore(work, **options))
    else:
        task = asyncio.create_task(run_sync(bench.batcher.score, work, **options))
    await asyncio.to_thread(bench.engine.at_gate.wait, WAIT)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    bench.engine.let_go()
    await asyncio.to_thread(bench.score, request("next"))
    assert sum(n for turns in bench.engine.rounds for name, n in turns if name == "gone") == 10


async def test_many_tasks_share_rounds_without_threads_of_their_own(bench) -> None:
    first = bench.occupied()
    options = {"window": 1000, "token_budget": BUDGET}
    tasks = [
        asyncio.create_task(bench.batcher.ascore([request(str(n), 2)], **options))
        for n in range(20)
    ]
    await asyncio.sleep(0)
    await asyncio.to_thread(bench.waiting, 21)
    before = threading.active_count()
    bench.engine.let_go()
    assert [values(r) for r in await asyncio.gather(*tasks)] == [[[0.0, 1.0]]] * 20
    assert threading.active_count() <= before
    assert len(bench.engine.rounds) < 10
    first.result(WAIT)


async def test_tasks_wait_for_room_in_the_queue_and_for_their_deadline(bench) -> None:
    bench.occupied()
    options = {"window": 1000, "token_budget": BUDGET}

    def ask(**limits):
        concurrency = Concurrency(max_waiting=1, **limits)
        return bench.batcher.ascore([request()], **options, concurrency=concurrency)

    with pytest.raises(ModelBusyError):
        await ask(queue_timeout_s=0.02)
    with pytest.raises(ModelTimeoutError):
        await ask(deadline_s=0.03)
    with pytest.raises(ModelTimeoutError):
        await bench.batcher.ascore([request()], **options, concurrency=Concurrency(deadline_s=0.03))
    patient = asyncio.create_task(ask())
    await asyncio.sleep(0.03)
    bench.engine.let_go()
    assert values(await patient) == [[0.0]]


def test_a_round_waits_only_for_those_who_were_there_before() -> None:
    queue = _Queue(threading.RLock())
    engine = StubEngine()
    queue.jobs.append(Scoring(engine, [request()], 100, BUDGET, Concurrency(window_s=5.0)))
    queue.round_start, queue.round_end = time.monotonic() - 100.0, time.monotonic()
    assert queue._pause() == 0
    queue.company = 2
    assert 0 < queue._pause() <= 5.0
    queue.round_start = queue.round_end - 0.4
    assert queue._pause() <= 0.1
    queue.jobs.append(Scoring(engine, [request()], 100, BUDGET, Concurrency()))
    assert queue._pause() == 0


def test_a_lone_thread_that_cannot_start_a_worker_serves_itself(bench, monkeypatch) -> None:
    def no_more(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_more)
    assert values(bench.score(request(candidates=25))) == [[float(k) for k in range(25)]]


def test_an_idle_worker_keeps_no_engine_alive_and_ends_with_it() -> None:
    bench = Bench()
    bench.score(request())
    thread, engine = bench.batcher._queue.thread, weakref.ref(bench.engine)
    bench.pool.shutdown()
    del bench
    gc.collect()
    thread.join(WAIT)
    assert not thread.is_alive()
    assert engine() is None


@pytest.mark.parametrize(
    "options",
    [{"window_s": -1}, {"max_waiting": 0}, {"queue_timeout_s": -1}, {"deadline_s": 0}],
)
def test_options_out_of_range_are_refused(options) -> None:
    with pytest.raises(ConfigurationError):
        Concurrency(**options)


# How a request is cut.


@pytest.mark.parametrize("tokens", [1, 7, 30, 31, 64, 10_000])
def test_parts_add_up_to_the_whole(tokens) -> None:
    rng = np.random.default_rng(tokens)
    candidates = tuple(
        tuple(int(i) for i in rng.integers(1, 5, size=rng.integers(0, 6))) for _ in range(40)
    )
    continuations = (Continuation((1, 2, 3), ((2, 3),)), Continuation((1, 2, 4, 5), ((2, 4),)))
    whole = TokenRequest((9,) * 10, candidates, continuations)
    sliced, engine, fed = SlicedRequest(whole), StubEngine(), []
    while not sliced.taken:
        part = sliced.take(tokens)
        fed += part.candidates
        result = engine.result(part.request)
        if part.candidates[0] % 3 == 0:
            result.unscored[0] = "too long"
        sliced.put(part, result)
    assert sliced.done
    assert sliced.left == 0
    assert sorted(fed) == list(range(40))
    wanted = engine.result(whole)
    assert {k: float(v[0]) for k, v in sliced.result.scores.items()} == {
        k: float(v[0]) for k, v in wanted.scores.items()
    }
    assert all(k % 3 == 0 for k in sliced.result.unscored)


def test_a_prefix_that_is_computed_again_every_time_makes_longer_slices() -> None:
    sliced = SlicedRequest(request(candidates=500, prefix=80))
    sliced.put(first := sliced.take(100), EngineResult({}, {}, first.tokens))
    assert sliced.least == 10
    sliced.put(second := sliced.take(100), EngineResult({}, {}, second.tokens + 80))
    assert sliced.least == 320
    assert len(sliced.take(sliced.least).candidates) == 32


def test_a_model_without_shared_prefixes_is_charged_for_them() -> None:
    sliced = SlicedRequest(request(candidates=500, prefix=80))
    part = sliced.take(120)
    sliced.put(part, EngineResult({}, {}, part.tokens + 80 * (len(part.candidates) - 1)))
    assert sliced.least == 90
    assert sliced.left == 90 * (500 - len(part.candidates))


def test_leftovers_of_a_round_go_to_those_who_need_more() -> None:
    engine = StubEngine()
    jobs = [
        Scoring(engine, [request("small", 2)], 100, 200, Concurrency()),
        Scoring(engine, [request("large", 500)], 100, 200, Concurrency()),
    ]
    turns = share_out(jobs)
    assert [sum(part.tokens for part in parts) for _, parts in turns] == [20, 180]


# With a real model.


def texts(n):
    passages = (f" Passage {n} says bread.", f" The market number {n} is closed.", " Rome")
    return ScoreRequest(
        (Segment(f"Ann lives in house {n}."),),
        ((), *((Segment(p),) for p in passages)),
        ((Segment(" Question: where?"), Segment(" in Paris", scored=True)),),
    )


def sums(result):
    return [row[0][0].sum for row in result.scores]


@pytest.fixture(scope="module")
def lm():
    return LocalLM(model("llama"), tokenizer("byte_level"), token_budget=256)


def test_concurrent_results_equal_serial_ones(lm) -> None:
    requests = [texts(n) for n in range(24)]
    serial = [sums(lm.score([r])[0]) for r in requests]
    with ThreadPoolExecutor(12) as pool:
        merged = list(pool.map(lambda r: sums(lm.score([r])[0]), requests))
    np.testing.assert_allclose(merged, serial, atol=2e-5)


async def test_tasks_get_what_threads_get(lm) -> None:
    requests = [texts(n) for n in range(8)]
    results = await asyncio.gather(*(lm.ascore([r]) for r in requests))
    serial = [sums(lm.score([r])[0]) for r in requests]
    np.testing.assert_allclose([sums(r) for (r,) in results], serial, atol=2e-5)


def test_a_sliced_call_equals_one_in_one_piece(lm) -> None:
    many = ScoreRequest(
        (Segment("Ann lives in a house with a garden near the sea, says Bob. " * 2),),
        tuple((Segment(f" Line {n % 37} of {n % 5}."),) for n in range(60)),
        ((Segment(" So"), Segment(" Paris", scored=True)), (Segment(" So Rome", scored=True),)),
    )
    whole = LocalLM(model("llama"), tokenizer("byte_level"), token_budget=10**6)
    np.testing.assert_allclose(
        [[m[0].sum for m in row] for row in lm.score([many])[0].scores],
        [[m[0].sum for m in row] for row in whole.score([many])[0].scores],
        atol=2e-5,
    )


def test_generation_and_scoring_exclude_each_other_and_both_end(lm) -> None:
    with ThreadPoolExecutor(6) as pool:
        scored = [pool.submit(lm.score, [texts(n)]) for n in range(6)]
        written = pool.submit(lm.generate, [(Segment("Ann"),)], max_new_tokens=3)
        assert written.result(WAIT)[0].completion_tokens > 0
        assert all(call.result(WAIT) for call in scored)


def test_deadlines_of_a_handle_and_of_a_call() -> None:
    lm = LocalLM(model("llama"), tokenizer("byte_level"), concurrency=Concurrency(deadline_s=1e-6))
    with pytest.raises(ModelTimeoutError):
        lm.score([texts(0)])
    assert lm.score([texts(0)], deadline_s=WAIT)


def test_close_during_a_call_lets_it_finish() -> None:
    lm = LocalLM(model("llama"), tokenizer("byte_level"))
    runtime = lm._load()
    with ThreadPoolExecutor(1) as pool:
        with runtime.lock:
            call = pool.submit(lm.score, [texts(1)])
            until = time.monotonic() + WAIT
            while not runtime.batcher._queue.jobs and time.monotonic() < until:
                time.sleep(0.001)
            lm.close()
        del runtime
        assert sums(call.result(WAIT)[0])
    with pytest.raises(ModelError, match="was closed"):
        lm.score([texts(1)])


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork on this platform")
def test_a_child_forked_after_the_model_computed_scores_and_generates() -> None:
    code = """
        import os, signal, sys, threading, warnings
        warnings.simplefilter("ignore")
        import torch
        sys.path.insert(0, sys.argv[1])
        from test_batching import LocalLM, Segment, model, sums, texts, tokenizer
        signal.alarm(90)
        torch.set_num_threads(2)
        lm = LocalLM(model("llama"), tokenizer("byte_level"))
        wanted = sums(lm.score([texts(1)])[0])
        torch.rand(600, 600) @ torch.rand(600, 600)  # an OpenMP team in the thread that forks
        torch.rand(10**6).exp()
        stop = threading.Event()
        def busy():
            while not stop.is_set():
                lm.score([texts(2)])
        threads = [threading.Thread(target=busy) for _ in range(2)]
        for thread in threads: thread.start()
        for _ in range(3):
            child = os.fork()
            if not child:
                signal.alarm(30)
                big = lm._load().batcher.run(lambda: (torch.rand(10**6).exp() > 0).all().item())
                lm.generate([(Segment("Ann"),)], max_new_tokens=2)
                got = sums(lm.score([texts(1)])[0])
                same = all(abs(a - b) < 2e-5 for a, b in zip(got, wanted, strict=True))
                os._exit(0 if same and big else 7)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        stop.set()
        for thread in threads: thread.join(20)
        assert lm.score([texts(3)])
        print("parent works")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.split("\n")[:-1] == ["0", "0", "0", "parent works"], done.stderr


def test_a_call_dropped_for_nobody_waits_does_not_raise_into_the_worker(bench) -> None:
    bench.occupied()
    future = bench.batcher.submit([request("x")], window=1000, token_budget=BUDGET)
    assert future.cancel()
    bench.engine.let_go()
    with pytest.raises(CancelledError):
        future.result()
    assert values(bench.score(request("y"))) == [[0.0]]


def test_the_benchmark_compares_the_same_scores_and_reports_latencies(lm) -> None:
    from benchmarks.engine.concurrency import measure_concurrency

    (row,) = measure_concurrency(lm, callers=(4,), calls_per_caller=2, repeats=2)
    assert (row.callers, row.calls, row.repeats) == (4, 8, 2)
    assert row.error < 1e-4
    assert 0 < row.p50_s <= row.p99_s
    assert row.speedup[1] <= row.speedup[0] <= row.speedup[2]
    assert set(row.to_dict()) >= {"speedup", "cpu_speedup", "p99_s"}
