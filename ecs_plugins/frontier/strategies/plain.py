"""Strategies without a model of their own: everything, and the gold documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.data import CalibrationQuestion, Context
from ecs_plugins.frontier.points import ConfigValue
from ecs_plugins.frontier.strategies.base import BuiltContext, Prepared


class FullContext:
    """All documents, as they are."""

    name = "full_context"
    routable = True

    @property
    def config(self) -> Mapping[str, ConfigValue]:
        """There is nothing to configure."""
        return {}

    def prepare(self, context: Context) -> Prepared:
        """Costs nothing."""
        return Prepared(context)

    def build(self, prepared: Prepared, question: str) -> BuiltContext:
        """Every document behind its title."""
        del question
        return BuiltContext(prepared.context.text, shared=True)


class Oracle:
    """The documents that hold the answer: an upper bound of selection, never routed.

    Args:
        questions: Questions whose supporting documents are known.

    Raises:
        InvalidInputError: No question has any.
    """

    name = "oracle"
    routable = False

    def __init__(self, questions: Iterable[CalibrationQuestion]) -> None:
        self._supporting = {
            (question.context.id, question.question): question.supporting
            for question in questions
            if question.supporting
        }
        if not self._supporting:
            raise InvalidInputError("the oracle needs questions with supporting documents")

    @property
    def config(self) -> Mapping[str, ConfigValue]:
        """There is nothing to configure."""
        return {}

    def prepare(self, context: Context) -> Prepared:
        """Costs nothing."""
        return Prepared(context)

    def build(self, prepared: Prepared, question: str) -> BuiltContext:
        """The supporting documents; all of them where the data set names none."""
        documents = prepared.context.documents
        chosen = self._supporting.get((prepared.context.id, question))
        indices = range(len(documents)) if chosen is None else chosen
        return BuiltContext("\n\n".join(documents[index].titled for index in indices))
