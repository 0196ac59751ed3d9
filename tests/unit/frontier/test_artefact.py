import errno
import json
import math

import numpy as np
import pytest

from ecs_plugins.errors import ConfigurationError, InvalidInputError, StorageError
from ecs_plugins.frontier.cost import ModelPrice, PriceVector
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.measurements import Arm, Measurements
from ecs_plugins.tokens import Role, Stage


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
    ours, theirs = (f.decide(weight=0.9, reuse=7) for f in (original, again))
    assert theirs.to_dict() == ours.to_dict()


def test_an_artefact_without_measurements_is_small_and_still_decides(measured_frontier):
    text = measured_frontier.to_json(measurements=False)
    assert len(text) < len(measured_frontier.to_json()) / 10
    ours, theirs = (
        f.decide(weight=0.9, reuse=7)
        for f in (measured_frontier, EfficiencyFrontier.from_json(text))
    )
    assert theirs.label == ours.label


def changed(frontier, **changes):
    data = json.loads(frontier.to_json())
    for path, value in changes.items():
        node = data
        *parents, last = path.split("__")
        for name in parents:
            node = node[int(name) if name.isdigit() else name]
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
        ({"points__1__stage2": 0}, "stage 2 must be positive"),
        ({"points__1__config": {"depth": [1]}}, r"points\.1\.config\.depth"),
        ({"measurements__f1": [[0.5]]}, "shape"),
        ({"measurements__f1": [[0.5], [0.1, 0.2]]}, "all of one length"),
        ({"measurements__tokens": {"prepare": {"nobody": [[1]]}}}, "nobody"),
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


def test_a_full_disk_leaves_the_old_artefact_untouched(measured_frontier, tmp_path, monkeypatch):
    path = measured_frontier.save(tmp_path / "frontier.json")
    before = path.read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StorageError, match="No space left on device"):
        measured_frontier.save(path)
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["frontier.json"]


def test_an_artefact_of_another_model_is_refused(measured_frontier):
    measured_frontier.provenance.require(answer_model="fake")
    with pytest.raises(ConfigurationError, match="measured with 'fake', not 'other'"):
        measured_frontier.provenance.require(answer_model="other")


def uneven():
    """A long context that was asked 9 times and a short one that was asked once."""
    return Measurements(
        (Arm("full", {}), Arm("memory", {})),
        tuple(f"q{k}" for k in range(10)),
        ("long",) * 9 + ("short",),
        np.full((2, 10), 0.5),
        np.zeros((2, 10)),
        {
            (Stage.PREPARE, Role.COMPRESS_INPUT): np.array([[0] * 10, [10_000] * 9 + [1_000]]),
            (Stage.QUERY, Role.ANSWER_INPUT): np.array([[900] * 9 + [100], [90] * 9 + [10]]),
        },
    )


def test_stage_one_is_averaged_over_contexts_and_stage_two_over_questions():
    frontier = EfficiencyFrontier.from_measurements(uneven())
    memory = frontier.get("memory")
    assert (memory.stage1, memory.stage2) == (5_500, 82)
    assert memory.usage.tokens[(Stage.PREPARE, Role.COMPRESS_INPUT)] == 5_500
    assert float(np.median(frontier.bootstrap.stage1[1])) == pytest.approx(5_500)


def test_an_artefact_of_0_1_0_which_averaged_stage_one_over_questions_is_read():
    text = EfficiencyFrontier.from_measurements(uneven()).to_json()
    old = text.replace('"stage1": 5500.0', '"stage1": 9100.0')
    assert old != text
    assert EfficiencyFrontier.from_json(old).get("memory").stage1 == 5_500
    with pytest.raises(InvalidInputError, match="does not follow"):
        EfficiencyFrontier.from_json(text.replace('"stage1": 5500.0', '"stage1": 9000.0'))
