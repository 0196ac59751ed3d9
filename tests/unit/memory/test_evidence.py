import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.evidence import (
    change_and_lie_rates,
    decayed,
    first_evidence,
    in_demand,
    merged,
    with_label,
    with_success,
)
from ecs_plugins.memory.types import StreamStatistics

LEARNED = MemoryConfig()
labels = st.lists(st.sampled_from("abc"), min_size=1, max_size=20)


def observed(sequence, config=LEARNED, statistics=None):
    """Evidence and statistics after a sequence of labels of one memory."""
    evidence = first_evidence(0, sequence[0])
    statistics = statistics or StreamStatistics(labels=50)
    for label in sequence[1:]:
        evidence, statistics = with_label(evidence, label, statistics, config)
    return evidence, statistics


@given(labels)
def test_belief_is_a_distribution_over_labels_seen(sequence):
    evidence, _ = observed(sequence)
    assert math.fsum(p for _, p in evidence.belief) == pytest.approx(1.0, abs=1e-2)
    assert {label for label, _ in evidence.belief} <= set(sequence)
    assert evidence.belief[0][1] == max(p for _, p in evidence.belief)


@given(labels)
def test_every_outcome_after_the_first_agrees_or_contradicts(sequence):
    evidence, _ = observed(sequence)
    assert evidence.agreements + evidence.contradictions == len(sequence) - 1
    assert sum(weight for _, weight in evidence.outcomes) == pytest.approx(len(sequence))
    assert evidence.surprise >= 0.0


def test_agreement_is_less_surprising_than_contradiction():
    agreeing, _ = observed("aaaa")
    torn, _ = observed("abca")
    assert agreeing.surprise < torn.surprise


def test_one_contradiction_does_not_overturn_a_label_where_contradictions_were_noise():
    noisy = StreamStatistics(repeats=100, noises=50, labels=50)
    evidence, _ = observed("aaab", statistics=noisy)
    assert evidence.label == "a"


def test_one_contradiction_overturns_a_label_where_contradictions_were_drift():
    drifting = StreamStatistics(repeats=100, drifts=20, labels=50)
    evidence, _ = observed("aaab", statistics=drifting)
    assert evidence.label == "b"


def test_a_repeated_contradiction_overturns_a_label_even_where_noise_is_common():
    noisy = StreamStatistics(repeats=100, noises=30, labels=50)
    evidence, _ = observed("aaabbb", statistics=noisy)
    assert evidence.label == "b"


def test_a_confirmed_contradiction_counts_as_drift_and_a_reverted_one_as_noise():
    _, drift = observed("aaabb")
    _, noise = observed("aaaba")
    assert (drift.drifts, drift.noises) == (1.0, 0.0)
    assert (noise.drifts, noise.noises) == (0.0, 1.0)


def test_contradictions_of_a_label_seen_once_teach_nothing():
    _, statistics = observed("abcab")
    assert (statistics.repeats, statistics.drifts, statistics.noises) == (0.0, 0.0, 0.0)


@given(st.floats(0, 1e4), st.floats(0, 1), st.floats(0, 1))
def test_learned_rates_are_probabilities(repeats, drift_share, noise_share):
    noises = noise_share * (1 - drift_share) * repeats
    statistics = StreamStatistics(repeats, drift_share * repeats, noises)
    change, lie = change_and_lie_rates(statistics)
    assert 0 < change <= 1
    assert 0 < lie <= 1


def test_newest_and_never_are_what_they_say():
    newest, _ = observed("aaab", MemoryConfig(contradiction="newest"))
    never, _ = observed("abbb", MemoryConfig(contradiction="never"))
    assert (newest.label, never.label) == ("b", "a")


def test_counts_halve_after_a_half_life():
    evidence = replace(first_evidence(0, "a"), demand=4.0, agreements=2.0, surprise=1.0)
    later = decayed(evidence, 10, half_life=10.0)
    assert (later.demand, later.agreements, later.surprise) == (2.0, 1.0, 0.5)
    assert later.outcomes == (("a", 0.5),)
    assert later.updated == 10


@given(st.integers(0, 50), st.integers(0, 50), st.floats(1, 1e3))
def test_decay_in_two_stages_is_decay_in_one(first, second, half_life):
    evidence = replace(first_evidence(0, None), demand=8.0)
    staged = decayed(decayed(evidence, first, half_life), first + second, half_life)
    assert staged.demand == pytest.approx(decayed(evidence, first + second, half_life).demand)


def test_nothing_fades_with_an_infinite_half_life():
    evidence = replace(first_evidence(0, "a"), demand=4.0)
    assert decayed(evidence, 10_000, math.inf).demand == 4.0


def test_query_and_repeat_in_one_step_are_one_event():
    evidence = first_evidence(0, None)
    once = in_demand(evidence, 5, math.inf)
    assert in_demand(once, 5, math.inf).demand == once.demand == 1.0


def test_merging_adds_the_counts_and_counts_the_newer_one_as_a_repeat():
    older, _ = observed("aa")
    newer = first_evidence(7, "a")
    both = merged(older, newer, 2.5, MemoryConfig(half_life=math.inf))
    assert both.support == older.support + 1
    assert both.demand == older.demand + 1.0
    assert both.created == 0
    assert both.resultant == 2.5
    assert dict(both.outcomes) == {"a": 3.0}


def test_merging_evidence_that_disagrees_keeps_the_stronger_belief():
    older, _ = observed("aaaa")
    newer = replace(first_evidence(7, "b"), belief=(("b", 0.6), ("a", 0.4)))
    assert merged(older, newer, 2.0, LEARNED).label == "a"


def test_failures_surprise_more_than_successes():
    statistics = StreamStatistics(repeats=100.0)
    evidence = first_evidence(0, None)
    success = with_success(evidence, True, statistics)
    failure = with_success(evidence, False, statistics)
    assert success.surprise < failure.surprise
    assert (success.agreements, failure.contradictions) == (1.0, 1.0)


def test_a_memory_remembers_a_bounded_number_of_outcomes():
    evidence, _ = observed([str(i) for i in range(300)], MemoryConfig(half_life=math.inf))
    assert len(evidence.outcomes) == 64
    assert evidence.outcomes[-1][0] == "299"
    assert len(evidence.belief) <= 64
