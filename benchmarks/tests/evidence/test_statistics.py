import math

import numpy as np
import pytest
from scipy.stats import bootstrap

from benchmarks.evidence.statistics import mean_interval, paired_difference
from ecs_plugins.errors import InvalidInputError


def test_the_interval_of_a_mean_is_that_of_scipy():
    values = np.random.default_rng(1).random(80)
    ours = mean_interval(list(values))
    theirs = bootstrap(
        (values,), np.mean, n_resamples=2000, method="percentile", rng=np.random.default_rng(2)
    ).confidence_interval
    assert ours.mean == pytest.approx(values.mean())
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.01)


def test_pairing_removes_shared_difficulty():
    hard = np.random.default_rng(0).random(60)
    found = paired_difference(list(hard + 0.1), list(hard))
    assert (found.low, found.high) == pytest.approx((0.1, 0.1))
    assert (found.wins, found.losses, found.ties) == (60, 0, 0)


def test_a_relative_improvement_is_a_ratio_of_means():
    found = paired_difference([0.6] * 10, [0.4] * 10)
    assert found.relative == pytest.approx(0.5)
    assert (found.relative_low, found.relative_high) == pytest.approx((0.5, 0.5))


def test_nothing_to_improve_on_is_infinite():
    found = paired_difference([1.0, 0.0], [0.0, 0.0])
    assert math.isinf(found.relative)
    assert found.relative_low == 0.0  # both were drawn as zero
    assert paired_difference([0.0], [0.0]).relative == 0.0


def test_nothing_or_unequal_numbers_are_refused():
    with pytest.raises(InvalidInputError):
        mean_interval([])
    with pytest.raises(InvalidInputError):
        paired_difference([1.0], [1.0, 0.0])
    with pytest.raises(InvalidInputError):
        paired_difference([], [])
