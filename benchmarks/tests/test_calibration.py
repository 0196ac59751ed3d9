import numpy as np
import pytest

from benchmarks.commands.answerable import Asked
from benchmarks.commands.calibration import (
    FoundList,
    calibration_error,
    crowd_weight,
    found_lists,
    table,
    with_crowd,
)
from benchmarks.evidence.questions import EvidenceQuestion
from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.ranking import make_ranker
from ecs_plugins.shaping.probability import ProbabilityFit

FIT = ProbabilityFit(0.0, {"explained": 1.0, "crowd": 0.0})


def drawn(weight, dataset="squad", lists=1000):
    """Lists whose labels were drawn with a known weight of ``crowd``."""
    draw = np.random.default_rng(1)
    found = []
    for number in range(lists):
        crowd = float(draw.choice([0.0, 1.0, 2.0]))
        parts = tuple({"explained": float(value), "crowd": crowd} for value in draw.normal(size=10))
        chances = [with_crowd(FIT, weight).of(part) for part in parts]
        labels = tuple((draw.random(10) < chances).tolist())
        found.append(FoundList(number, 10, Asked(dataset, labels, parts, parts[:5])))
    return found


def test_the_weight_that_made_the_labels_is_found():
    assert crowd_weight(drawn(-1.5), FIT) == pytest.approx(-1.5, abs=0.2)


def test_what_is_measured_only_teaches_nothing():
    both = drawn(-1.5) + drawn(0.0, dataset="locomo")
    cells = table(both, FIT, seed=1).splitlines()[-1].split("|")
    assert float(cells[2].split()[0]) > 0.1


def test_the_error_is_how_far_what_is_said_lies_from_what_is_found():
    said = np.array([0.25] * 4 + [0.85] * 4 + [1.0])
    labels = np.array([True, False, False, False] + [True] * 2 + [False] * 2 + [True])
    assert calibration_error(said, labels) == pytest.approx(4 / 9 * 0.35)


def test_lists_hold_the_evidence_and_what_a_ranker_finds_with_it():
    units = (*(f"The red tram number {n} was late." for n in range(12)), "Ida bought the boat.")
    question = EvidenceQuestion("q", "Who bought the red boat?", ("Ida",), units, (12,), "article")
    lists = found_lists(FakeLanguageModel(), make_ranker("bm25"), question, 0, "squad")
    assert [each.passages for each in lists] == [3, 5, 10, 20, 40]
    assert [sum(each.labels) for each in lists] == [1] * 5
    assert [len(each.asked.without) for each in lists] == [2, 4, 9, 12, 12]
