from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecs_plugins.memory.admission import (
    HALF_LIFE,
    decayed,
    in_demand,
    merged,
    with_outcome,
)
from ecs_plugins.memory.store.tiers import read_evidence
from ecs_plugins.memory.types import Evidence

COUNTED = replace(Evidence(0, 0, 0), demand=4.0, agreements=2.0, contradictions=1.0, support=5)


def test_counts_halve_after_a_half_life_but_not_the_support():
    later = decayed(COUNTED, int(HALF_LIFE))
    assert (later.demand, later.agreements, later.contradictions) == (2.0, 1.0, 0.5)
    assert (later.support, later.updated) == (5, HALF_LIFE)


@given(st.integers(0, 50), st.integers(0, 50))
def test_decay_in_two_stages_is_decay_in_one(first, second):
    twice = decayed(decayed(COUNTED, first), first + second)
    assert twice.demand == pytest.approx(decayed(COUNTED, first + second).demand)


def test_evidence_never_decays_backwards():
    assert decayed(replace(COUNTED, updated=9), 3) == replace(COUNTED, updated=9)


def test_query_and_repeat_in_one_step_are_one_event():
    once = in_demand(Evidence(0, 0, 0), 5)
    assert in_demand(once, 5).demand == once.demand == 1.0


def test_an_outcome_counts_for_or_against():
    assert with_outcome(COUNTED, True, 0).agreements == 3.0
    assert with_outcome(COUNTED, False, 0).contradictions == 2.0


def test_merging_adds_the_counts_and_counts_the_newer_one_as_a_repeat():
    newer = replace(Evidence(0, 0, 0), hits=2, contradictions=1.0, unlike="number")
    both = merged(COUNTED, newer, 2.5)
    assert (both.support, both.demand, both.hits) == (6, 5.0, 2)
    assert (both.agreements, both.contradictions) == (2.0, 2.0)
    assert (both.created, both.resultant, both.unlike) == (0, 2.5, "number")


def test_evidence_that_version_0_1_wrote_is_read_without_its_labels():
    written = {"created": 0, "updated": 4, "last_seen": 4, "support": 2, "demand": 1.0}
    labels = {"outcomes": [["x", 1.0]], "belief": [["x", 1.0]], "contested": None, "surprise": 0.1}
    assert read_evidence(written | labels) == Evidence(0, 4, 4, 2, 1.0)
