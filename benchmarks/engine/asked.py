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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

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
    ours = Path(__file__).parents[2]
    first = _Side()
    others = _Side()
    difference = 0.0
    with _version(ours) as new, _version(baseline) as old:
        for number, pool in enumerate(_pools(data, pools, later)):
            passages, questions = pool
            for ask in (new, old):
                ask("What was said before?", ["Nothing was said before."])
            answers = []
            for turn, question in enumerate(questions):
                pair = _ask_both(new, old, question, passages, new_first=(number + turn) % 2 == 1)
                difference = max(difference, pair.difference)
                answers.append(pair)
            first.add(answers[:1])
            others.add(answers[1:])
            log(f"pool {number + 1}/{pools}: first {first.last}, later {others.last}")
    return {
        "first": first.summary(),
        "later": others.summary(),
        "difference": difference,
        "later_questions": later,
        "pools": pools,
    }


class _Pair(NamedTuple):
    """What both versions answered to one question."""

    new: dict[str, Any]
    old: dict[str, Any]

    @property
    def difference(self) -> float:
        """The largest difference of a utility."""
        pairs = zip(self.new["utilities"], self.old["utilities"], strict=True)
        return max((abs(a - b) for a, b in pairs), default=0.0)


def _ask_both(
    new: Ask, old: Ask, question: str, passages: Sequence[str], *, new_first: bool
) -> _Pair:
    if new_first:
        answer = new(question, passages)
        return _Pair(answer, old(question, passages))
    answer = old(question, passages)
    return _Pair(new(question, passages), answer)


@dataclass
class _Side:
    """The first questions over all pools, or the later ones: sums of each pool."""

    seconds: list[tuple[float, float]] = field(default_factory=list)
    tokens: list[tuple[int, int]] = field(default_factory=list)

    def add(self, pairs: Sequence[_Pair]) -> None:
        """Another pool."""
        self.seconds.append(
            (sum(pair.new["seconds"] for pair in pairs), sum(pair.old["seconds"] for pair in pairs))
        )
        self.tokens.append(
            (sum(pair.new["tokens"] for pair in pairs), sum(pair.old["tokens"] for pair in pairs))
        )

    @property
    def last(self) -> tuple[float, float]:
        """Seconds of the last pool."""
        return self.seconds[-1]

    def summary(self) -> dict[str, Any]:
        """JSON."""
        from benchmarks.engine.measure import ratio_of

        new_seconds, old_seconds = zip(*self.seconds, strict=True)
        new_tokens, old_tokens = zip(*self.tokens, strict=True)
        return {
            "ratio": asdict(ratio_of(list(new_seconds), list(old_seconds))),
            "seconds": self.seconds,
            "tokens": [sum(new_tokens), sum(old_tokens)],
        }


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
        answer: dict[str, Any] = json.loads(of.readline())
        return answer

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
