"""Fitness of a model for context shaping, measured on a user's own examples.

The paper found the same signal to be worth .265 F1 with one model and .020 with another (section
4.4.2), so a model is measured before it is deployed. Besides the passages of a question, each
signal reads unrelated ones, which belong to other questions: the red herrings of Theorem 3.2, by
which it should not be moved.

A signal is *fit* if it puts evidence before distractors clearly more often than chance and its
threshold lies above its values for unrelated passages. It is *weak* if it ranks and one of these
fails, and *unfit* if it may as well be chance.
"""

from __future__ import annotations

import json
import os
import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NotRequired

import numpy as np
import numpy.typing as npt
from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from ecs_plugins.common.files import (
    read_records,
    read_text,
    read_versioned,
    sampled,
    write_atomically,
)
from ecs_plugins.common.rendering import rendered
from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.shaping.config import ShapingConfig, is_signal, resolve_signal
from ecs_plugins.shaping.probability import LabelledList, ProbabilityFit
from ecs_plugins.shaping.shaper import ContextShaper
from ecs_plugins.shaping.signals.base import Signal

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.bool_]
Groups = npt.NDArray[np.int64]

Progress = Callable[[int, int], None]
"""Called with the number of finished steps and of all steps."""

UNRELATED = 4
"""Unrelated passages per question."""
FIT_AUC = 0.75
"""AUC from which on a signal ranks well."""
ENOUGH_QUESTIONS = 20
"""Questions with evidence and distractors below which nothing is called fit."""
FOLDS = 5
SEED = 42
VERSION = 1
"""Of the format in which diagnostics are written."""
_FORMAT = "ecs_plugins.ModelDiagnostics"
ANSWER_SIGNALS = ("answer_shift", "joint_shift")
"""Measured by default where every example has an answer."""
LABEL_FREE_SIGNALS = ("query_likelihood", "query_likelihood+bm25+dense")
"""Measured by default."""


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
        fault = self._fault()
        if fault:
            raise InvalidInputError(f"the example {self.question!r} {fault}")

    def _fault(self) -> str:
        """Return an error message about the example; empty if the example is valid."""
        size = len(self.passages)
        if isinstance(self.passages, str) or isinstance(self.answers, str):
            return "needs lists of passages and answers"
        if not self.question.strip():
            return "needs a question"
        if not all(map(str.strip, (*self.passages, *self.answers))):
            return "has a blank passage or answer; leave it out"
        if not size:
            return "has no passages"
        if not set(self.evidence) <= set(range(size)):
            return (
                f"needs evidence that are indices of its {size} passages, from 0; "
                f"got {self.evidence}"
            )
        if len(set(self.evidence)) < len(self.evidence):
            return f"repeats an index of its evidence {self.evidence}"
        return ""

    @property
    def labels(self) -> tuple[bool, ...]:
        """True for each passage that is evidence."""
        return tuple(index in self.evidence for index in range(len(self.passages)))

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        *,
        limit: int | None = None,
        seed: int = SEED,
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


class Fitness(StrEnum):
    """Verdicts on a signal with a model."""

    FIT = "fit"
    WEAK = "weak"
    UNFIT = "unfit"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval, from resampled questions."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True, slots=True)
class Threshold:
    """A threshold for the best F1, with its precision and recall on held-out questions."""

    value: float
    precision: float
    recall: float


@dataclass(frozen=True, slots=True)
class SignalDiagnostics:
    """Measurements of one signal with one model: does it separate evidence from distractors?

    Attributes:
        reasons: Reasons for the verdict.
        auc: Mean over questions of the AUC of evidence against distractors, by the passages' order;
            None without a question that has both.
        unrelated: Utility that 95 % of unrelated passages do not reach; None if there are none.
        threshold: Fitted threshold; None if none can be fitted or trusted.
        questions: Number of questions with evidence and distractors.
        unscored: Number of passages that could not be scored.
        tokens: Tokens computed per token of a passage.
        probability: Fit of the probability that a passage helps.
    """

    signal: str
    unit: str
    verdict: Fitness
    reasons: tuple[str, ...]
    auc: Estimate | None
    unrelated: float | None
    threshold: Threshold | None
    questions: int
    unscored: int
    tokens: float
    probability: ProbabilityFit | None = None


@dataclass(frozen=True, slots=True)
class ModelDiagnostics:
    """Result of measuring a model on labelled examples; `measure` makes one.

    Attributes:
        model: Name of the model; the numbers hold for no other.
        examples: Their number.
        signals: The best first.
    """

    model: str
    examples: int
    signals: Annotated[tuple[SignalDiagnostics, ...], Field(min_length=1)]

    @classmethod
    def measure(
        cls,
        model: LanguageModel,
        examples: Sequence[LabelledExample],
        *,
        signals: Sequence[str | Signal] | None = None,
        progress: Progress | None = None,
    ) -> ModelDiagnostics:
        """Measure how well a model tells evidence from distractors.

        Args:
            model: The model.
            examples: Labelled questions of the kind that will be asked; 20 to 50 do.
            signals: Names or own signals; by default `LABEL_FREE_SIGNALS`, and `ANSWER_SIGNALS`
                where every example has an answer.
            progress: Called after every question of every signal.

        Raises:
            InvalidInputError: Too few examples, or a signal needs answers that they lack.
            ConfigurationError: A signal is unknown, or asks for what the model does not give.
            ModelError: The model cannot score.
        """
        if len(examples) < 2:
            raise InvalidInputError(
                f"{len(examples)} examples are too few: unrelated passages are those of other "
                "questions, so give at least two"
            )
        if signals is None:
            answered = all(example.answers for example in examples)
            signals = LABEL_FREE_SIGNALS + (ANSWER_SIGNALS if answered else ())
        resolved = _resolved(signals, examples)
        unrelated = [_unrelated(examples, number) for number in range(len(examples))]
        measured: list[SignalDiagnostics] = []
        for number, signal in enumerate(resolved):
            observed = _Observed(signal)
            for place, example in enumerate(examples, start=1):
                observed.read(model, example, unrelated[place - 1])
                if progress is not None:
                    done = number * len(examples) + place
                    progress(done, len(resolved) * len(examples))
            measured.append(observed.judged())
        return cls(model.name, len(examples), tuple(sorted(measured, key=_best_first)))

    @property
    def verdict(self) -> Fitness:
        """Verdict on the best signal."""
        return self.signals[0].verdict

    def signal(self, name: str) -> SignalDiagnostics:
        """Return one of the signals.

        Raises:
            ConfigurationError: It was not measured.
        """
        for measured in self.signals:
            if measured.signal == name:
                return measured
        raise ConfigurationError(
            f"the signal {name!r} was not measured with {self.model}; measured are "
            f"{', '.join(measured.signal for measured in self.signals)}"
        )

    def config(self, signal: str | None = None, **settings: Any) -> ShapingConfig:
        """Return a configuration whose threshold was measured.

        Args:
            signal: A measured signal; the best by default.
            **settings: Other fields of `ShapingConfig`.

        Returns:
            The configuration; without a threshold if none can be trusted, and the signal only
            ranks then. The fitted probability is an argument of `ContextShaper`.

        Raises:
            ConfigurationError: The signal was not measured or is not known by its name, or a
                setting is unknown.

        Warns:
            RuntimeWarning: The signal is unfit.
        """
        measured = self.signals[0] if signal is None else self.signal(signal)
        if not is_signal(measured.signal):
            raise ConfigurationError(
                f"{measured.signal!r} is an own signal: pass the object to "
                "ShapingConfig(signal=...)"
            )
        if measured.verdict is Fitness.UNFIT:
            warnings.warn(
                f"{measured.signal} with {self.model}: {'; '.join(measured.reasons)}",
                RuntimeWarning,
                stacklevel=2,
            )
        threshold = measured.threshold.value if measured.threshold else None
        return ShapingConfig(**{"signal": measured.signal, "threshold": threshold, **settings})

    def report(self) -> str:
        """Return a paragraph per signal, the best first."""
        return rendered("diagnostics.txt.j2", found=self).rstrip()

    def to_json(self) -> str:
        """Return versioned JSON."""
        head = {"format": _FORMAT, "version": VERSION}
        return json.dumps({**head, **asdict(self)}, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, source: str = "the text") -> ModelDiagnostics:
        """Read JSON that `to_json` wrote.

        Raises:
            InvalidInputError: It is something else, damaged, or of another version.
        """
        return read_versioned(
            TypeAdapter(cls),
            text,
            _FORMAT,
            VERSION,
            source=source,
            otherwise="does not hold diagnostics; write them with save",
            again="measure again",
        )

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write `to_json` into a file, whole or not at all.

        Raises:
            StorageError: It cannot be written.
        """
        return write_atomically(Path(path), self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ModelDiagnostics:
        """Read a file that `save` wrote.

        Raises:
            StorageError: It cannot be read.
            InvalidInputError: As by `from_json`.
        """
        return cls.from_json(read_text(path), source=str(path))


class _Passage(NamedTuple):
    """A scored passage: its numbers, its label, and its question by number."""

    utility: float
    order: float
    helps: bool
    question: int


class _Observed:
    """Results of one signal, example by example."""

    def __init__(self, signal: Signal) -> None:
        self._signal = signal
        self._passages: list[_Passage] = []
        self._lists: list[LabelledList] = []
        self._unrelated: list[float] = []
        self._unscored = 0
        self._tokens = 0
        self._computed = 0

    def read(
        self,
        model: LanguageModel,
        example: LabelledExample,
        unrelated: Sequence[str],
    ) -> None:
        """Score the passages of an example, and unrelated ones.

        Only a signal that needs an answer is told it: the others are made for questions whose
        answer is not known.
        """
        config = ShapingConfig(
            signal=self._signal,
            ranker=None,
            redundancy_similarity=None,
            on_error="raise",
        )
        answers = example.answers if self._signal.needs_answer else ()
        passages = [*example.passages, *unrelated]
        shaped = ContextShaper(model, config).shape(example.question, passages, answer=answers)
        parts: list[dict[str, float]] = []
        labels: list[bool] = []
        for verdict in shaped.verdicts:
            is_own = verdict.index < len(example.passages)
            if verdict.utility is None or verdict.score is None:
                self._unscored += is_own
                continue
            self._tokens += verdict.tokens
            if not is_own:
                self._unrelated.append(verdict.utility)
                continue
            helps = example.labels[verdict.index]
            row = _Passage(verdict.utility, verdict.score, helps, len(self._lists))
            self._passages.append(row)
            parts.append({**verdict.parts, "utility": verdict.utility})
            labels.append(helps)
        self._lists.append(LabelledList(parts, labels))
        self._computed += shaped.ledger.total()

    def judged(self) -> SignalDiagnostics:
        """Return the verdict on the signal."""
        labels = np.array([each.helps for each in self._passages], dtype=np.bool_)
        questions = np.array([each.question for each in self._passages], dtype=np.int64)
        utilities = np.array([each.utility for each in self._passages], dtype=np.float64)
        orders = np.array([each.order for each in self._passages], dtype=np.float64)
        auc, number = question_auc(orders, labels, questions)
        verdict, reasons = _ranking(auc, number)
        unrelated = float(np.quantile(self._unrelated, 0.95)) if self._unrelated else None
        threshold = None
        by_utility, _ = question_auc(utilities, labels, questions)
        if by_utility is not None and by_utility.low > 0.5:
            threshold = held_out_threshold(utilities, labels, questions)
        elif verdict is not Fitness.UNFIT:
            verdict = Fitness.WEAK
            reasons += (f"no threshold: its utility alone may be chance ({by_utility})",)
        if threshold is not None and unrelated is not None and threshold.value < unrelated:
            verdict = max(verdict, Fitness.WEAK, key=list(Fitness).index)
            reasons += ("its threshold lets more than 5 % of unrelated passages pass",)
        return SignalDiagnostics(
            signal=self._signal.name,
            unit=self._signal.unit,
            verdict=verdict,
            reasons=reasons,
            auc=auc,
            unrelated=unrelated,
            threshold=None if verdict is Fitness.UNFIT else threshold,
            questions=number,
            unscored=self._unscored,
            tokens=self._computed / max(1, self._tokens),
            probability=ProbabilityFit.fitted_to_lists(self._lists),
        )


def _ranking(auc: Estimate | None, questions: int) -> tuple[Fitness, tuple[str, ...]]:
    """Judge the ranking alone."""
    if auc is None:
        return Fitness.UNFIT, ("no question has both evidence and distractors that were scored",)
    ranking = f"evidence goes before a distractor with probability {auc}"
    if auc.low <= 0.5:
        return Fitness.UNFIT, (f"{ranking}, which may be chance",)
    if questions < ENOUGH_QUESTIONS:
        return Fitness.WEAK, (
            ranking,
            f"only {questions} questions have evidence and distractors; {ENOUGH_QUESTIONS} are "
            "needed to call a signal fit",
        )
    if auc.value < FIT_AUC:
        return Fitness.WEAK, (f"{ranking}, below {FIT_AUC:g}",)
    return Fitness.FIT, (ranking,)


def _best_first(diagnostics: SignalDiagnostics) -> tuple[int, float]:
    """Order by verdict, then by the lower end of the AUC."""
    lowest = diagnostics.auc.low if diagnostics.auc else 0.0
    return list(Fitness).index(diagnostics.verdict), -lowest


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


def _unrelated(examples: Sequence[LabelledExample], of: int) -> list[str]:
    """Draw passages of other examples."""
    own = {passage.strip() for passage in examples[of].passages}
    others: dict[str, None] = {}  # in order, each once
    for example in examples:
        for passage in example.passages:
            if passage.strip() not in own:
                others[passage] = None
    draw = random.Random(f"{SEED}:{of}")
    return draw.sample(list(others), min(UNRELATED, len(others)))


# Statistics: passages of one question are alike, so whole questions are held out or resampled.


def question_auc(scores: Floats, labels: Labels, questions: Groups) -> tuple[Estimate | None, int]:
    """Return the mean AUC within questions, and the number of questions that have one.

    Ranking needs this one: passages compete only with others for the same question.
    """
    from scipy.stats import bootstrap
    from sklearn.metrics import roc_auc_score

    of_each: list[float] = []
    for question in np.unique(questions):
        own = questions == question
        if 0 < labels[own].sum() < own.sum():
            of_each.append(float(roc_auc_score(labels[own], scores[own])))
    if not of_each:
        return None, 0
    mean = float(np.mean(of_each))
    if np.ptp(of_each) == 0.0:  # nothing to resample
        return Estimate(mean, mean, mean), len(of_each)
    resampled = bootstrap(
        (of_each,), np.mean, n_resamples=1000, method="percentile", rng=SEED
    ).confidence_interval
    return Estimate(mean, float(resampled.low), float(resampled.high)), len(of_each)


def best_threshold(scores: Floats, labels: Labels) -> float:
    """Return the threshold, 0 or more, of the best F1; the larger one of equals.

    It lies midway between two scores, or at 0 where everything above that is kept.
    """
    from sklearn.metrics import precision_recall_curve

    # A negative score is never kept: below every candidate, it only counts as missed evidence.
    clipped = np.where(scores < 0.0, -1.0, scores)
    precision, recall, values = precision_recall_curve(labels, clipped)
    together = np.maximum(precision + recall, 1e-12)
    f1 = (2.0 * precision * recall / together)[:-1]
    f1[values < 0.0] = -1.0
    at = len(f1) - 1 - int(np.argmax(f1[::-1] >= f1.max() - 1e-12))
    below = values[at - 1] if at else -1.0
    return 0.0 if below < 0.0 else float((values[at] + below) / 2.0)


def held_out_threshold(scores: Floats, labels: Labels, questions: Groups) -> Threshold | None:
    """Return the best threshold, with precision and recall of those fitted without each fold.

    None with fewer than two questions, or without both evidence and distractors.
    """
    from sklearn.metrics import precision_score, recall_score
    from sklearn.model_selection import GroupKFold

    kept = np.zeros(len(labels), dtype=bool)
    is_fitted = False
    parts = min(FOLDS, np.unique(questions).size)
    splits = GroupKFold(parts).split(scores, groups=questions) if parts > 1 else ()
    for inside, outside in splits:
        if labels[inside].any():
            kept[outside] = scores[outside] >= best_threshold(scores[inside], labels[inside])
            is_fitted = True
    if labels.all() or not is_fitted:
        return None
    return Threshold(
        value=best_threshold(scores, labels),
        precision=float(precision_score(labels, kept, zero_division=0.0)),
        recall=float(recall_score(labels, kept, zero_division=0.0)),
    )
