"""Contexts cut to what a model can read, for the tables of the documentation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier import CalibrationQuestion, Context


def fit_contexts(
    questions: Sequence[CalibrationQuestion],
    max_tokens: int,
    count_tokens: Callable[[Sequence[str]], Sequence[int]],
) -> list[CalibrationQuestion]:
    """Cut contexts that are too long to their first documents.

    A question about a cut context stays if all its supporting documents do; where it does not
    say which they are, it goes, because nobody knows whether it can still be answered.

    Args:
        questions: As read.
        max_tokens: Longest context.
        count_tokens: Tokens of each text.

    Raises:
        InvalidInputError: No question is left.
    """
    whole = {question.context.id: question.context for question in questions}
    fitting = {name: _head(context, max_tokens, count_tokens) for name, context in whole.items()}
    out = []
    for question in questions:
        kept = fitting[question.context.id]
        if kept == len(question.context.documents):
            out.append(question)
        elif question.supporting and max(question.supporting) < kept:
            head = Context(question.context.documents[:kept])
            out.append(replace(question, context=head))
    if not out:
        raise InvalidInputError(
            f"no question can be answered from the first {max_tokens} tokens of its context; "
            "raise the limit"
        )
    return out


def _head(
    context: Context, max_tokens: int, count_tokens: Callable[[Sequence[str]], Sequence[int]]
) -> int:
    """Return the number of first documents that fit whole."""
    if count_tokens([context.text])[0] <= max_tokens:
        return len(context.documents)
    sizes = count_tokens([document.titled + "\n\n" for document in context.documents])
    return sum(1 for total in accumulate(sizes) if total <= max_tokens)
