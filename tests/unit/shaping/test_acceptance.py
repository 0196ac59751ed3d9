import numpy as np
import pytest

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.shaping import ContextShaper, ShapingConfig
from ecs_plugins.shaping.acceptance import Budget, Limits, NearRepetitions, Sizes
from ecs_plugins.shaping.signals.base import UnitUtility
from tests.unit.shaping.outcomes import accepted, kept, verdicts
from tests.unit.values import changeable

QUESTION = "In which country was the founder of the firm born?"
FOUNDER = "The firm was founded by Mia Lund."
BORN = "Mia Lund was born in Chile."
FOUNDER_AGAIN = "It was Mia Lund who set the firm up."
NOISE = "The firm has a blue roof."


def two_hops(context, text):
    """The second hop helps only once the first is known; each fact counts once."""
    founder = "founded" in context or "set the firm up" in context
    born = founder and "born in Chile" in context
    return -9.0 + 2.0 * founder + 5.0 * born


def shape(passages, logprob=two_hops, **settings):
    model = FakeLanguageModel(logprob)
    config = ShapingConfig(redundancy_similarity=None, **settings)
    return ContextShaper(model, config).shape(QUESTION, passages, answer="Chile"), model


def test_independent_misses_the_second_hop_and_keeps_the_repetition():
    result, model = shape([FOUNDER, BORN, FOUNDER_AGAIN, NOISE])
    assert verdicts(result) == ["helps", "neutral", "helps", "neutral"]
    assert len(model.requests) == 1


def test_stream_takes_passages_in_the_given_order_and_lets_them_join_the_context():
    forwards, model = shape([FOUNDER, BORN, FOUNDER_AGAIN], acceptance="stream")
    assert verdicts(forwards) == ["helps", "helps", "neutral"]
    prefix = "".join(segment.text for segment in model.requests[1].prefix)
    assert FOUNDER in prefix
    backwards, _ = shape([BORN, FOUNDER], acceptance="stream")
    assert verdicts(backwards) == ["neutral", "helps"]


def test_stream_skips_passages_that_cannot_be_kept():
    result, model = shape(
        [FOUNDER, BORN, NOISE],
        acceptance="stream",
        top_k=1,
    )
    assert verdicts(result) == ["helps", "unscored", "unscored"]
    assert kept(result) == [0]
    assert "top_k" in result.verdicts[1].reason
    assert len(model.requests) == 1


def test_stream_needs_a_threshold():
    model = FakeLanguageModel()
    with pytest.raises(ConfigurationError, match="threshold"):
        ContextShaper(model, ShapingConfig(acceptance="stream")).shape(QUESTION, [FOUNDER])


def test_the_papers_configuration_is_algorithm_1_with_the_constants_of_table_2():
    config = ShapingConfig.paper()
    assert (config.acceptance, config.signal) == ("stream", "answer_shift")
    assert (config.threshold, config.length_penalty) == (0.05, 0.002)
    assert config.redundancy_similarity == 0.85
    result = ContextShaper(FakeLanguageModel(two_hops), config).shape(
        QUESTION, [FOUNDER, BORN, NOISE], answer="Chile"
    )
    assert verdicts(result) == ["helps", "helps", "neutral"]
    assert result.verdicts[0].utility == pytest.approx(2.0 - 0.002 * result.verdicts[0].tokens)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pool_size", 0),
        ("threshold", float("nan")),
        ("redundancy_similarity", 1.5),
        ("acceptance", "best"),
        ("top_k", "5"),
        ("seed", True),
        ("budget_s", 0.0),
        ("unknown", 1),
    ],
)
def test_settings_out_of_range_or_unknown_are_refused_by_name(name, value):
    with pytest.raises(ConfigurationError, match=name):
        ShapingConfig(**{name: value})


def test_numbers_of_numpy_are_numbers():
    config = ShapingConfig(top_k=np.int64(3), threshold=np.float32(0.5))
    assert (config.top_k, config.threshold) == (3, 0.5)


@pytest.mark.parametrize("part", ["signal", "ranker"])
@pytest.mark.parametrize("value", ["magic", 7])
def test_parts_that_are_no_parts_are_refused(part, value):
    with pytest.raises(ConfigurationError, match=f"{part} must be one of"):
        ShapingConfig(**{part: value})


def test_places_of_acceptance_follow_the_scores_and_of_a_stream_the_input():
    passages = [FOUNDER_AGAIN, NOISE, FOUNDER]
    independent, _ = shape(passages)
    best_first = [v.index for v in independent.ranked if v.kept]
    assert accepted(independent) == best_first
    streamed, _ = shape(passages, acceptance="stream")
    assert accepted(streamed) == sorted(v.index for v in streamed.kept)
    assert [v.to_dict()["place"] for v in independent.verdicts if not v.kept] == [None]


LIMITS = Limits(
    threshold=0.5,
    top_k=2,
    unit="nats",
    budget=Budget(tokens=10),
)


@pytest.mark.parametrize(
    ("utility", "verdict"),
    [
        (0.5, "helps"),
        (0.49, "neutral"),
        (-0.5, "neutral"),
        (-0.51, "hurts"),
    ],
)
def test_at_the_threshold_a_passage_helps_and_at_minus_the_threshold_it_is_neutral(
    utility, verdict
):
    decision = LIMITS.decide(
        UnitUtility(utility),
        place=1,
        of=1,
    )
    assert str(decision.verdict) == verdict
    assert decision.kept == (verdict == "helps")


def test_the_budget_is_exact_to_the_token():
    sizes = Sizes(tokens=[4, 6, 7], characters=[0, 0, 0])
    assert LIMITS.no_room([0], 1, sizes) is None
    too_long = LIMITS.no_room([0], 2, sizes)
    assert too_long.setting == "max_tokens"
    assert "exceed the 6 that are left of max_tokens (10" in too_long.reason
    too_many = LIMITS.no_room([0, 1], 2, sizes)
    assert too_many.setting == "top_k"
    assert "top_k" in too_many.reason


def test_a_passage_as_similar_as_the_limit_repeats_and_one_less_similar_does_not():
    passages = {3: "the tram was late again", 7: "the tram was late today"}
    rows = NearRepetitions(passages, 1.0)._rows
    cosine = float((rows @ rows.T).toarray()[0, 1])
    assert NearRepetitions(passages, cosine).of(7, [3]) == 3
    assert NearRepetitions(passages, cosine + 1e-9).of(7, [3]) is None


def test_shared_objects_are_immutable():
    assert changeable("shaping") == {"PassageScoring"}  # filled while a call runs
