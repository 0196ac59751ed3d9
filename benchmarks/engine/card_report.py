"""Settings and report of the check of a card."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.engine.measure import Log
from benchmarks.engine.workload import Setting
from ecs_plugins.lm.scoring.request import Scores

EXACT = 1e-4
"""Nats per token that float32 may be off."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Settings of the check.

    Attributes:
        model: The shape that speed is measured on.
        large: A shape whose products fill a card.
        passages: Passages of a question.
        large_passages: The same, of the large shape.
        length: Shortest and longest passage, in tokens.
        contexts: Tokens of the shared context.
        repeats: Questions per figure.
        bundled: Whether the bundled model is held to itself too, where it is installed.
    """

    model: str = "llama135"
    large: str = "llama8b"
    passages: int = 200
    large_passages: int = 64
    length: tuple[int, int] = (140, 260)
    contexts: tuple[int, ...] = (0, 2000)
    repeats: int = 4
    bundled: bool = True

    def setting(self, model: str, context: int, passages: int) -> Setting:
        """The setting of one figure."""
        return Setting(model, context, passages, self.length, question=8, answer=32)


QUICK = Sizes("llama38", "llama38", 6, 4, (4, 20), (0, 60), 2, bundled=False)
"""To see that it works."""


class Report:
    """Verdicts and figures, told as they come.

    Attributes:
        figures: By name.
        failed: Names of what was wrong.
    """

    def __init__(self, log: Log) -> None:
        self.figures: dict[str, Any] = {}
        self.failed: list[str] = []
        self.log = log

    def judge(self, name: str, good: bool, text: str) -> None:
        """Say whether something is as it should be."""
        self.log(f"{'right' if good else 'WRONG'}: {name}: {text}")
        self.figures[name] = text
        if not good:
            self.failed.append(name)

    def tell(self, name: str, value: Any) -> None:
        """Note a figure."""
        self.log(f"{name}: {value}")
        self.figures[name] = value

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Whatever goes wrong inside is a verdict, and the next part goes on."""
        try:
            yield
        except Exception as error:
            self.judge(name, False, f"{type(error).__name__}: {str(error)[:200]}")


def errors_of(found: Sequence[Scores], wanted: Sequence[Scores]) -> np.ndarray:
    """Differences of all scored tokens, in nats."""
    differences: list[np.ndarray] = []
    for one, other in zip(found, wanted, strict=True):
        differences.extend(np.abs(one[key] - logprobs) for key, logprobs in other.items())
    return np.concatenate(differences)
