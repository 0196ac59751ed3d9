"""Answers of a reader from the units that a method keeps, at equal budgets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.evidence.questions import EvidenceQuestion
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.answering import AnswerModel, answer_prompt
from ecs_plugins.frontier.metrics import exact_match, token_f1

ALL, NONE = "all", "none"
"""The budgets that keep the whole order, or nothing at all."""
_UNITS = re.compile(r"top(\d+)")

Answer = Mapping[str, Any]
"""``{"prediction": str, "f1": float, "em": float, "tokens": int}``."""


def checked_budgets(budgets: Sequence[str]) -> tuple[str, ...]:
    """Budgets that are numbers of tokens, ``"top"`` and a number of units, `ALL` or `NONE`.

    Raises:
        InvalidInputError: There is something else.
    """
    for budget in budgets:
        number = _UNITS.fullmatch(budget)
        size = number.group(1) if number else budget
        if budget not in (ALL, NONE) and not (size.isdecimal() and int(size)):
            raise InvalidInputError(
                f"a budget is a number of tokens, topN units, {ALL} or {NONE}; got {budget!r}"
            )
    return tuple(dict.fromkeys(budgets))


def kept_units(order: Sequence[int], tokens: Sequence[int], budget: str) -> tuple[int, ...]:
    """The best units of an order within a budget, in their original order.

    A unit that does not fit into the tokens that are left is passed over.

    Args:
        order: Units, best first.
        tokens: Of every unit, by index.
        budget: As `checked_budgets` takes them.
    """
    if budget == NONE:
        return ()
    if budget == ALL:
        return tuple(sorted(order))
    if number := _UNITS.fullmatch(budget):
        return tuple(sorted(order[: int(number.group(1))]))
    kept: list[int] = []
    left = int(budget)
    for index in order:
        if tokens[index] <= left:
            kept.append(index)
            left -= tokens[index]
    return tuple(sorted(kept))


class Reader:
    """Answers greedily; all selections of one question in one batch, equal ones once.

    Args:
        model: Answers.
        budgets: As `checked_budgets` takes them; at least one.
        max_new_tokens: Of an answer.

    Raises:
        InvalidInputError: No budget, or one that means nothing.
    """

    def __init__(
        self, model: AnswerModel, budgets: Sequence[str], *, max_new_tokens: int = 24
    ) -> None:
        if not budgets:
            raise InvalidInputError("a reader needs at least one budget")
        self.budgets = checked_budgets(budgets)
        self._model = model
        self._max_new_tokens = max_new_tokens

    def read(
        self,
        question: EvidenceQuestion,
        tokens: Sequence[int],
        wanted: Mapping[str, tuple[Sequence[int], Sequence[str]]],
    ) -> dict[str, dict[str, Answer]]:
        """Answer one question from several selections.

        Args:
            question: With answers.
            tokens: Of every unit.
            wanted: Method -> (order, budgets).

        Returns:
            Method -> budget -> prediction, its F1 and exact match, and the tokens of what was
            kept.
        """
        kept = {
            (method, budget): kept_units(order, tokens, budget)
            for method, (order, budgets) in wanted.items()
            for budget in budgets
        }
        selections = sorted(set(kept.values()))
        prompts = [
            answer_prompt("\n\n".join(question.units[i] for i in selection), question.question)
            for selection in selections
        ]
        replies = self._model.complete(prompts, max_new_tokens=self._max_new_tokens)
        said = {
            selection: reply.text.strip().partition("\n")[0].strip()
            for selection, reply in zip(selections, replies, strict=True)
        }
        out: dict[str, dict[str, Answer]] = {}
        for (method, budget), selection in kept.items():
            prediction = said[selection]
            out.setdefault(method, {})[budget] = {
                "prediction": prediction,
                "f1": token_f1(prediction, question.answers),
                "em": exact_match(prediction, question.answers),
                "tokens": sum(tokens[index] for index in selection),
            }
        return out
