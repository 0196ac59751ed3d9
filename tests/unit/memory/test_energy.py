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


@given(delta=st.floats(allow_nan=False), temperature=st.floats(0, allow_nan=False))
def test_acceptance_is_a_probability_for_every_input(delta, temperature):
    assert 0.0 <= energy.acceptance_probability(delta, temperature) <= 1.0


@given(low=st.floats(1e-3, 1e3), high=st.floats(1e-3, 1e3), delta=st.floats(1e-3, 1e3))
def test_a_hotter_store_accepts_more(low, high, delta):
    cold, hot = sorted((low, high))
    probability = energy.acceptance_probability
    assert probability(delta, cold) <= probability(delta, hot)


def test_temperature_zero_accepts_only_what_is_no_worse():
    assert energy.acceptance_probability(0.0, 0.0) == 1.0
    assert energy.acceptance_probability(1e-12, 0.0) == 0.0


@given(st.lists(finite, min_size=2, max_size=20), st.floats(1e-3, 1e3))
def test_scaled_temperature_follows_the_unit_of_utility(totals, unit):
    plain = energy.scaled_temperature(0.1, totals)
    scaled = energy.scaled_temperature(0.1, [unit * total for total in totals])
    assert scaled == pytest.approx(unit * plain, rel=1e-6, abs=1e-6)


def test_query_utility_is_the_cosine_weighted_by_recency():
    memory = np.array([[1.0, 0.0]], dtype=np.float32)
    queries = np.array([[1.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    ages = np.array([1.0, 0.0])
    mean = energy.query_utility(memory, queries, ages, decay=0.5)
    assert mean.tolist() == pytest.approx([0.5 / 1.5])


def test_exposure_is_the_age_at_first_and_saturates_with_the_half_life():
    young, old = energy.effective_age(np.array([2.0, 1e9]), 100.0).tolist()
    assert young == pytest.approx(2.0, rel=0.01)
    assert old == pytest.approx(100.0 / math.log(2.0))


@given(st.floats(0, 1e3), st.floats(0, 1e3), st.floats(1, 1e5), st.floats(1e-4, 1.0))
def test_more_demand_never_lowers_the_rate(first, second, exposure, prior):
    low, high = sorted((first, second))
    rates = energy.log_demand_rate(np.array([low, high]), np.array([exposure] * 2), prior)
    assert rates[0] <= rates[1]


@given(st.integers(1, 12), st.integers(0, 1000))
def test_cluster_variance_of_unit_vectors_is_one_minus_the_squared_mean(count, seed):
    vectors = units(np.random.default_rng(seed), (count, 16))
    mean = vectors.mean(axis=0, dtype=np.float64)
    assert energy.cluster_variance(vectors) == pytest.approx(1.0 - float(mean @ mean), abs=1e-5)


def test_softmax_entropy_cannot_tell_one_embedding_from_another():
    vectors = units(np.random.default_rng(0), (50, 384))
    values = [energy.embedding_entropy(vector) for vector in vectors]
    assert max(values) - min(values) < 1e-3
    assert values[0] == pytest.approx(math.log(384), abs=2e-3)


def test_the_examples_in_the_documentation_hold():
    assert doctest.testmod(energy).attempted > 3
    assert doctest.testmod(energy).failed == 0
