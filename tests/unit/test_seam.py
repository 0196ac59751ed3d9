import numpy as np
import pytest

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.lm.base import LanguageModel, ScoreRequest, Segment, SegmentScore
from ecs_plugins.lm.fake import FakeLanguageModel

ANSWER = (Segment("\nAnswer:", trusted=True), Segment(" in Rome", scored=True))


def test_the_fake_is_a_language_model() -> None:
    assert isinstance(FakeLanguageModel(), LanguageModel)


def test_a_passage_that_holds_the_answer_raises_its_log_probability() -> None:
    request = ScoreRequest((), ((), (Segment("She lives in Rome."),)), (ANSWER,))
    (result,) = FakeLanguageModel().score([request])
    base, helped = (row[0][0].sum for row in result.scores)
    assert helped == pytest.approx(-2.0)
    assert base == pytest.approx(-6.0)


def test_the_fake_diverges_by_what_a_passage_brings() -> None:
    passages = ((), (Segment("Bern"),), (Segment("She lives in Rome."),))
    request = ScoreRequest((Segment("Bern."),), passages, (ANSWER,), divergence=True)
    (result,) = FakeLanguageModel().score([request])
    base, known, new = (row[0][0].divergence for row in result.scores)
    assert base.sum() == known.sum() == pytest.approx(0.0)
    assert new.sum() > 0.01


def test_a_candidate_longer_than_the_window_is_unscored_with_a_reason() -> None:
    request = ScoreRequest((), ((Segment("word " * 50),), ()), (ANSWER,))
    (result,) = FakeLanguageModel(max_tokens=20).score([request])
    assert "window of 20" in result.unscored[0]
    assert np.isnan(result.scores[0][0][0].sum)
    assert np.isfinite(result.scores[1][0][0].sum)


@pytest.mark.parametrize(
    ("prefix", "candidates", "continuations"),
    [
        ((), (), (ANSWER,)),
        ((), ((),), ()),
        ((), ((),), ((Segment("x"),),)),
        ((Segment("x", scored=True),), ((),), (ANSWER,)),
        ((), ((Segment("x", scored=True),),), (ANSWER,)),
    ],
)
def test_a_malformed_request_is_refused(prefix, candidates, continuations) -> None:
    with pytest.raises(InvalidInputError):
        ScoreRequest(prefix, candidates, continuations)


def test_the_mean_of_a_segment_is_per_token() -> None:
    score = SegmentScore(np.array([-1.0, -3.0], dtype=np.float32))
    assert (score.sum, score.mean, score.tokens) == (-4.0, -2.0, 2)
