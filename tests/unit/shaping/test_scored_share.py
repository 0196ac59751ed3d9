"""Where only the best by the ranker are scored."""

import pytest

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.ranking.base import Ranking
from ecs_plugins.shaping import ContextShaper, ShapingConfig, Verdict
from ecs_plugins.shaping.config import MIN_SCORED
from tests.unit.shaping.outcomes import scored

ASKED = "Where does Anna live in Rome?"
PASSAGES = [f"Anna took tram {n} to the {'old ' * n}harbour." for n in range(30)]


class Backwards:
    """The last passage is the best."""

    name = "backwards"

    def rank(self, query, passages):
        return Ranking.from_scores(len(passage) for passage in passages)


def shape(passages=PASSAGES, **settings):
    model = FakeLanguageModel()
    config = ShapingConfig(**{"ranker": Backwards(), "top_k": 3, **settings})
    return ContextShaper(model, config).shape(ASKED, passages), model


def test_what_is_scored_gets_the_numbers_that_it_gets_where_everything_is_scored():
    slow, _ = shape(signal="query_likelihood+bm25")
    fast, _ = shape(signal="query_likelihood+bm25", scored_share=0.5)
    among = {verdict.index: verdict for verdict in slow.verdicts}
    assert [verdict.index for verdict in scored(fast)] == list(range(15, 30))
    for verdict in scored(fast):
        whole = among[verdict.index]
        assert verdict.utility == whole.utility
        assert verdict.parts["ranker_z"] == pytest.approx(whole.parts["ranker_z"])
        assert verdict.parts["shared_words"] == whole.parts["shared_words"]
        assert verdict.rank == 30 - verdict.index
    assert fast.ledger.total() < 0.6 * slow.ledger.total()


def test_what_is_not_scored_says_why_and_is_counted():
    shaped, _ = shape(scored_share=0.5)
    others = [verdict for verdict in shaped.verdicts if verdict.index < 15]
    for verdict in others:
        assert verdict.verdict is Verdict.UNSCORED
        assert not verdict.kept
        assert "scored_share" in verdict.reason
        assert f"number {verdict.rank}" in verdict.reason
    saved = sum(verdict.tokens for verdict in others)
    assert shaped.tokens_saved == saved > 0
    assert shaped.to_dict()["tokens"]["saved"] == saved
    assert f"{saved} tokens of passages were not scored" in shaped.explain()


def test_what_the_ranker_does_not_pass_on_is_told_apart_from_it():
    shaped, _ = shape(scored_share=0.5, pool_size=26)
    reasons = [verdict.reason for verdict in shaped.verdicts]
    assert all("passed on" in reason for reason in reasons[:4])
    assert all("scored_share" in reason for reason in reasons[4:17])
    assert len(scored(shaped)) == 13


@pytest.mark.parametrize(
    ("number", "share", "expected"), [(30, 1.0, 30), (30, 0.1, 12), (9, 0.5, 9)]
)
def test_short_lists_are_scored_whole(number, share, expected):
    shaped, _ = shape(PASSAGES[:number], scored_share=share)
    assert len(scored(shaped)) == expected
    assert expected in (number, MIN_SCORED)
    assert bool(shaped.tokens_saved) is (expected < number)


def test_sentences_are_compared_with_each_other_alone():
    text = "It rained. Anna lives in Rome. The tram was late, they say, and nobody minded it. Rain."
    long = [*PASSAGES, f"{text} {'So it was. ' * 60}"]
    slow, _ = shape(long, unit="sentence", top_k=1, signal="query_likelihood+bm25")
    fast, _ = shape(
        long, unit="sentence", top_k=1, scored_share=0.5, signal="query_likelihood+bm25"
    )
    assert fast.kept
    assert fast.text == slow.text


@pytest.mark.parametrize("settings", [{"ranker": None}, {"acceptance": "stream", "threshold": 0.1}])
def test_without_an_order_known_before_it_is_refused(settings):
    with pytest.raises(ConfigurationError, match="scored_share"):
        ShapingConfig(scored_share=0.5, **settings)
