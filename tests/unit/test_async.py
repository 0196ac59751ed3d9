import asyncio
import contextvars
import os
import threading
import time

import pytest

from ecs_plugins.common.aio import (
    MAX_WORKERS,
    abandoned,
    check_awaited,
    run_memory,
    run_sync,
    run_within,
)
from ecs_plugins.errors import ModelBusyError, StorageError

request_id = contextvars.ContextVar("request_id", default="none")


async def test_context_variables_are_seen_and_do_not_leak_back():
    def work():
        seen = request_id.get()
        request_id.set("changed")
        return seen

    request_id.set("r-1")
    assert await run_sync(work) == "r-1"
    assert request_id.get() == "r-1"


async def test_a_memory_never_waits_behind_models(monkeypatch):
    release = threading.Event()
    scorings = [asyncio.create_task(run_sync(release.wait, 20)) for _ in range(2 * MAX_WORKERS)]
    assert await asyncio.wait_for(run_memory(lambda: "recalled"), 10) == "recalled"
    release.set()
    await asyncio.gather(*scorings)


async def test_no_more_threads_than_the_bound():
    running, most, lock = 0, 0, threading.Lock()

    def work():
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.005)
        with lock:
            running -= 1

    await asyncio.gather(*(run_sync(work) for _ in range(4 * MAX_WORKERS)))
    assert 1 < most <= MAX_WORKERS


@pytest.mark.parametrize(("run", "error"), [(run_sync, ModelBusyError), (run_memory, StorageError)])
async def test_one_call_too_many_is_refused_and_later_ones_are_served(monkeypatch, run, error):
    for kind in ("MODEL", "MEMORY"):
        monkeypatch.setenv(f"ECS_PLUGINS_{kind}_WAITING", "3")
    release = threading.Event()
    waiting = [asyncio.create_task(run(release.wait, 20)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(error, match="raise ECS_PLUGINS_"):
        await run(lambda: None)
    release.set()
    await asyncio.gather(*waiting)
    assert await run(lambda: 7) == 7


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_gets_threads_of_its_own():
    asyncio.run(run_sync(lambda: None))
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if asyncio.run(asyncio.wait_for(run_sync(lambda: 7), 10)) == 7 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


async def test_a_call_that_nobody_awaits_ends_at_its_next_step():
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work():
        begun.set()
        go_on.wait(20)
        try:
            check_awaited()
        except asyncio.CancelledError:
            ended.set()

    task = asyncio.create_task(run_sync(work))
    await asyncio.to_thread(begun.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    assert await asyncio.to_thread(ended.wait, 20)
    check_awaited()  # outside of a call there is nobody to wait


# A limit on how long somebody waits


def test_a_call_in_time_returns_and_sees_the_callers_context():
    request_id.set("r-2")
    assert run_within(10, request_id.get) == "r-2"
    with pytest.raises(ZeroDivisionError):
        run_within(10, lambda: 1 / 0)


def test_a_call_after_the_timeout_is_left_and_notified():
    ended = threading.Event()

    def work():
        left = abandoned()
        left.wait(10)
        try:
            check_awaited()
        except asyncio.CancelledError:
            ended.set()

    with pytest.raises(TimeoutError):
        run_within(0.02, work)
    assert ended.wait(10)
