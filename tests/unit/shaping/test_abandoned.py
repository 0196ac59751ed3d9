"""Abandoned work, and the cost of the question."""

import asyncio
import contextvars
import threading

import pytest

from ecs_plugins.common import aio
from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.ranking.base import Ranking
from ecs_plugins.shaping import ContextShaper, ShapingConfig, copies
from ecs_plugins.shaping.reading import Question, read_passages

QUESTION = "When does the ferry leave?"
PASSAGES = [f"The ferry number {number} leaves at nine." for number in range(30)]


class Halting:
    """A ranker that waits until it is let go."""

    name = "halting"

    def __init__(self):
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def rank(self, query, passages):
        self.begun.set()
        self.go_on.wait(20)
        return Ranking.from_scores([float(-index) for index in range(len(passages))])


async def test_the_model_is_not_asked_once_the_caller_has_left():
    model, ranker = FakeLanguageModel(), Halting()
    config = ShapingConfig(
        ranker=ranker,
        signal="query_likelihood",
        pool_size=5,
    )
    task = asyncio.create_task(ContextShaper(model, config).ashape(QUESTION, PASSAGES))
    await asyncio.to_thread(ranker.begun.wait, 20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    ranker.go_on.set()
    await asyncio.sleep(0.2)
    assert model.requests == []


def test_nothing_more_is_read_once_the_caller_has_left():
    left = threading.Event()
    left.set()

    def read(config):
        aio._abandoned.set(left)
        read_passages(Question(QUESTION, PASSAGES), config, FakeLanguageModel())

    with pytest.raises(asyncio.CancelledError):
        contextvars.copy_context().run(read, ShapingConfig())


def test_a_question_is_split_once_for_all_passages():
    copies._asked.cache_clear()
    config = ShapingConfig(ranker=None, signal="query_likelihood")
    ContextShaper(FakeLanguageModel(), config).shape(QUESTION, PASSAGES)
    assert copies._asked.cache_info().misses == 1
