"""Metrics of answers: exact match, token F1, and the user's own.

Exact match and token F1 are as in the HotpotQA evaluation: yes, no and "noanswer" count only when
both sides say the same.
"""

from __future__ import annotations

import importlib
import inspect
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from dataclasses import fields as dataclass_fields
from types import SimpleNamespace
from typing import Any

from pydantic import BaseModel

from ecs_plugins.common.checks import shown
from ecs_plugins.errors import ConfigurationError, InvalidInputError

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CLOSED = frozenset({"yes", "no", "noanswer"})


def normalize_answer(text: str) -> str:
    """Lower case, no punctuation, no articles, single spaces."""
    plain = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", plain).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """1.0 if the prediction equals one of the answers after normalisation, else 0.0."""
    given = normalize_answer(prediction)
    expected = [normalize_answer(answer) for answer in answers]
    return float(given in expected)


def token_f1(prediction: str, answers: Sequence[str]) -> float:
    """Return the best F1 over the answers, in [0, 1]; 0.0 without answers."""
    given = normalize_answer(prediction)
    best = 0.0
    for answer in answers:
        expected = normalize_answer(answer)
        best = max(best, _f1(given, expected))
    return best


def _f1(given: str, expected: str) -> float:
    if given != expected and not _CLOSED.isdisjoint((given, expected)):
        return 0.0
    ours = Counter(given.split())
    theirs = Counter(expected.split())
    shared = ours & theirs
    both = ours.total() + theirs.total()
    # The harmonic mean of precision and recall.
    return 2 * shared.total() / max(1, both)


@dataclass(frozen=True, slots=True)
class Judged:
    """An answer to judge, with everything that a metric may look at.

    Attributes:
        prediction: The answer: a text, or the object of a structured answer.
    """

    question: str
    prediction: Any
    answers: tuple[str, ...]
    documents: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return the answer as text."""
        return answer_text(self.prediction)


def answer_part(answer: Any, field: str) -> Any:
    """Return the named field of a structured answer; all of it without a name.

    Raises:
        ConfigurationError: There is no such field.
    """
    if not field or isinstance(answer, str):
        return answer
    fields = _fields(answer)
    if field not in fields:
        raise ConfigurationError(
            f"an answer has no field {field!r}; it has {', '.join(fields) or 'none'}"
        )
    return fields[field]


def answer_text(answer: Any) -> str:
    """Return an answer as text; of an object, its only field.

    Raises:
        ConfigurationError: It has several fields, and nobody says which of them is the answer.
    """
    if isinstance(answer, str):
        return answer
    fields = _fields(answer)
    if not fields:
        return str(answer)
    if len(fields) > 1:
        raise ConfigurationError(
            f"an answer has the fields {', '.join(fields)}; name the one that is judged: "
            "RoutedChain(answer_field=...)"
        )
    return answer_text(next(iter(fields.values())))


def _fields(answer: Any) -> dict[str, Any]:
    """Return the fields of a mapping, a pydantic model or a dataclass; none of anything else."""
    if isinstance(answer, Mapping):
        return {str(name): value for name, value in answer.items()}
    if isinstance(answer, BaseModel):
        return {name: getattr(answer, name) for name in type(answer).model_fields}
    if is_dataclass(answer):
        return {each.name: getattr(answer, each.name) for each in dataclass_fields(answer)}
    return {}


Metric = Callable[[Judged], float]
"""The score of an answer, in [0, 1]."""


def as_metric(metric: object) -> Metric:
    """Return a metric by its name, of a function, or of an evaluator.

    ``"f1"`` and ``"exact"``; a function of a prediction and its answers; an evaluator of
    LangSmith's form, a function of ``inputs``, ``outputs`` and ``reference_outputs``; or one of
    RAGAS' form, with ``single_turn_score``.

    Raises:
        ConfigurationError: It is none of these.
    """
    if metric == "f1":
        return lambda judged: token_f1(judged.text, judged.answers)
    if metric == "exact":
        return lambda judged: exact_match(judged.text, judged.answers)
    scorer = getattr(metric, "single_turn_score", None)
    if callable(scorer):
        return lambda judged: _checked(scorer(_sample(judged)))
    if not callable(metric):
        raise ConfigurationError(
            f"a metric is 'f1', 'exact', a function or an evaluator, got {shown(metric, 60)}"
        )
    if "outputs" in _parameters(metric):
        return _of_langsmith(metric)
    return lambda judged: _checked(metric(judged.prediction, judged.answers))


def _parameters(function: Callable[..., Any]) -> Mapping[str, Any]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def _of_langsmith(evaluator: Callable[..., Any]) -> Metric:
    wanted = _parameters(evaluator)

    def score(judged: Judged) -> float:
        values = {
            "inputs": {"question": judged.question, "documents": list(judged.documents)},
            "outputs": {"answer": judged.prediction},
            "reference_outputs": {"answer": judged.answers[0], "answers": list(judged.answers)},
        }
        arguments = {name: value for name, value in values.items() if name in wanted}
        return _checked(evaluator(**arguments))

    return score


def _sample(judged: Judged) -> Any:
    """Return a sample for RAGAS: its own class if installed, else one with the same fields."""
    fields = {
        "user_input": judged.question,
        "response": judged.text,
        "reference": judged.answers[0],
        "retrieved_contexts": list(judged.documents),
    }
    try:
        ragas = importlib.import_module("ragas")
    except ModuleNotFoundError:
        return SimpleNamespace(**fields)
    return ragas.SingleTurnSample(**fields)


def _checked(result: Any) -> float:
    """Return the score of a metric's result: a number, or the ``score`` of a mapping or object."""
    if isinstance(result, Mapping):
        result = result.get("score")
    elif not isinstance(result, int | float) and hasattr(result, "score"):
        result = result.score
    try:
        score = float(result)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"a metric must give a number, got {shown(result, 60)}") from error
    if not 0 <= score <= 1:
        raise InvalidInputError(f"a metric must give a number in [0, 1], got {score!r}")
    return score
