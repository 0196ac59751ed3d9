"""Metrics of answers: exact match, token F1, and the user's own.

Exact match and token F1 are as in the HotpotQA evaluation: yes, no and "noanswer" count only when
both sides say the same.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from typing import Any

from pydantic import BaseModel

from ecs_plugins.common.checks import shown
from ecs_plugins.errors import ConfigurationError, InvalidInputError

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CLOSED = frozenset({"yes", "no", "noanswer"})


def normalize_answer(text: str) -> str:
    """Return a text in lower case without punctuation, articles and double spaces."""
    plain = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", plain).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """Return 1.0 if the prediction equals an answer after normalisation, else 0.0."""
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


Metric = Callable[[Any, Sequence[str]], float]
"""The score of an answer, in [0, 1]: a function of the prediction and the expected answers."""


def as_metric(metric: object) -> Metric:
    """Return a metric: ``"f1"``, ``"exact"``, or a function of a prediction and its answers.

    Raises:
        ConfigurationError: It is none of these.
    """
    if metric == "f1":
        return lambda prediction, answers: token_f1(answer_text(prediction), answers)
    if metric == "exact":
        return lambda prediction, answers: exact_match(answer_text(prediction), answers)
    if not callable(metric):
        raise ConfigurationError(
            f"a metric is 'f1', 'exact' or a function, got {shown(metric, 60)}"
        )
    return lambda prediction, answers: _checked(metric(prediction, answers))


def _checked(result: Any) -> float:
    try:
        score = float(result)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"a metric must give a number, got {shown(result, 60)}") from error
    if not 0 <= score <= 1:
        raise InvalidInputError(f"a metric must give a number in [0, 1], got {score!r}")
    return score
