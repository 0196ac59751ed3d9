import math

import pytest

from ecs_plugins.shaping import Verdict
from ecs_plugins.shaping.acceptance import verdict_of
from ecs_plugins.shaping.signals.base import marginal_logprob
from ecs_plugins.shaping.signals.likelihood import pragmatic_utility


def test_the_worked_example_accepts_the_useful_passage_and_rejects_the_red_herring():
    # Section 3.6: P(1889) is .35 without a passage, .92 with the useful one, .38 with the herring.
    useful = pragmatic_utility(math.log(0.92), math.log(0.35))
    herring = pragmatic_utility(math.log(0.38), math.log(0.35))
    assert useful == pytest.approx(0.966, abs=5e-4)
    assert herring == pytest.approx(0.082, abs=5e-4)
    assert verdict_of(useful, 0.3) is Verdict.HELPS
    assert verdict_of(herring, 0.3) is Verdict.NEUTRAL


@pytest.mark.parametrize(
    ("utility", "verdict"),
    [
        (0.05, Verdict.HELPS),
        (-0.05, Verdict.NEUTRAL),
        (-0.06, Verdict.HURTS),
        (pragmatic_utility(-math.inf, -math.inf), Verdict.NEUTRAL),
    ],
)
def test_a_verdict_follows_from_the_threshold(utility, verdict):
    assert verdict_of(utility, 0.05) is verdict


def test_probabilities_of_alternative_answers_add_up_and_do_not_underflow():
    total = marginal_logprob([math.log(0.2), math.log(0.3)])
    assert math.exp(total) == pytest.approx(0.5)
    half = math.log(0.5)
    weighted = marginal_logprob([math.log(0.2), math.log(0.4)], [half, half])
    assert math.exp(weighted) == pytest.approx(0.3)
    tiny = marginal_logprob([-2000.0, -2000.0])
    assert tiny == pytest.approx(-2000 + math.log(2))


def test_impossible_and_unknown_answers_stay_so():
    impossible = [-math.inf, -math.inf]
    assert marginal_logprob(impossible) == -math.inf
    assert math.isnan(marginal_logprob([math.nan, -1.0]))
