import json
import math
from dataclasses import replace

import numpy as np
import pytest

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.measurements import Arm, Bootstrap, Interval, Measurements
from ecs_plugins.frontier.prices import ModelPrice, PriceVector
from ecs_plugins.tokens import Role, Stage

from .conftest import hand_points, sample_measurements


def test_round_trip_keeps_points_rows_prices_and_provenance(measured_frontier, tmp_path):
    money = PriceVector(
        unit="USD",
        answer=ModelPrice(input=1e-6, output=4e-6, cached_input=1e-7),
        compressor=ModelPrice(input=1e-7, output=1e-7),
        scorer=0.0,
    )
    original = measured_frontier.priced(money)
    again = EfficiencyFrontier.load(original.save(tmp_path / "deep" / "frontier.json"))
    assert again.points == original.points
    assert again.prices == money
    assert again.provenance == original.provenance
    assert again.dropped == original.dropped
    assert again.bootstrap.f1_interval(1) == original.bootstrap.f1_interval(1)
    ours = original.decide(weight=0.9, reuse=7)
    theirs = again.decide(weight=0.9, reuse=7)
    assert theirs.to_dict() == ours.to_dict()


def changed(frontier, **changes):
    data = json.loads(frontier.to_json())
    for path, value in changes.items():
        node = data
        steps = [int(name) if name.isdigit() else name for name in path.split("__")]
        *parents, last = steps
        for name in parents:
            node = node[name]
        if value is ...:
            del node[last]
        else:
            node[last] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 2, not the 1"),
        ({"format": "other"}, "not a frontier"),
        ({"points": ...}, "points: Field required"),
        ({"points__1__f1": ...}, r"points\.1\.f1: Field required"),
        ({"points__1__f1": "0.5"}, r"points\.1\.f1: .*valid number"),
        ({"points__1__f1": math.nan}, r"points\.1: .*F1 must lie"),
        ({"points__1__n": True}, r"points\.1\.n: .*valid integer"),
        ({"points__1__f1": 0.99}, "does not follow from the measurements"),
        ({"points__1__stage1": 9000}, "does not follow from the measurements"),
        ({"points__1__stage2": 0}, "stage 2 must be positive"),
        ({"points__1__config": {"depth": [1]}}, r"points\.1\.config\.depth"),
        ({"measurements__f1": [[0.5]]}, "shape"),
        ({"measurements__f1": [[0.5], [0.1, 0.2]]}, "all of one length"),
        ({"measurements__f1__0__0": math.nan}, r"every value of f1 must be in \[0, 1\]"),
        ({"measurements__arms": []}, "at least one strategy"),
        ({"measurements__tokens": {"prepare": {"nobody": [[1]]}}}, "nobody"),
        ({"measurements__tokens": [1]}, "tokens are by stage"),
        ({"points__1__usage__tokens": {"prepare": None}}, "tokens are by stage"),
        ({"measurements__f1__0": [10**400] * 400}, "rows of numbers"),
        ({"provenance__models": {"answer": 3}}, r"provenance\.models\.answer"),
        ({"prices__scorer": None}, "prices: .*scorer"),
    ],
)
def test_a_damaged_artefact_is_refused_with_the_place(measured_frontier, change, message):
    with pytest.raises(InvalidInputError, match=message):
        EfficiencyFrontier.from_json(changed(measured_frontier, **change))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "9" * 5000, '{"a": ['])
def test_text_that_is_cut_short_or_that_no_parser_can_hold_is_refused(text):
    with pytest.raises(InvalidInputError, match=r"not valid JSON.*cut short"):
        EfficiencyFrontier.from_json(text)


def uneven():
    """A long context that was asked 9 times and a short one that was asked once."""
    nothing = np.zeros((2, 10))
    compressed = np.zeros((2, 10))
    compressed[1] = 10_000
    compressed[1, 9] = 1_000
    read = np.array([[900.0] * 10, [90.0] * 10])
    read[:, 9] = (100, 10)
    return Measurements(
        arms=(Arm("full", {}), Arm("memory", {})),
        questions=tuple("abcdefghij"),
        contexts=("long",) * 9 + ("short",),
        f1=nothing + 0.5,
        tokens={
            (Stage.PREPARE, Role.COMPRESS_INPUT): compressed,
            (Stage.QUERY, Role.ANSWER_INPUT): read,
        },
        shared_input=nothing,
        prepare_seconds=nothing,
        query_seconds=nothing,
    )


def test_stage_one_is_averaged_over_contexts_and_stage_two_over_questions():
    frontier = EfficiencyFrontier.from_measurements(uneven())
    memory = frontier.get("memory")
    assert memory.stage1 == 5_500
    assert memory.stage2 == 82
    assert memory.usage.tokens[Stage.PREPARE, Role.COMPRESS_INPUT] == 5_500
    resampled = frontier.bootstrap.stage1[1]
    assert np.median(resampled) == pytest.approx(5_500)


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    hits = 0
    for seed in range(60):
        rows, hidden = sample_measurements(questions=80, seed=seed)
        bootstrap = Bootstrap(rows, replicates=300)
        truth, *_ = hidden["tfidf", '{"depth":4}']
        hits += truth in bootstrap.f1_interval(1)
    assert 50 <= hits <= 60


@pytest.mark.parametrize("f1", [0.0, 0.5, 1.0])
def test_few_or_equal_answers_have_an_interval_that_is_not_empty(f1):
    rows, _ = sample_measurements(questions=5)
    alike = np.full(rows.shape, f1)
    rows = replace(rows, f1=alike)
    frontier = EfficiencyFrontier.from_measurements(rows)
    interval = frontier.f1_interval(frontier.points[0])
    assert f1 in interval
    assert interval.high - interval.low > 0.4
    decision = frontier.decide(target_f1=f1, reuse=1)
    assert "5 questions, fewer than 30" in decision.explain()


def test_transitions_carry_intervals_that_hold_the_estimate_or_are_none(measured_frontier):
    for transition in measured_frontier.transitions(10, intervals=True):
        assert transition.weight in transition.interval
    nowhere = measured_frontier.bootstrap.weight_crossover(3, 0, 1)
    assert nowhere.share == 0
    assert math.isnan(nowhere.low)


def test_points_alone_have_no_bootstrap():
    frontier = EfficiencyFrontier(hand_points())
    decision = frontier.decide(target_f1=0.7, reuse=1)
    assert decision.f1_interval == Interval(0.78, 0.78)
    with pytest.raises(InvalidInputError, match="means only"):
        _ = frontier.bootstrap
