import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import model, tokenizer

from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.lm.base import ScoreRequest, ScoreResult, Segment, SegmentScore
from ecs_plugins.lm.local import LocalLM
from ecs_plugins.lm.screening import (
    SCORED_TWICE,
    margin_of,
    rescored,
    screen,
    screen_of,
    shaken,
    total,
)


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
    st.lists(st.floats(-20, 0, width=32), min_size=2, max_size=40, unique=True),
    st.integers(1, 12),
    st.floats(-1, 1),
    st.randoms(use_true_random=False),
)
def test_the_best_are_those_of_the_exact_model_if_the_margin_held(values, keep, shift, draw):
    exact = {f"p{n}": v for n, v in enumerate(values)}
    rough = {name: v + shift + draw.uniform(-0.1, 0.1) for name, v in exact.items()}
    found = screen(Table(rough), Table(exact), asked(exact), keep=keep)
    off = [float(np.float32(exact[n])) - float(np.float32(rough[n])) for n in exact]
    if max(off) <= found.margin:
        got = {f"p{k}": total(found.result.scores[k]) for k in found.exact}
        assert best(got, keep) == best(exact, keep)


def test_only_those_that_can_win_and_a_few_for_the_margin_are_scored_twice() -> None:
    exact = {f"p{n}": -float(n) for n in range(30)}
    rough = {n: v + 0.1 * (-1) ** k for k, (n, v) in enumerate(exact.items())}
    twice = Table({**exact, "": -9.0})
    request = asked(["", *exact])
    found = screen(Table({**rough, "": -9.1}), twice, request, keep=3)
    assert set(twice.asked) == {"", *(f"p{n}" for n in range(SCORED_TWICE))}
    assert found.exact == tuple(sorted({0, *range(1, SCORED_TWICE + 1)}))
    assert found.result.scores[1][0][0].sum == 0.0
    assert found.result.scores[30][0][0].sum == pytest.approx(rough["p29"])
    assert found.margin == pytest.approx(0.4, abs=1e-6)
    assert found.result.computed_tokens == 31 + SCORED_TWICE + 1


def test_candidates_that_differ_by_less_than_the_margin_are_all_scored_twice() -> None:
    exact = {f"p{n}": -0.001 * n for n in range(30)}
    rough = {n: v + 0.1 * (-1) ** k for k, (n, v) in enumerate(exact.items())}
    assert len(screen(Table(rough), Table(exact), asked(exact), keep=3).exact) == 30


def test_the_margin_counts_a_common_difference_too() -> None:
    assert margin_of([0.5, 0.5]) == pytest.approx(2.0)
    assert margin_of([]) == math.inf


def test_scoring_again_replaces_the_rows_and_reasons_of_those_that_were_asked_for() -> None:
    request = asked(["", "a", "b", "c"])
    rough = ScoreResult(
        tuple(((SegmentScore(np.array([-1.0], np.float32)),),) for _ in range(4)),
        (0, 1, 1, 1),
        10,
        {1: "too long", 3: "too long"},
    )
    found = rescored(Table({"": -5.0, "b": -6.0, "c": -7.0}), request, rough, [2, 3])
    assert [row[0][0].sum for row in found.scores] == [-5.0, -1.0, -6.0, -7.0]
    assert found.unscored == {1: "too long"}
    assert found.computed_tokens == 13


def answered(*rows):
    return ScoreResult(
        tuple(((SegmentScore(np.full(2, row / 2, np.float32)),),) for row in rows),
        (1,) * len(rows),
        len(rows),
    )


def test_fast_rows_are_moved_by_as_much_as_others_were_off_and_exact_rows_stay() -> None:
    fast, mixed = answered(-1.0, -2.0, -3.0, -4.0), answered(-1.5, -2.7, -3.0, -4.0)
    draws = [shaken(fast, mixed, [0, 1], random.Random(n)) for n in range(200)]
    assert {draw.scores[1][0][0].sum for draw in draws} == {mixed.scores[1][0][0].sum}
    moved = np.array([draw.scores[3][0][0].sum for draw in draws]) + 4.0
    assert moved.mean() == pytest.approx(-0.6, abs=0.03)
    assert moved.std() == pytest.approx(0.1, abs=0.02)


def test_divergences_are_moved_too() -> None:
    def both(divergence):
        score = SegmentScore(np.zeros(2, np.float32), np.full(2, divergence / 2, np.float32))
        return ScoreResult((((score,),),) * 2, (1, 1), 2)

    (found,) = shaken(both(1.0), both(1.5), [0], random.Random(0)).scores[1][0]
    assert float(found.divergence.sum()) == pytest.approx(2.0)


def test_fewer_than_one_best_candidate_is_refused() -> None:
    table = Table({"a": 0.0})
    with pytest.raises(InvalidInputError):
        screen(table, table, asked(["a"]), keep=0)


def test_a_model_that_screens_brings_itself_along_in_bfloat16(tmp_path) -> None:
    model("llama").save_pretrained(tmp_path)
    tokenizer("byte_level").save_pretrained(tmp_path)
    made = LocalLM.from_pretrained(tmp_path, device="cpu", exactness="screen")
    fast = screen_of(made)
    assert fast is made.screen
    assert str(made._load().engine.runner.dtype) == "torch.float32"
    assert str(fast._load().engine.runner.dtype) == "torch.bfloat16"
    assert screen_of(fast) is None
    made.close()
    assert made._runtime is fast._runtime is None


def test_a_loaded_pair_cannot_screen() -> None:
    assert screen_of(LocalLM(model("llama"), tokenizer("byte_level"))) is None
    with pytest.raises(ConfigurationError, match="needs the model twice"):
        LocalLM(model("llama"), tokenizer("byte_level"), exactness="screen")
