"""Every signal on every passage of the examples, the way `ContextShaper` computes it.

Besides the passages of a question, each signal sees unrelated ones, which belong to other
questions: the red herrings of Theorem 3.2, by which it should not be moved. And a few questions are
computed in other ways that should make no difference: every passage alone, and by the model's
slow reference. The largest difference is the numeric noise, below which a utility says nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.shaping.config import ShapingConfig
from ecs_plugins.shaping.diagnostics.examples import LabelledExample
from ecs_plugins.shaping.diagnostics.statistics import Distribution, Floats, Groups, Labels
from ecs_plugins.shaping.diagnostics.ways import ByReference, HasReference, OneByOne
from ecs_plugins.shaping.protocol import Signal
from ecs_plugins.shaping.result import ShapedContext
from ecs_plugins.shaping.shaper import ContextShaper
from ecs_plugins.shaping.signals import resolve_signal

UNRELATED = 4
"""Unrelated passages per question."""
NOISE_QUESTIONS = 3
"""Questions that are computed in other ways as well."""

Progress = Callable[[int, int], None]
"""Told how many steps of how many are done."""


@dataclass(frozen=True, slots=True)
class Noise:
    """The largest difference between ways to compute a utility that should agree.

    Attributes:
        alone: Every passage in a request of its own, against all together.
        reference: The slow reference path against the fast one; None where a model has none.
    """

    alone: float
    reference: float | None

    @property
    def largest(self) -> float:
        """The larger of the two."""
        return max(self.alone, self.reference or 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Observations:
    """What was measured, before anything is concluded.

    Attributes:
        signals: The signals, in the order of the columns.
        utilities: ``[passages, signals]``; NaN where a passage could not be scored.
        orders: What the passages are ordered by, likewise.
        labels: ``[passages]``, which are evidence.
        questions: ``[passages]``, the number of the question.
        unrelated: Utilities of unrelated passages, ``[unrelated passages, signals]``.
        noise: Numeric noise of every signal.
        tokens: Tokens that every signal had computed per token of a passage.
    """

    signals: tuple[Signal, ...]
    utilities: Floats
    orders: Floats
    labels: Labels
    questions: Groups
    unrelated: Floats
    noise: tuple[Noise, ...]
    tokens: tuple[float, ...]

    def chosen(self, signals: Sequence[int]) -> Observations:
        """The same of some of the signals, by number."""
        columns = list(signals)
        return replace(
            self,
            signals=tuple(self.signals[n] for n in columns),
            utilities=self.utilities[:, columns],
            orders=self.orders[:, columns],
            unrelated=self.unrelated[:, columns],
            noise=tuple(self.noise[n] for n in columns),
            tokens=tuple(self.tokens[n] for n in columns),
        )


def observe(
    model: LanguageModel,
    examples: Sequence[LabelledExample],
    signals: Sequence[str | Signal],
    *,
    unrelated: int = UNRELATED,
    noise_questions: int = NOISE_QUESTIONS,
    with_answers: bool | None = None,
    seed: int = 42,
    progress: Progress | None = None,
) -> Observations:
    """Measure signals on labelled examples.

    Args:
        model: Whose log-probabilities are used.
        examples: At least two, so that each can lend the others unrelated passages.
        signals: Names or own signals.
        unrelated: Unrelated passages per question; 0 leaves them out.
        noise_questions: Questions that are computed in other ways as well.
        with_answers: Whether signals are told the answers; by default those that need them,
            because those that do not are made for questions whose answer is not known.
        seed: Draws the unrelated passages.
        progress: Told after every question of every signal.

    Raises:
        InvalidInputError: Fewer than two examples, no signal or one twice, a signal needs an
            answer that an example lacks, or a number is negative.
        ConfigurationError: A signal is unknown, or asks for what the model does not give.
        ModelError: The model cannot score.
    """
    if len(examples) < 2:
        raise InvalidInputError(
            f"{len(examples)} examples are too few: questions lend each other their unrelated "
            "passages, so give at least two"
        )
    if unrelated < 0 or noise_questions < 0:
        raise InvalidInputError("unrelated and noise_questions must not be negative")
    found = resolved(signals)
    answered = [s.needs_answer if with_answers is None else with_answers for s in found]
    _require_answers(examples, found, answered)
    foreign = [
        _unrelated(examples, n, unrelated, random.Random(f"{seed}:{n}"))
        for n in range(len(examples))
    ]
    columns: list[_Column] = []
    ways = 1 + isinstance(model, HasReference)
    steps = len(found) * (len(examples) + ways * min(noise_questions, len(examples)))
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, steps)

    for signal, tell in zip(found, answered, strict=True):
        column = _Column(signal, tell)
        for n, example in enumerate(examples):
            column.add(model, example, foreign[n], seed, first=n < noise_questions)
            step()
        column.check(model, seed, step)
        columns.append(column)
    labels = [label for example in examples for label in example.labels]
    numbers = [n for n, example in enumerate(examples) for _ in example.passages]
    return Observations(
        signals=found,
        utilities=_table([c.utilities for c in columns]),
        orders=_table([c.orders for c in columns]),
        labels=np.array(labels, dtype=np.bool_),
        questions=np.array(numbers, dtype=np.int64),
        unrelated=_table([c.unrelated for c in columns]),
        noise=tuple(c.noise for c in columns),
        tokens=tuple(c.computed / max(1, c.passage_tokens) for c in columns),
    )


def red_herrings(
    model: LanguageModel,
    examples: Sequence[LabelledExample],
    signals: Sequence[str | Signal],
    *,
    unrelated: int = UNRELATED,
    seed: int = 42,
) -> dict[str, Distribution]:
    """How signals are distributed over passages that have nothing to do with the question.

    Theorem 3.2 says that these lie near zero; how near is a matter of the model. ``share_above``
    of a result tells how many of them a threshold would let pass.

    Args:
        model: Whose log-probabilities are used.
        examples: Questions and passages; labels may be empty.
        signals: Names or own signals.
        unrelated: Passages of other questions, per question; at least 1.
        seed: Draws them.

    Raises:
        InvalidInputError: As by `observe`, or ``unrelated`` is below 1.
    """
    if unrelated < 1:
        raise InvalidInputError(f"unrelated must be at least 1, got {unrelated}")
    found = observe(model, examples, signals, unrelated=unrelated, noise_questions=0, seed=seed)
    return {
        signal.name: Distribution.of(found.unrelated[:, n])
        for n, signal in enumerate(found.signals)
    }


def resolved(signals: Sequence[str | Signal]) -> tuple[Signal, ...]:
    """Signals by their names, each once.

    Raises:
        InvalidInputError: There is none, or one twice.
        ConfigurationError: A name is unknown.
    """
    if isinstance(signals, str):
        raise InvalidInputError(f"signals is a list; write [{signals!r}]")
    found = tuple(resolve_signal(signal, has_answer=True) for signal in signals)
    names = [signal.name for signal in found]
    if not names or len(set(names)) < len(names):
        raise InvalidInputError(f"name at least one signal, and none twice; got {names}")
    return found


class _Column:
    """One signal on its way through the examples."""

    def __init__(self, signal: Signal, tell: bool) -> None:
        self.signal = signal
        self.tell = tell
        self.utilities: list[float] = []
        self.orders: list[float] = []
        self.unrelated: list[float] = []
        self.noise = Noise(0.0, None)
        self.computed = self.passage_tokens = 0
        self._first: list[tuple[LabelledExample, list[str], list[float]]] = []

    def add(
        self,
        model: LanguageModel,
        example: LabelledExample,
        foreign: list[str],
        seed: int,
        *,
        first: bool,
    ) -> None:
        passages = [*example.passages, *foreign]
        shaped = self._shape(model, example, passages, seed)
        own = len(example.passages)
        values = [_number(verdict.utility) for verdict in shaped.verdicts]
        self.utilities += values[:own]
        self.orders += [_number(verdict.score) for verdict in shaped.verdicts[:own]]
        self.unrelated += values[own:]
        self.computed += shaped.ledger.total()
        self.passage_tokens += sum(v.tokens for v in shaped.verdicts if v.utility is not None)
        if first:
            self._first.append((example, passages, values))

    def check(self, model: LanguageModel, seed: int, step: Callable[[], None]) -> None:
        """Compute the first questions in the other ways."""
        alone = self._largest_difference(OneByOne(model), seed, step)
        plain = ByReference(model) if isinstance(model, HasReference) else None
        reference = None if plain is None else self._largest_difference(plain, seed, step)
        self.noise = Noise(alone, reference)

    def _largest_difference(
        self, model: LanguageModel, seed: int, step: Callable[[], None]
    ) -> float:
        largest = 0.0
        for example, passages, values in self._first:
            shaped = self._shape(model, example, passages, seed)
            for verdict, value in zip(shaped.verdicts, values, strict=True):
                difference = abs(_number(verdict.utility) - value)
                largest = max(largest, 0.0 if np.isnan(difference) else difference)
            step()
        return largest

    def _shape(
        self, model: LanguageModel, example: LabelledExample, passages: list[str], seed: int
    ) -> ShapedContext:
        config = ShapingConfig(
            signal=self.signal,
            ranker=None,
            redundancy_similarity=None,
            on_error="raise",
            seed=seed,
            conversation=False,
        )
        answers = example.answers if self.tell else ()
        return ContextShaper(model, config).shape(example.question, passages, answer=answers)


def _require_answers(
    examples: Sequence[LabelledExample], signals: Sequence[Signal], answered: Sequence[bool]
) -> None:
    needing = [s.name for s, tell in zip(signals, answered, strict=True) if tell]
    lacking = next((example for example in examples if not example.answers), None)
    if needing and lacking is not None:
        raise InvalidInputError(
            f"{', '.join(needing)} needs answers, and {lacking.question!r} has none: add them, or "
            "leave out these signals"
        )


def _unrelated(
    examples: Sequence[LabelledExample], of: int, number: int, draw: random.Random
) -> list[str]:
    own = {passage.strip() for passage in examples[of].passages}
    others: Mapping[str, None] = dict.fromkeys(
        passage
        for n, example in enumerate(examples)
        if n != of
        for passage in example.passages
        if passage.strip() not in own
    )
    return draw.sample(list(others), min(number, len(others)))


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _table(columns: Sequence[Sequence[float]]) -> Floats:
    return np.array(columns, dtype=np.float64).T
