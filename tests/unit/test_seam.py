import numpy as np
import pytest

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.lm.base import LanguageModel, ScoreRequest, ScoreResult, Segment, SegmentScore
from ecs_plugins.lm.fake import FakeLanguageModel

NOTHING = ((),)
SCORED = (Segment("x", scored=True),)
UNSCORED = (Segment("x"),)
ANSWER = (Segment("\nAnswer:", trusted=True), Segment(" in Rome", scored=True))


def first_segments(result: ScoreResult) -> list[SegmentScore]:
    """For each candidate, the score of the first segment of the first continuation."""
    return [continuations[0][0] for continuations in result.scores]


def test_the_fake_is_a_language_model() -> None:
    assert isinstance(FakeLanguageModel(), LanguageModel)


def test_a_passage_that_holds_the_answer_raises_its_log_probability() -> None:
    nothing = ()
    passage = (Segment("She lives in Rome."),)
    request = ScoreRequest((), (nothing, passage), (ANSWER,))
    (result,) = FakeLanguageModel().score([request])
    base, helped = first_segments(result)
    assert helped.sum == pytest.approx(-2.0)
    assert base.sum == pytest.approx(-6.0)


def test_the_fake_diverges_by_the_new_words_of_a_passage() -> None:
    prefix = (Segment("Bern."),)
    nothing = ()
    repetition = (Segment("Bern"),)
    news = (Segment("She lives in Rome."),)
    candidates = (nothing, repetition, news)
    request = ScoreRequest(prefix, candidates, (ANSWER,), divergence=True)
    (result,) = FakeLanguageModel().score([request])
    sums = [segment.divergence.sum() for segment in first_segments(result)]
    assert sums[0] == sums[1] == pytest.approx(0.0)
    assert sums[2] > 0.01


def test_a_candidate_longer_than_the_window_is_unscored_with_a_reason() -> None:
    too_long = (Segment("word " * 50),)
    nothing = ()
    request = ScoreRequest((), (too_long, nothing), (ANSWER,))
    (result,) = FakeLanguageModel(max_tokens=20).score([request])
    unscored, scored = first_segments(result)
    assert "window of 20" in result.unscored[0]
    assert np.isnan(unscored.sum)
    assert np.isfinite(scored.sum)


@pytest.mark.parametrize(
    ("prefix", "candidates", "continuations"),
    [
        ((), (), (ANSWER,)),
        ((), NOTHING, ()),
        ((), NOTHING, (UNSCORED,)),
        (SCORED, NOTHING, (ANSWER,)),
        ((), (SCORED,), (ANSWER,)),
    ],
)
def test_a_malformed_request_is_refused(prefix, candidates, continuations) -> None:
    with pytest.raises(InvalidInputError):
        ScoreRequest(prefix, candidates, continuations)


def test_the_mean_of_a_segment_is_per_token() -> None:
    logprobs = np.array([-1.0, -3.0], dtype=np.float32)
    score = SegmentScore(logprobs)
    assert score.sum == -4.0
    assert score.mean == -2.0
    assert score.tokens == 2
