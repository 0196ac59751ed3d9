import time

import pytest

from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.shaping import SIGNALS, ContextShaper, ShapingConfig, Verdict
from ecs_plugins.shaping.config import make_signal
from ecs_plugins.shaping.deadline import ScoredOnce
from ecs_plugins.shaping.signals.base import ScoringTask
from tests.unit.shaping.outcomes import kept, scored, scores

PASSAGES = [f"The tram number {n} was late in town{n}." for n in range(30)]
PASSAGES[20] = "Anna lives in Rome."
ASKED = "Where does Anna live in Rome?"


class Slow(FakeLanguageModel):
    """Takes a hundredth of a second for each candidate."""

    def score(self, requests):
        time.sleep(0.01 * sum(len(request.candidates) for request in requests))
        return super().score(requests)


def shape(model=None, passages=PASSAGES, **settings):
    config = ShapingConfig(ranker="bm25", **settings)
    return ContextShaper(model or FakeLanguageModel(), config).shape(ASKED, passages)


@pytest.mark.parametrize("unit", ["passage", "sentence"])
def test_what_there_is_time_for_is_scored_the_best_by_stage_1_first(unit):
    shaped = shape(
        Slow(),
        budget_s=0.05,
        unit=unit,
    )
    in_time = scored(shaped)
    late = [v for v in shaped.verdicts if "the time was up" in v.reason]
    assert shaped.timed_out
    assert shaped.to_dict()["timed_out"]
    assert "the time was up" in shaped.explain()
    assert 2 <= len(in_time) < len(PASSAGES)
    assert len(in_time) + len(late) == len(PASSAGES)
    assert {v.verdict for v in late} == {Verdict.UNSCORED}
    assert max(v.rank for v in in_time) < min(v.rank for v in late)
    assert shaped.verdicts[20].kept


@pytest.mark.parametrize("acceptance", ["greedy", "stream"])
def test_every_way_to_accept_ends_in_time_and_keeps_what_was_found(acceptance):
    slow = Slow(lambda context, text: -1.0 if "Anna" in context else -5.0)
    passages = PASSAGES[20:] + PASSAGES[:20]
    shaped = shape(
        slow,
        passages,
        budget_s=0.05,
        acceptance=acceptance,
        signal="query_likelihood+bm25",
        threshold=0.5,
        conversation=False,
    )
    assert kept(shaped) == [0]


@pytest.mark.parametrize("signal", [*SIGNALS, "query_likelihood+bm25"])
def test_with_time_enough_the_result_is_that_without_a_limit(signal):
    def verdicts(**settings):
        config = ShapingConfig(
            signal=signal,
            ranker="bm25",
            pool_size=29,
            **settings,
        )
        answer = "Rome" if make_signal(signal).needs_answer else None
        return ContextShaper(FakeLanguageModel(), config).shape(ASKED, PASSAGES, answer=answer)

    limited, free = verdicts(budget_s=60.0), verdicts()
    assert not limited.timed_out
    assert [v.kept for v in limited.verdicts] == [v.kept for v in free.verdicts]
    assert scores(limited) == pytest.approx(scores(free))


def test_a_candidate_is_computed_once_whatever_stands_beside_it():
    model = ScoredOnce(FakeLanguageModel())
    (request,) = SIGNALS["query_likelihood"]().requests(
        ScoringTask(ASKED, ("a", "b")), model.layout
    )
    first = model.score([request])[0]
    again = model.score([request])[0]
    assert first.computed_tokens > again.computed_tokens == 0
    assert first.candidate_tokens == again.candidate_tokens
    assert len(again.scores) == 3
