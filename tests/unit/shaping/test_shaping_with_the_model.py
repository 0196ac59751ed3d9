"""Behaviour of the real model on invented sentences."""

import pytest

from ecs_plugins.shaping import ContextShaper, ShapingConfig

pytestmark = pytest.mark.model

QUESTION = "Which instrument does Oskar Brenn build in his workshop?"
EVIDENCE = "Oskar Brenn: In my workshop I only build hurdy-gurdies, three of them a year."
COUNTERFACTUAL = "Oskar Brenn: In my workshop I only build bagpipes, three of them a year."
PASSAGES = [
    "Lena Ahl: The ferry was late again, so we missed the market.",
    "Oskar Brenn: My sister came to see me at the workshop on Sunday.",
    EVIDENCE,
    "Lena Ahl: I repainted the kitchen in a pale green.",
    "Oskar Brenn: We had soup and talked about the election.",
]


def utilities(result):
    return {verdict.text: verdict.utility for verdict in result.verdicts}


def shape(model, passages, answer=None, **settings):
    return ContextShaper(model, ShapingConfig(**settings)).shape(QUESTION, passages, answer=answer)


@pytest.mark.parametrize(
    "signal",
    [
        "answer_shift",
        "joint_shift",
        "query_likelihood",
    ],
)
def test_the_evidence_comes_first(bundled_lm, signal):
    result = shape(
        bundled_lm,
        PASSAGES,
        answer="hurdy-gurdies",
        signal=signal,
        top_k=1,
    )
    assert [v.text for v in result.kept] == [EVIDENCE]


@pytest.mark.parametrize("signal", ["distribution_shift", "trajectory_shift"])
def test_the_evidence_moves_the_model_further_than_an_unrelated_passage(bundled_lm, signal):
    found = utilities(shape(bundled_lm, [EVIDENCE, PASSAGES[0]], signal=signal))
    assert found[EVIDENCE] > found[PASSAGES[0]] > 0.0


def test_a_counterfactual_does_not_pass_for_the_truth(bundled_lm):
    found = utilities(shape(bundled_lm, [EVIDENCE, COUNTERFACTUAL], answer="hurdy-gurdies"))
    assert found[EVIDENCE] > 1.0
    assert found[EVIDENCE] > found[COUNTERFACTUAL] + 1.0


def test_known_content_loses_its_utility(bundled_lm):
    repetition = "Oskar Brenn told me that he builds hurdy-gurdies."
    found = {}
    for acceptance in ("independent", "stream"):
        result = shape(
            bundled_lm,
            [EVIDENCE, repetition],
            answer="hurdy-gurdies",
            signal="answer_shift",
            acceptance=acceptance,
            threshold=1.0,
        )
        found[acceptance] = utilities(result)[repetition]
    assert found["stream"] < 0.2 * found["independent"]
