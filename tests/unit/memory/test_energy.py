import doctest
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecs_plugins.memory import energy

finite = st.floats(-1e6, 1e6)


def units(rng, shape):
    vectors = rng.standard_normal(shape)
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


def test_free_energy_is_energy_plus_weighted_entropy():
    terms = energy.free_energy(utility=0.8, entropy=0.5, entropy_weight=2.0)
    assert (terms.energy, terms.entropy) == (-0.8, 0.5)
    assert terms.total == pytest.approx(0.2)


def test_acceptance_follows_the_metropolis_rule_at_temperature_one():
    assert energy.acceptance_probability(0.5, 1.0) == pytest.approx(math.exp(-0.5))


@given(delta=st.floats(allow_nan=False), temperature=st.floats(0, allow_nan=False))
def test_acceptance_is_a_probability_for_every_input(delta, temperature):
    assert 0.0 <= energy.acceptance_probability(delta, temperature) <= 1.0


@given(delta=st.floats(max_value=0.0, allow_nan=False), temperature=st.floats(0, allow_nan=False))
def test_an_improvement_is_always_accepted(delta, temperature):
    assert energy.acceptance_probability(delta, temperature) == 1.0


@given(low=st.floats(1e-3, 1e3), high=st.floats(1e-3, 1e3), delta=st.floats(1e-3, 1e3))
def test_a_hotter_store_accepts_more(low, high, delta):
    cold, hot = sorted((low, high))
    probability = energy.acceptance_probability
    assert probability(delta, cold) <= probability(delta, hot)


def test_temperature_zero_accepts_only_what_is_no_worse():
    assert energy.acceptance_probability(0.0, 0.0) == 1.0
    assert energy.acceptance_probability(1e-12, 0.0) == 0.0


def test_annealing_goes_from_start_to_end():
    temperatures = [energy.annealed_temperature(1.0, 0.01, 0.5, cycle) for cycle in range(50)]
    assert temperatures[0] == 1.0
    assert temperatures == sorted(temperatures, reverse=True)
    assert temperatures[-1] == pytest.approx(0.01)


@given(st.lists(finite, min_size=2, max_size=20), st.floats(1e-3, 1e3))
def test_scaled_temperature_follows_the_unit_of_utility(totals, unit):
    plain = energy.scaled_temperature(0.1, totals)
    scaled = energy.scaled_temperature(0.1, [unit * total for total in totals])
    assert scaled == pytest.approx(unit * plain, rel=1e-6, abs=1e-6)


@given(st.lists(st.tuples(finite, finite), max_size=8), st.floats(0, 10))
def test_free_energies_are_those_of_each_memory(pairs, weight):
    utilities, entropies = (np.array([pair[i] for pair in pairs]) for i in (0, 1))
    together = energy.FreeEnergies.of(utilities, entropies, weight)
    one_by_one = [energy.free_energy(utility, entropy, weight) for utility, entropy in pairs]
    assert [together.at(position) for position in range(len(together))] == one_by_one
    assert [together.first(2).at(i) for i in range(len(pairs[:2]))] == one_by_one[:2]


def test_scaled_temperature_of_a_single_memory_is_zero():
    assert energy.scaled_temperature(1.0, [3.0]) == 0.0


def test_query_utility_is_the_cosine_weighted_by_recency():
    memory = np.array([[1.0, 0.0]], dtype=np.float32)
    queries = np.array([[1.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    ages = np.array([1.0, 0.0])
    mean = energy.query_utility(memory, queries, ages, decay=0.5)
    best = energy.query_utility(memory, queries, ages, decay=0.5, reduce="max")
    assert mean.tolist() == pytest.approx([0.5 / 1.5])
    assert best.tolist() == pytest.approx([0.5])


def test_query_utility_without_queries_is_zero():
    memory = np.ones((2, 3), dtype=np.float32)
    none = np.zeros((0, 3), dtype=np.float32)
    assert energy.query_utility(memory, none, np.zeros(0), decay=0.9).tolist() == [0.0, 0.0]


def test_exposure_equals_age_without_forgetting_and_saturates_with_it():
    age = np.array([0.0, 10.0, 1e9])
    assert energy.effective_age(age, math.inf).tolist() == [1.0, 10.0, 1e9]
    assert energy.effective_age(age, 100.0)[2] == pytest.approx(100.0 / math.log(2.0))


@given(st.floats(0, 1e3), st.floats(0, 1e3), st.floats(1, 1e5), st.floats(1e-4, 1.0))
def test_more_demand_never_lowers_the_rate(first, second, exposure, prior):
    low, high = sorted((first, second))
    rates = energy.log_demand_rate(np.array([low, high]), np.array([exposure] * 2), prior)
    assert rates[0] <= rates[1]


def test_an_unseen_memory_has_the_prior_rate():
    rate = energy.log_demand_rate(np.array([0.0]), np.array([0.0]), 0.02)
    assert math.exp(rate[0]) == pytest.approx(0.02)


def test_cluster_variance_of_two_orthogonal_vectors_is_one_half():
    assert energy.cluster_variance(np.eye(2, dtype=np.float32)) == pytest.approx(0.5)


@given(st.integers(1, 12), st.integers(0, 1000))
def test_cluster_variance_of_unit_vectors_is_one_minus_the_squared_mean(count, seed):
    vectors = units(np.random.default_rng(seed), (count, 16))
    mean = vectors.mean(axis=0, dtype=np.float64)
    assert energy.cluster_variance(vectors) == pytest.approx(1.0 - float(mean @ mean), abs=1e-5)


def test_spectral_entropy_counts_the_independent_directions():
    assert energy.spectral_entropy(np.eye(4, dtype=np.float32)) == pytest.approx(math.log(4))
    same = np.repeat(np.eye(4, dtype=np.float32)[:1], 4, axis=0)
    assert energy.spectral_entropy(same) == pytest.approx(0.0, abs=1e-5)


def test_gaussian_entropy_grows_with_the_spread_and_is_finite_for_one_member():
    rng = np.random.default_rng(0)
    tight = rng.standard_normal((20, 8)).astype(np.float32)
    assert energy.gaussian_entropy(2 * tight) == pytest.approx(
        energy.gaussian_entropy(tight) + math.log(2.0)
    )
    assert math.isfinite(energy.gaussian_entropy(tight[:1]))


def test_softmax_entropy_cannot_tell_one_embedding_from_another():
    vectors = units(np.random.default_rng(0), (50, 384))
    values = [energy.softmax_entropy(vector) for vector in vectors]
    assert max(values) - min(values) < 1e-3
    assert values[0] == pytest.approx(math.log(384), abs=2e-3)


def test_entropy_of_nothing_known_is_that_of_all_labels():
    assert energy.outcome_entropy([], labels=50) == pytest.approx(math.log(50))


def test_consistent_outcomes_lower_the_entropy_towards_zero():
    values = [energy.outcome_entropy([count], labels=50) for count in (1, 2, 4, 8, 1000)]
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.02


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=10), st.integers(2, 60))
def test_outcome_entropy_is_that_of_its_predictive_distribution(weights, labels):
    labels = max(labels, len(weights) + 1)
    total = sum(weights) + 1.0
    unseen = labels - len(weights)
    p = np.array([w / total for w in weights] + [1.0 / total / unseen] * unseen)
    assert p.sum() == pytest.approx(1.0)
    assert energy.outcome_entropy(weights, labels) == pytest.approx(float(-(p * np.log(p)).sum()))


def test_contradicting_outcomes_have_more_entropy_than_agreeing_ones():
    assert energy.outcome_entropy([1] * 4, 50) > energy.outcome_entropy([4], 50)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30))
def test_shannon_entropy_lies_between_zero_and_log_n(weights):
    value = energy.shannon_entropy(np.array(weights))
    assert -1e-9 <= value <= math.log(len(weights)) + 1e-9


def test_the_examples_in_the_documentation_hold():
    assert doctest.testmod(energy).attempted > 3
    assert doctest.testmod(energy).failed == 0
