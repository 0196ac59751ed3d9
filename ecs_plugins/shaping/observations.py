"""Every signal on every passage of labelled examples, the way `ContextShaper` computes it.

Besides the passages of a question, each signal sees unrelated ones, which belong to other
questions: the red herrings of Theorem 3.2, by which it should not be moved. And a few questions are
computed in other ways that should make no difference: every passage alone, and by the model's
slow reference. The largest difference is the numeric noise, below which a utility says nothing.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple, NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from ecs_plugins.common.files import digest, read_records, sampled
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.lm.base import LanguageModel, ModelAround, ScoreRequest, ScoreResult
from ecs_plugins.shaping.config import ShapingConfig, resolve_signal
from ecs_plugins.shaping.deadline import ScoredOnce
from ecs_plugins.shaping.result import ShapedContext
from ecs_plugins.shaping.shaper import ContextShaper
from ecs_plugins.shaping.signals.base import Signal

Progress = Callable[[int, int], None]
"""Told how many steps of how many are done."""

UNRELATED = 4
"""Unrelated passages per question."""
NOISE_QUESTIONS = 3
"""Questions that are computed in other ways as well."""


@dataclass(frozen=True, slots=True)
class LabelledExample:
    """One question about some passages, of which it is known which ones answer it.

    Attributes:
        question: As a user asks it.
        passages: What a retriever would return, evidence and distractors; none blank.
        evidence: Indices of the passages that help to answer; may be empty.
        answers: The answers that count, if they are known.

    Raises:
        InvalidInputError: A text is blank, an index is out of range or repeated, or there is no
            passage.
    """

    question: str
    passages: tuple[str, ...]
    evidence: tuple[int, ...]
    answers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("passages", "evidence", "answers"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise InvalidInputError(f"{name} must be a list, got one text")
            object.__setattr__(self, name, tuple(value))
        fault = self._fault()
        if fault:
            raise InvalidInputError(f"the example {self.question!r} {fault}")

    def _fault(self) -> str:
        """What is wrong with it; empty if nothing is."""
        size = len(self.passages)
        evidence = set(self.evidence)
        if not self.question.strip():
            return "needs a question"
        if not all(map(str.strip, (*self.passages, *self.answers))):
            return "has a blank passage or answer; leave it out"
        if not size:
            return "has no passages"
        if not evidence <= set(range(size)):
            return (
                f"needs evidence that are indices of its {size} passages, from 0; "
                f"got {self.evidence}"
            )
        if len(evidence) < len(self.evidence):
            return f"repeats an index of its evidence {self.evidence}"
        return ""

    @property
    def labels(self) -> tuple[bool, ...]:
        """Which passages are evidence."""
        return tuple(index in self.evidence for index in range(len(self.passages)))

    @classmethod
    def read(
        cls, path: str | os.PathLike[str], *, limit: int | None = None, seed: int = 42
    ) -> list[LabelledExample]:
        """Read JSON lines ``{question, passages, evidence, answer?}``.

        Args:
            path: The file. ``answer`` is a text or a list of texts that all count.
            limit: Take a sample of this many, kept in the order of the file.
            seed: Of the sample.

        Raises:
            StorageError: The file cannot be read.
            InvalidInputError: A line cannot be used (it is named), or there is none.
        """
        examples = read_records(path, _example)
        if not examples:
            raise InvalidInputError(
                f'{path} holds no examples; write one {{"question": "...", "passages": ["..."], '
                '"evidence": [0]} per line'
            )
        return sampled(examples, limit, seed)


class _Record(TypedDict):
    question: str
    passages: list[str]
    evidence: list[int]
    answer: NotRequired[str | list[str] | None]


def _example(line: str, _: int) -> LabelledExample:
    record = TypeAdapter(_Record).validate_json(line, strict=True)
    answer = record.get("answer") or ()
    answers = (answer,) if isinstance(answer, str) else tuple(filter(None, answer))
    return LabelledExample(
        record["question"],
        tuple(record["passages"]),
        tuple(record["evidence"]),
        answers,
    )


def data_hash(examples: Sequence[LabelledExample]) -> str:
    """SHA-256 over questions, passages, evidence and answers, in order."""
    rows = [
        [example.question, example.passages, example.evidence, example.answers]
        for example in examples
    ]
    return digest(rows)


Score = Callable[[Sequence[ScoreRequest]], list[ScoreResult]]


class ScoredBy(ModelAround):
    """The same model, whose requests are scored by a function."""

    def __init__(self, model: LanguageModel, score: Score) -> None:
        super().__init__(model)
        self._score = score

    def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """As the function."""
        return self._score(requests)


def _one_by_one(model: LanguageModel, request: ScoreRequest) -> ScoreResult:
    """Every candidate in a request of its own; a divergence needs the first beside it."""
    once = ScoredOnce(model)
    for candidate in request.candidates:
        once.score([replace(request, candidates=(request.candidates[0], candidate))])
    return once.score([request])[0]


@dataclass(frozen=True, slots=True)
class Noise:
    """The largest difference between ways to compute a utility that should agree."""

    alone: float
    """Every passage in a request of its own, against all together."""
    reference: float | None = None
    """The slow reference path against the fast one; None where a model has none."""

    @property
    def largest(self) -> float:
        """The larger of the two."""
        return max(self.alone, self.reference or 0.0)


def observe(
    model: LanguageModel,
    examples: Sequence[LabelledExample],
    signals: Sequence[str | Signal],
    *,
    seed: int = 42,
    progress: Progress | None = None,
) -> Iterator[tuple[Signal, list[ShapedContext], Noise]]:
    """Every signal with what it makes of each example, its own passages before unrelated ones.

    Signals that need an answer are told it; those that do not are not, because they are made for
    questions whose answer is not known. Arguments and errors: `ModelDiagnostics.measure`.
    """
    if len(examples) < 2:
        raise InvalidInputError(
            f"{len(examples)} examples are too few: questions lend each other their unrelated "
            "passages, so give at least two"
        )
    resolved = _resolved(signals, examples)
    shown = [
        _ShownPassages(example, _unrelated(examples, number, random.Random(f"{seed}:{number}")))
        for number, example in enumerate(examples)
    ]
    checked = shown[:NOISE_QUESTIONS]
    ways = _other_ways(model)
    steps = len(resolved) * (len(shown) + len(ways) * len(checked))
    done = count(1)
    plain = ShapingConfig(
        ranker=None,
        redundancy_similarity=None,
        on_error="raise",
        seed=seed,
        conversation=False,
    )

    def shape(by: LanguageModel, signal: Signal, each: _ShownPassages) -> ShapedContext:
        shaper = ContextShaper(by, plain.replace(signal=signal))
        answers = each.example.answers if signal.needs_answer else ()
        shaped = shaper.shape(each.example.question, each.passages, answer=answers)
        if progress is not None:
            progress(next(done), steps)
        return shaped

    for signal in resolved:
        results = [shape(model, signal, each) for each in shown]
        noise: list[float] = []
        for way in ways:
            others = [shape(way, signal, each) for each in checked]
            noise.append(max(map(_difference, results, others)))
        yield signal, results, Noise(*noise)


class _ShownPassages(NamedTuple):
    """An example with the unrelated passages that are shown behind its own."""

    example: LabelledExample
    unrelated: Sequence[str]

    @property
    def passages(self) -> tuple[str, ...]:
        return (*self.example.passages, *self.unrelated)


def _other_ways(model: LanguageModel) -> list[ScoredBy]:
    """The same model, computed in other ways that should make no difference."""

    def alone(requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        return [_one_by_one(model, request) for request in requests]

    ways = [ScoredBy(model, alone)]
    reference = getattr(model, "score_by_reference", None)
    if reference is not None:
        ways.append(ScoredBy(model, reference))
    return ways


def _difference(one: ShapedContext, other: ShapedContext) -> float:
    """The largest one between utilities of the same passage."""
    largest = 0.0
    for verdict, again in zip(one.verdicts, other.verdicts, strict=True):
        if verdict.utility is not None and again.utility is not None:
            largest = max(largest, abs(verdict.utility - again.utility))
    return largest


def _resolved(signals: Sequence[str | Signal], examples: Sequence[LabelledExample]) -> list[Signal]:
    if isinstance(signals, str):
        raise InvalidInputError(f"signals is a list; write [{signals!r}]")
    resolved = [resolve_signal(signal, has_answer=True) for signal in signals]
    names = [signal.name for signal in resolved]
    if not names or len(set(names)) < len(names):
        raise InvalidInputError(f"name at least one signal, and none twice; got {names}")
    needing = [signal.name for signal in resolved if signal.needs_answer]
    lacking = [example.question for example in examples if not example.answers]
    if needing and lacking:
        raise InvalidInputError(
            f"{', '.join(needing)} needs answers, and {lacking[0]!r} has none: add them, or "
            "leave out these signals"
        )
    return resolved


def _unrelated(examples: Sequence[LabelledExample], of: int, draw: random.Random) -> list[str]:
    """Passages of other examples, drawn."""
    own = {passage.strip() for passage in examples[of].passages}
    others: dict[str, None] = {}  # in order, each once
    for example in examples:
        for passage in example.passages:
            if passage.strip() not in own:
                others[passage] = None
    return draw.sample(list(others), min(UNRELATED, len(others)))
