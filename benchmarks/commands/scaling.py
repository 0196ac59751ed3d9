"""``python -m benchmarks scaling``: bytes of a namespace, and replicas for a rate of recalls."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.commands.load import anonymous_mib, place_of
from benchmarks.deployment.queueing import replicas_for, wait_quantile
from benchmarks.engine.concurrency import words
from ecs_plugins import EntropicMemory, FakeEmbedder

HELP = """What many namespaces and recalls need, from what a few of them take here.

\b
  python -m benchmarks scaling --measure 2000 --messages 40 --namespaces 100000000 --rate 10000
  python -m benchmarks scaling --measure 500 --address private

A memory with the first number of namespaces is filled, in a file or at an address; its bytes, the
process's memory and the time of each recall are measured. Vectors have 384 numbers and come from a
fake, so embedding the question is in no figure. Then a line in front of each shard is simulated
with the measured times, for the least number of replicas within the target. Beside it: Erlang's
formula for the waiting, as if service times were exponential.
"""
_SHARDS = (1, 10, 100)


def scaling(
    measure: Annotated[int, typer.Option(min=10, help="Namespaces that are filled.")] = 2000,
    messages: Annotated[int, typer.Option(min=1, help="Messages of each.")] = 40,
    recalls: Annotated[int, typer.Option(min=100, help="Recalls that are timed.")] = 2000,
    namespaces: Annotated[int, typer.Option(min=1, help="Namespaces to plan for.")] = 100_000_000,
    rate: Annotated[float, typer.Option(min=0.1, help="Recalls per second.")] = 10_000.0,
    target: Annotated[float, typer.Option(min=0.1, help="p99 in milliseconds.")] = 50.0,
    address: Annotated[
        str | None,
        typer.Option(help="A server, or private: one of its own. A new file without it."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="JSON file; printed only without it.")] = None,
) -> None:
    """Measure, then plan."""
    with place_of(address) as place:
        found, services = _measured(place, measure, messages, recalls)
    found["disk of all (TiB)"] = found["disk per namespace (bytes)"] * namespaces / 2**40
    found["memory of all (TiB)"] = found["memory per namespace (bytes)"] * namespaces / 2**40
    for shards in _SHARDS:
        each = rate / shards
        replicas, p99 = replicas_for(each, services, target / 1e3)
        wait = wait_quantile(replicas, each, float(np.mean(services)), 0.99)
        found[f"{shards} shards: replicas of each"] = replicas
        found[f"{shards} shards: replicas in all"] = replicas * shards
        found[f"{shards} shards: p99 simulated (ms)"] = 1e3 * p99
        found[f"{shards} shards: p99 of waiting by M/M/c (ms)"] = 1e3 * wait
    for name, value in found.items():
        typer.echo(f"{name}: {value:,.4g}" if isinstance(value, float) else f"{name}: {value:,}")
    if out is not None:
        out.write_text(json.dumps(found, indent=1) + "\n")


def _measured(
    place: str | Path, measure: int, messages: int, recalls: int
) -> tuple[dict[str, float], list[float]]:
    """Bytes per namespace, and seconds of each recall."""
    draw = random.Random(0)
    before = anonymous_mib()
    label = f"{time.time_ns()}"  # nobody else's, should the address be that of a server in use
    with EntropicMemory.open(place, embedder=FakeEmbedder(384)) as memory:
        size = memory.admin.stats().bytes
        for number in range(measure):
            said = [words(draw, 12) for _ in range(messages)]
            memory.add(said, namespace=(label, f"user {number}"))
        held = anonymous_mib() - before
        services = []
        for _ in range(recalls):
            space = (label, f"user {draw.randrange(measure)}")
            question = words(draw, 6)
            began = time.perf_counter()
            memory.recall(question, namespace=space)
            services.append(time.perf_counter() - began)
        size = memory.admin.stats().bytes - size
    p50, p99 = np.quantile(services, (0.5, 0.99))
    found: dict[str, float] = {
        "namespaces measured": measure,
        "messages of each": messages,
        "disk per namespace (bytes)": size / measure,
        "memory per namespace (bytes)": held * 2**20 / measure,
        "recall mean (ms)": 1e3 * float(np.mean(services)),
        "recall p50 (ms)": 1e3 * float(p50),
        "recall p99 (ms)": 1e3 * float(p99),
    }
    return found, services
