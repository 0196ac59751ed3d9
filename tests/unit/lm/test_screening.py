import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.lm.base import ScoreRequest, ScoreResult, Segment, SegmentScore
from ecs_plugins.lm.screening import screen, total


class Table:
    """Scores candidates by their text, and counts them."""

    def __init__(self, values) -> None:
        self.values = values
        self.asked = []

    def score(self, requests):
        (request,) = requests
        names = [segments[0].text if segments else "" for segments in request.candidates]
        self.asked += names
        rows = tuple(((SegmentScore(np.array([self.values[n]], np.float32)),),) for n in names)
        return [ScoreResult(rows, (1,) * len(names), len(names))]


def asked(names):
    candidates = tuple((Segment(name),) if name else () for name in names)
    return ScoreRequest((), candidates, ((Segment("a", scored=True),),))


def best(values, keep):
    return sorted(values, key=lambda name: -np.float32(values[name]))[:keep]


@settings(deadline=None)
@given(
    st.lists(st.floats(-20, 0, width=32), min_size=2, max_size=30, unique=True),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
)
def test_the_best_are_those_of_the_exact_model_if_the_margin_held(values, keep, draw) -> None:
    exact = {f"p{n}": v for n, v in enumerate(values)}
    rough = {name: v + draw.uniform(-0.1, 0.1) for name, v in exact.items()}
    found = screen(Table(rough), Table(exact), asked(exact), keep=keep)
    off = {n: abs(np.float32(rough[n]) - np.float32(exact[n])) for n in exact}
    if max(off.values()) <= found.margin:
        got = {f"p{k}": total(row) for k, row in enumerate(found.result.scores)}
        assert best(got, keep) == best(exact, keep)
        assert {f"p{k}" for k in found.exact} >= set(best(exact, keep))


def test_only_those_that_can_win_are_scored_twice() -> None:
    exact = {"": -9.0, "a": -1.0, "b": -1.1, "c": -5.0, "d": -6.0}
    rough = {**exact, "a": -1.15, "b": -1.05}
    twice = Table(exact)
    found = screen(Table(rough), twice, asked(exact), keep=1)
    assert set(twice.asked) == {"", "a", "b"}
    assert found.result.scores[1][0][0].sum == pytest.approx(-1.0)
    assert found.result.scores[3][0][0].sum == pytest.approx(-5.0)
    assert found.largest_difference == pytest.approx(0.15, abs=1e-6)
    assert found.margin == pytest.approx(0.3, abs=1e-6)


@pytest.mark.parametrize("options", [{"keep": 0}, {"keep": 1, "factor": 0.5}])
def test_options_out_of_range_are_refused(options) -> None:
    table = Table({"a": 0.0})
    with pytest.raises(InvalidInputError):
        screen(table, table, asked(["a"]), **options)
