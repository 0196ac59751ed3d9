"""Requests that arrive at random and wait in one line for the first free replica.

A simulation with any service times (M/G/c), and the formula of Erlang for exponential ones (M/M/c),
which the simulation is held against.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ecs_plugins.errors import InvalidInputError


def erlang_c(replicas: int, load: float) -> float:
    """The probability that a request has to wait (M/M/c; Erlang 1917).

    Args:
        replicas: Servers of one line.
        load: Arrivals per second times mean service seconds; below the number of replicas.

    Raises:
        InvalidInputError: The load is not below the number of replicas: the line grows for ever.
    """
    if not 0 < load < replicas:
        raise InvalidInputError(f"{replicas} replicas cannot serve a load of {load:g}")
    blocked = 1.0  # Erlang B, by its recursion over replicas
    for number in range(1, replicas + 1):
        blocked = load * blocked / (number + load * blocked)
    return replicas * blocked / (replicas - load * (1.0 - blocked))


def wait_quantile(replicas: int, rate: float, service: float, level: float) -> float:
    """Seconds that a share ``level`` of the requests waits at most, by M/M/c."""
    waiting = erlang_c(replicas, rate * service)
    return max(0.0, math.log(waiting / (1.0 - level)) / (replicas / service - rate))


def simulate(
    replicas: int, rate: float, services: Sequence[float], *, requests: int = 200_000, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Simulate a line: Poisson arrivals, service times drawn from the measured ones.

    Args:
        replicas: Servers of the line.
        rate: Arrivals per second.
        services: Measured service times in seconds.
        requests: Requests that are simulated; the first tenth, while the line fills, is dropped.
        seed: Of arrivals and service times.

    Returns:
        Waiting and service seconds of each request, shape [requests * 9 / 10] each.
    """
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1.0 / rate, requests))
    drawn = rng.choice(np.asarray(services, dtype=np.float64), requests)
    free = [0.0] * replicas
    waits = np.empty(requests)
    for number in range(requests):
        arrival = float(arrivals[number])
        start = max(arrival, free[0])
        heapq.heapreplace(free, start + float(drawn[number]))
        waits[number] = start - arrival
    return waits[requests // 10 :], drawn[requests // 10 :]


def replicas_for(rate: float, services: Sequence[float], target: float) -> tuple[int, float]:
    """The least number of replicas, to 2 %, whose simulated p99 latency is within a target.

    Returns:
        The number, and its p99 in seconds.

    Raises:
        InvalidInputError: A request alone takes longer than the target at its own p99.
    """
    if float(np.quantile(services, 0.99)) > target:
        raise InvalidInputError(f"the p99 of service alone is above the target of {target:g} s")
    number = math.floor(rate * float(np.mean(services))) + 1
    while True:
        waits, served = simulate(number, rate, services)
        found = float(np.quantile(waits + served, 0.99))
        if found <= target:
            return number, found
        number += max(1, number // 50)
