"""Labelled examples, and every signal on every passage of them, as `ContextShaper` computes it.

Besides the passages of a question, each signal reads unrelated ones, which belong to other
questions: the red herrings of Theorem 3.2, by which it should not be moved. A few questions are
computed in other ways that should make no difference: every passage alone, and by the model's
slow reference. The largest difference is the numeric noise, below which a utility means nothing.
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
from ecs_plugins.shaping.result import ShapedContext
from ecs_plugins.shaping.shaper import ContextShaper
from ecs_plugins.shaping.signals.base import Signal

Progress = Callable[[int, int], None]
"""Called with the number of finished steps and of all steps."""

UNRELATED = 4
"""Unrelated passages per question."""
NOISE_QUESTIONS = 3
"""Questions that are computed in other ways as well."""


@dataclass(frozen=True, slots=True)
class LabelledExample:
    """A question about passages, with labels of those that answer it.

    Attributes:
        question: As a user asks it.
        passages: A retriever's passages, evidence and distractors; none blank.
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
        """Return the fault of the example; empty if there is none."""
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
        """True for each passage that is evidence."""
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
    """Return the SHA-256 of questions, passages, evidence and answers, in order."""
    rows = [
        [example.question, example.passages, example.evidence, example.answers]
        for example in examples
    ]
    return digest(rows)


class _ScoredBy(ModelAround):
    """Model around another one, whose requests are scored by a function."""

    def __init__(
        self, model: LanguageModel, score: Callable[[Sequence[ScoreRequest]], list[ScoreResult]]
    ) -> None:
        super().__init__(model)
        self._score = score

    def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """Score requests by the function."""
        return self._score(requests)


def _one_by_one(model: LanguageModel, request: ScoreRequest) -> ScoreResult:
    """Score every candidate in a request of its own; a divergence needs the first as well."""
    base, *others = request.candidates
    results = model.score([replace(request, candidates=(base, each)) for each in others])
    if not results:
        return model.score([request])[0]
    first = results[0]
    unscored = {n: r.unscored[1] for n, r in enumerate(results, 1) if 1 in r.unscored}
    if 0 in first.unscored:
        unscored[0] = first.unscored[0]
    return ScoreResult(
        scores=(first.scores[0], *(result.scores[1] for result in results)),
        candidate_tokens=(
            first.candidate_tokens[0],
            *(result.candidate_tokens[1] for result in results),
        ),
        computed_tokens=sum(result.computed_tokens for result in results),
        unscored=unscored,
    )


@dataclass(frozen=True, slots=True)
class Noise:
    """The largest difference between ways to compute a utility that should agree."""

    alone: float
    """Every passage in a request of its own, against all together."""
    reference: float | None = None
    """The slow reference path against the fast one; None where a model has none."""

    @property
    def largest(self) -> float:
        """Larger of the two."""
        return max(self.alone, self.reference or 0.0)


class Observed(NamedTuple):
    """A signal, its result for each example, and its numeric noise."""

    signal: Signal
    results: list[ShapedContext]
    noise: Noise


def observe(
    model: LanguageModel,
    examples: Sequence[LabelledExample],
    signals: Sequence[str | Signal],
    *,
    seed: int = 42,
    progress: Progress | None = None,
) -> Iterator[Observed]:
    """Yield every signal with its results; an example's own passages stand before unrelated ones.

    Only signals that need an answer are told it: the others are made for questions whose answer is
    not known. Arguments and errors: `ModelDiagnostics.measure`.
    """
    if len(examples) < 2:
        raise InvalidInputError(
            f"{len(examples)} examples are too few: unrelated passages are those of other "
            "questions, so give at least two"
        )
    resolved = _resolved(signals, examples)
    shown: list[_ShownPassages] = []
    for number, example in enumerate(examples):
        draw = random.Random(f"{seed}:{number}")
        shown.append(_ShownPassages(example, _unrelated(examples, number, draw)))
    ways = _other_ways(model)
    checked = shown[:NOISE_QUESTIONS]
    steps = len(resolved) * (len(shown) + len(ways) * len(checked))
    done = count(1)
    plain = ShapingConfig(ranker=None, redundancy_similarity=None, on_error="raise")

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
        yield Observed(signal, results, Noise(*noise))


class _ShownPassages(NamedTuple):
    """An example, and unrelated passages that follow its own."""

    example: LabelledExample
    unrelated: Sequence[str]

    @property
    def passages(self) -> tuple[str, ...]:
        return (*self.example.passages, *self.unrelated)


def _other_ways(model: LanguageModel) -> list[_ScoredBy]:
    """Return the model, computed in other ways that should make no difference."""

    def alone(requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        return [_one_by_one(model, request) for request in requests]

    ways = [_ScoredBy(model, alone)]
    reference = getattr(model, "score_by_reference", None)
    if reference is not None:
        ways.append(_ScoredBy(model, reference))
    return ways


def _difference(one: ShapedContext, other: ShapedContext) -> float:
    """Return the largest difference between utilities of the same passage."""
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
    """Draw passages of other examples."""
    own = {passage.strip() for passage in examples[of].passages}
    others: dict[str, None] = {}  # in order, each once
    for example in examples:
        for passage in example.passages:
            if passage.strip() not in own:
                others[passage] = None
    return draw.sample(list(others), min(UNRELATED, len(others)))
