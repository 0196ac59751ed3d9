"""What differs between servers: paths, payloads, and how an answer is read.

A dialect is stateless. It raises `ScoringError` for an answer whose numbers cannot be used, and
`KeyError`, `TypeError`, `ValueError` or `IndexError` for one that is not of the known form; the
client turns those into an error that says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ecs_plugins.errors import ScoringError
from ecs_plugins.lm.base import Generation
from ecs_plugins.lm.generation import GenerationOptions

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """One HTTP request: GET without a body, POST with one."""

    path: str
    body: Json | None = None


@dataclass(frozen=True, slots=True)
class Scores:
    """Log-probabilities of the tokens from the first scored one on, and tokens computed."""

    logprobs: tuple[float, ...]
    computed_tokens: int


class Dialect(Protocol):
    """How one kind of server is spoken to."""

    name: str
    shares_prefixes: bool
    """Whether prompt log-probabilities profit from the server's prefix cache."""

    def score(self, model: str, ids: Sequence[int], start: int) -> Ask:
        """Ask for the log-probabilities of ``ids[start:]``; ``start`` is at least 1."""
        ...

    def scores(self, answer: Json, ids: Sequence[int], start: int) -> Scores:
        """Read them, and see that they are about these ids."""
        ...

    def generate(self, model: str, ids: Sequence[int], options: GenerationOptions) -> Ask:
        """Ask for a continuation."""
        ...

    def generation(self, answer: Json) -> Generation:
        """Read it."""
        ...

    def tokenize(self, model: str, text: str) -> Ask:
        """Ask how the server encodes a text, with the tokens that its tokenizer adds."""
        ...

    def tokenized(self, answer: Json) -> list[int]:
        """Read the ids."""
        ...

    def window_asks(self) -> tuple[Ask, ...]:
        """Where to ask for the longest prompt, in order of preference."""
        ...

    def window(self, answer: Json, model: str) -> int | None:
        """The longest prompt in tokens, if the answer holds it."""
        ...


def checked(values: Sequence[tuple[int, float | None]], ids: Sequence[int]) -> tuple[float, ...]:
    """Log-probabilities of exactly these ids.

    Raises:
        ScoringError: Other tokens, too few, or no numbers.
    """
    if len(values) != len(ids):
        raise ScoringError(
            f"the server returned {len(values)} log-probabilities for {len(ids)} tokens; check "
            "that nothing between here and the server changes or truncates requests"
        )
    for (got, _), wanted in zip(values, ids, strict=True):
        if got != wanted:
            raise ScoringError(
                f"the server scored token {got} where {wanted} was sent; it changes prompts and "
                "its scores cannot be used"
            )
    numbers = tuple(math.nan if value is None else float(value) for _, value in values)
    if any(math.isnan(n) or n == math.inf for n in numbers):
        raise ScoringError(
            "the server returned NaN log-probabilities; its model is broken or overflows: serve "
            "it in bfloat16 or float32"
        )
    return numbers


def window_of_models(answer: Json, model: str) -> int | None:
    """``max_model_len`` of a model in an answer of ``/v1/models``."""
    for entry in answer["data"]:
        if entry["id"] == model and entry.get("max_model_len"):
            return int(entry["max_model_len"])
    return None
