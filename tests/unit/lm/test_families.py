"""Every family is scored right on the path that was planned for it, or refused."""

import warnings

import numpy as np
import pytest
from families import CASCADE, FAMILIES, MASKED, VOCABULARY, built

from ecs_plugins.lm.scoring.planner import ScoringEngine
from ecs_plugins.lm.scoring.profile import ScoringPath, profile_of
from ecs_plugins.lm.scoring.request import Continuation, TokenRequest
from ecs_plugins.lm.scoring.runner import Runner

pytestmark = pytest.mark.slow  # a model of every family

TOLERANCE = 1e-4


DRAW = np.random.default_rng(1)


def ids(number):
    return tuple(int(i) for i in DRAW.integers(4, VOCABULARY, size=number))


PASSAGE, QUESTION = ids(30), ids(20)
ASKED = TokenRequest(
    prefix=ids(50),
    candidates=((), PASSAGE, PASSAGE[:20] + ids(5), ids(11)),
    continuations=(
        Continuation(QUESTION + ids(6), ((20, 26),)),
        Continuation(QUESTION + ids(3), ((5, 8), (20, 23))),
    ),
)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_right_on_the_path_planned_for_it(name) -> None:
    model = built(name)
    runner = Runner(model, name)
    engine = ScoringEngine(runner, profile_of(model, runner.takes, 10**30))
    wanted, plain = engine.run(ScoringPath.REFERENCE, ASKED, range(4))
    assert np.std(np.concatenate(list(wanted.values()))) > 0.3
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (got,) = engine.score([ASKED])
        planned = engine._plan(ASKED.length(1))
    worst = max(float(np.abs(wanted[key] - got.scores[key]).max()) for key in wanted)
    assert worst < TOLERANCE
    assert planned == FAMILIES[name].path, engine._failures
    slow = planned not in (CASCADE, MASKED)
    assert slow == any("without a shared prefix" in str(w.message) for w in caught)
    assert slow or got.computed_tokens < plain / 3


def test_the_matrix_is_wide_and_most_of_it_cascades() -> None:
    assert len(FAMILIES) >= 50
    assert sum(family.path == CASCADE for family in FAMILIES.values()) >= 25
