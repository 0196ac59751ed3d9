"""A fast copy of the model scores every passage; kept is what the model alone would keep."""

import json
import math
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.lm.screening import SCORED_TWICE
from ecs_plugins.shaping import ContextShaper, ShapingConfig
from ecs_plugins.tokens import Role, Stage

QUESTION = "Which number is the largest?"
WORDS = ("north", "south", "river", "tower", "garden", "market", "bridge", "harbour")


def draw(text, seed):
    """A repeatable number from -1 to 1."""
    return zlib.crc32(f"{seed} {text}".encode()) / 2**31 - 1


def worth(context, text):
    """What stands last before the question decides, and every passage before it a little."""
    return -5.0 + 2.0 * draw(context, 1) + 0.5 * draw(context + text, 2)


class Screened(FakeLanguageModel):
    """A model with a copy that is a little off, and too low behind every passage."""

    def __init__(self, off=0.01, *, bias=0.0, **options) -> None:
        super().__init__(worth, **options)

        def fast(context, text):
            rounding = off * draw(context + text, 3) - bias * ("Passage" in context)
            return worth(context, text) + rounding

        self.screen = FakeLanguageModel(fast, **options)


def passages(number, repeated=0):
    out = [f"{WORDS[n % 8]} {WORDS[n // 8 % 8]} number {n}" for n in range(number)]
    return [*out, *(f"{text} ," for text in out[:repeated])]


def shape(model, texts, **chosen):
    config = ShapingConfig(**{"ranker": None, "pool_size": 200, "on_error": "raise"} | chosen)
    return ContextShaper(model, config).shape(QUESTION, texts, answer="the last")


def alone(model, texts, **chosen):
    return shape(FakeLanguageModel(model._logprob), texts, **chosen)


def kept(result):
    return [(v.index, v.utility, v.score, v.reason) for v in result.kept]


def order(result):
    return [v.index for v in result.ranked if v.kept]


SETTINGS = st.fixed_dictionaries(
    {
        "top_k": st.sampled_from([1, 3, 5, None]),
        "threshold": st.sampled_from([None, 0.1, 0.5]),
        "max_tokens": st.sampled_from([None, 12, 30]),
        "length_penalty": st.sampled_from([0.0, 0.05]),
        "redundancy_similarity": st.sampled_from([None, 0.5]),
        "signal": st.sampled_from(["answer_shift", "joint_shift"]),
    }
)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(24, 48),
    st.integers(0, 12),
    st.sampled_from([0.01, 0.1, 1.0]),
    SETTINGS,
)
def test_what_is_kept_is_what_the_model_alone_keeps_if_the_margin_held(
    number, repeated, off, chosen
):
    model, texts = Screened(off), passages(number, repeated)
    exact, fast = alone(model, texts, **chosen), shape(model.screen, texts, **chosen)
    found = shape(model, texts, **chosen)
    if found.screening is not None:
        for ours, theirs in zip(exact.verdicts, fast.verdicts, strict=True):
            if ours.score is None or ours.index in found.screening.exact:
                continue
            if abs(ours.score - theirs.score) > found.screening.margin:
                return
            if abs(ours.utility - theirs.utility) > found.screening.utility_margin:
                return
    assert order(found) == order(exact)
    assert [v.utility for v in found.kept] == pytest.approx([v.utility for v in exact.kept])


def test_only_those_that_can_be_kept_are_scored_twice():
    model, texts = Screened(0.001), passages(40)
    found = shape(model, texts, signal="answer_shift", top_k=3)
    assert kept(found) == kept(alone(model, texts, signal="answer_shift", top_k=3))
    asked = sum(len(request.candidates) - 1 for request in model.requests)
    assert asked == len(found.screening.exact) == SCORED_TWICE
    assert found.screening.passages == 40
    assert 0.0 < found.screening.margin < 0.01
    assert {v.index for v in found.kept} <= set(found.screening.exact)


def test_the_tokens_of_both_models_are_booked():
    model, texts = Screened(), passages(24)
    found = shape(model, texts, signal="answer_shift", top_k=3)
    computed = [m.score(list(m.requests)) for m in (model, model.screen)]
    spent = sum(result.computed_tokens for results in computed for result in results)
    assert found.ledger.total(Stage.QUERY, Role.SCORER) == spent


def test_a_rounding_as_large_as_the_differences_costs_time_and_not_the_order():
    model, texts = Screened(5.0), passages(30)
    found = shape(model, texts, signal="answer_shift", top_k=3)
    assert len(found.screening.exact) == 30
    assert kept(found) == kept(alone(model, texts, signal="answer_shift", top_k=3))


def test_a_threshold_alone_rules_out_those_that_cannot_reach_it():
    model, texts = Screened(0.001), passages(60)
    chosen = {"signal": "answer_shift", "threshold": 0.3, "redundancy_similarity": None}
    found = shape(model, texts, **chosen)
    assert kept(found) == kept(alone(model, texts, **chosen))
    assert 8 < len(found.kept) <= len(found.screening.exact) < 60


@pytest.mark.parametrize("rounds", [2, 3])
def test_greedy_accepts_what_the_model_alone_accepts_in_every_round(rounds):
    model, texts = Screened(0.001), passages(30)
    chosen = {
        "signal": "answer_shift",
        "top_k": 3,
        "acceptance": "greedy",
        "greedy_rounds": rounds,
    }
    found, exact = shape(model, texts, **chosen), alone(model, texts, **chosen)
    assert kept(found) == kept(exact)
    assert len(found.screening.exact) < 30


def test_the_default_signal_of_a_question_can_be_screened():
    model, texts = Screened(0.001), passages(40)
    config = ShapingConfig(top_k=3, ranker=None)
    found = ContextShaper(model, config).shape(QUESTION, texts)
    exact = ContextShaper(FakeLanguageModel(worth), config).shape(QUESTION, texts)
    assert order(found) == order(exact)
    assert len(found.screening.exact) < 40


def test_a_close_call_between_passages_that_are_compared_with_each_other_is_decided_exactly():
    config = ShapingConfig(top_k=5, ranker=None, redundancy_similarity=None)
    rescored = []
    for seed in (4, 6, 7, 8):
        texts = [
            text + f" {seed}" + " is the largest" * (n % 3 == 0) + " which" * (n % 5 == 0)
            for n, text in enumerate(passages(40))
        ]
        found = ContextShaper(Screened(0.02, bias=0.5), config).shape(QUESTION, texts)
        exact = ContextShaper(FakeLanguageModel(worth), config).shape(QUESTION, texts)
        assert order(found) == order(exact)
        rescored.append(len(found.screening.exact) == 40)
    assert set(rescored) == {True, False}


@pytest.mark.parametrize(
    ("number", "chosen"),
    [
        (23, {"top_k": 3}),
        (40, {"top_k": 14}),
        (40, {"acceptance": "stream", "threshold": 0.5}),
        (40, {"max_tokens": 50, "signal": "query_likelihood"}),
    ],
)
def test_where_too_little_can_be_ruled_out_the_model_scores_alone(number, chosen):
    model, texts = Screened(), passages(number)
    found = shape(model, texts, **{"signal": "answer_shift", **chosen})
    assert found.screening is None
    assert not model.screen.requests


def test_a_passage_that_neither_model_can_score_is_said_to_be_unscored():
    model, texts = Screened(0.001, max_tokens=220), passages(24)
    long = " ".join(f"word{n}" for n in range(180))
    found = shape(model, [*texts, long], signal="answer_shift", top_k=3)
    exact = shape(FakeLanguageModel(worth, max_tokens=220), [*texts, long], signal="answer_shift")
    assert [v.verdict for v in found.verdicts][-1] == [v.verdict for v in exact.verdicts][-1]


def test_the_result_says_in_json_what_was_screened():
    found = shape(Screened(), passages(24), signal="answer_shift", top_k=3).to_dict()
    told = json.loads(json.dumps(found))["screening"]
    assert told["passages"] == 24
    assert math.isfinite(told["margin"])
    assert set(found["kept"]) <= set(told["exact"])
