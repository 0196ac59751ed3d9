"""The simulated line against Erlang's formula, its independent reference."""

import json

import numpy as np
import pytest

from benchmarks.deployment.queueing import erlang_c, replicas_for, simulate, wait_quantile
from ecs_plugins.errors import InvalidInputError


@pytest.mark.parametrize(
    ("replicas", "load", "waiting"), [(1, 0.5, 0.5), (2, 1.0, 1 / 3), (3, 2.0, 4 / 9)]
)
def test_erlang_c_is_that_of_the_textbook(replicas, load, waiting):
    assert erlang_c(replicas, load) == pytest.approx(waiting)


@pytest.mark.parametrize(("replicas", "load"), [(1, 0.7), (4, 3.2), (40, 36.0)])
def test_the_simulation_waits_as_erlang_says(replicas, load):
    service = 0.01
    rate = load / service
    exponential = np.random.default_rng(1).exponential(service, 200_000)
    waits, _ = simulate(replicas, rate, exponential, requests=400_000)
    waiting = erlang_c(replicas, load)
    assert np.mean(waits > 0) == pytest.approx(waiting, rel=0.05)
    assert np.mean(waits) == pytest.approx(waiting / (replicas / service - rate), rel=0.1)
    expected = wait_quantile(replicas, rate, service, 0.99)
    assert np.quantile(waits, 0.99) == pytest.approx(expected, rel=0.1)


def test_constant_service_waits_half_as_long_as_exponential_service():
    waits, _ = simulate(1, 80.0, [0.01], requests=400_000)  # M/D/1, Pollaczek-Khinchine
    assert np.mean(waits) == pytest.approx(0.8 * 0.01 / (2 * (1 - 0.8)), rel=0.05)


def test_the_replicas_are_the_least_within_the_target():
    number, p99 = replicas_for(1000.0, [0.002, 0.004], 0.01)
    assert p99 <= 0.01
    waits, served = simulate(number - 1, 1000.0, [0.002, 0.004]) if number > 3 else ([1.0], [0.0])
    assert np.quantile(np.add(waits, served), 0.99) > 0.01


def test_an_overload_is_refused():
    with pytest.raises(InvalidInputError, match="cannot serve"):
        erlang_c(2, 2.0)
    with pytest.raises(InvalidInputError, match="above the target"):
        replicas_for(1.0, [0.1], 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("place", [(), ("--address", "private")])
def test_scaling_measures_and_plans(bench, tmp_path, place):
    small = ("--measure", "10", "--messages", "5", "--recalls", "100", "--rate", "50")
    bench("scaling", *small, "--target", "5000", "--out", tmp_path / "plan.json", *place)
    found = json.loads((tmp_path / "plan.json").read_text())
    assert found["disk per namespace (bytes)"] > 5 * 384
    assert found["100 shards: replicas in all"] >= 100
    assert found["1 shards: p99 simulated (ms)"] >= found["recall p50 (ms)"]
