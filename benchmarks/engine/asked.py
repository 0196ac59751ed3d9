"""First and later questions over one pool, beside another version of the package.

Each version runs in a process of its own, with one thread, and both answer the same question one
after the other; what is reported is the ratio of their CPU times, over pools. The process is this
file run as a script, which imports nothing but what both versions have.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

POOL = 40
"""Passages of a pool."""

Ask = Callable[[str, Sequence[str]], dict[str, Any]]


def asked(
    data: Path, baseline: Path, *, pools: int, later: int, log: Callable[[str], None]
) -> dict[str, Any]:
    """Ask ``1 + later`` questions over every pool of successive turns.

    Args:
        data: Conversations with questions, in LoCoMo's format.
        baseline: The folder that holds the other version's package.
        pools: How many pools.
        later: Questions over a pool after the first.
        log: Told what is going on.

    Returns:
        JSON: ratios of CPU time ``baseline / ours``, seconds and tokens of either, and the largest
        difference of a utility, in nats.
    """
    from dataclasses import asdict

    from benchmarks.engine.measure import ratio_of

    ours, theirs = Path(__file__).parents[2], baseline
    kinds: dict[str, list[list[float]]] = {"first": [], "later": []}
    tokens: dict[str, list[list[int]]] = {"first": [], "later": []}
    off = 0.0
    with _version(ours) as new, _version(theirs) as old:
        for number, (passages, questions) in enumerate(_pools(data, pools, later)):
            for ask in (new, old):
                ask("What was said before?", ["Nothing was said before."])
            rows: list[tuple[list[float], list[int]]] = []
            for turn, question in enumerate(questions):
                order = [new, old] if (number + turn) % 2 else [old, new]
                answers = {ask: ask(question, passages) for ask in order}
                pair = [answers[new], answers[old]]
                rows.append(([a["seconds"] for a in pair], [a["tokens"] for a in pair]))
                found = zip(*(a["utilities"] for a in pair), strict=True)
                off = max([off, *(abs(a - b) for a, b in found)])
            for kind, part in (("first", rows[:1]), ("later", rows[1:])):
                kinds[kind].append([sum(s[n] for s, _ in part) for n in (0, 1)])
                tokens[kind].append([sum(t[n] for _, t in part) for n in (0, 1)])
            log(
                f"pool {number + 1}/{pools}: first {kinds['first'][-1]}, later {kinds['later'][-1]}"
            )
    return {
        kind: {
            "ratio": asdict(ratio_of([s[0] for s in seconds], [s[1] for s in seconds])),
            "seconds": seconds,
            "tokens": [sum(t[n] for t in tokens[kind]) for n in (0, 1)],
        }
        for kind, seconds in kinds.items()
    } | {"difference": off, "later_questions": later, "pools": pools}


def _pools(data: Path, pools: int, later: int) -> Iterator[tuple[list[str], list[str]]]:
    """Successive turns of the conversations in turn, and questions about that conversation."""
    records = json.loads(data.read_text("utf-8"))
    for number in range(pools):
        record = records[number % len(records)]
        turns = [
            f"{turn['speaker']}: {turn['text']}"
            for name, session in record["conversation"].items()
            if name.startswith("session_") and isinstance(session, list)
            for turn in session
        ]
        at = number // len(records)
        questions = [qa["question"] for qa in record["qa"]][at * (later + 1) :]
        yield turns[at * POOL : (at + 1) * POOL], questions[: later + 1]


@contextmanager
def _version(folder: Path) -> Iterator[Ask]:
    """The version of a folder, in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    to, of = process.stdin, process.stdout

    def ask(question: str, passages: Sequence[str]) -> dict[str, Any]:
        to.write(json.dumps([question, list(passages)]) + "\n")
        to.flush()
        found: dict[str, Any] = json.loads(of.readline())
        return found

    try:
        yield ask
    finally:
        to.close()
        process.wait()


def _serve() -> None:
    """Answer questions of standard input."""
    import torch

    from ecs_plugins import ContextShaper, LocalLM, ShapingConfig

    torch.set_num_threads(1)
    config = ShapingConfig(signal="query_likelihood", top_k=5, redundancy_similarity=None)
    shaper = ContextShaper(LocalLM.bundled(device="cpu", dtype="float32"), config)
    for line in sys.stdin:
        question, passages = json.loads(line)
        started = time.process_time()
        shaped = shaper.shape(question, passages)
        seconds = time.process_time() - started
        answer = {
            "seconds": seconds,
            "tokens": shaped.ledger.total(),
            "utilities": [v.utility for v in shaped.verdicts if v.utility is not None],
        }
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
