"""Interface of a context strategy: two stages that book their tokens.

Stage 1, `prepare`, sees a context and no question; every question about that context shares its
result. Stage 2, `build`, makes the text that the answering model reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.cost import ConfigValue, config_json
from ecs_plugins.frontier.data import Context
from ecs_plugins.frontier.preparations import NOTHING_PAID, ContextCost, PreparationKey
from ecs_plugins.tokens import TokenLedger


@dataclass(frozen=True, slots=True)
class Prepared:
    """Result and cost of stage 1 for a context.

    Attributes:
        context: The context.
        value: The text or object that stage 1 made; empty for none.
        cost: Tokens, calls and seconds of stage 1.
    """

    context: Context
    value: Any = ""
    cost: ContextCost = NOTHING_PAID


@dataclass(frozen=True, slots=True)
class BuiltContext:
    """Result of stage 2 for one question.

    Attributes:
        text: The context to answer from; may be empty.
        ledger: Tokens that building it cost, such as those of a scoring model.
        shared: Whether every question about the context gets this same text, which a prompt
            cache can then serve.
    """

    text: str
    ledger: TokenLedger = field(default_factory=TokenLedger)
    seconds: float = 0.0
    shared: bool = False


class _TwoStages(Protocol):
    """Members that all strategies share."""

    @property
    def name(self) -> str:
        """Return the name of the strategy, the same for all its configurations."""

    @property
    def config(self) -> Mapping[str, ConfigValue]:
        """Return the configuration; with the name, unique in a calibration."""

    @property
    def routable(self) -> bool:
        """Return True if a router may choose it; upper bounds return False."""

    def prepare(self, context: Context) -> Prepared:
        """Run stage 1: prepare a context before any question."""


@runtime_checkable
class Strategy(_TwoStages, Protocol):
    """Way to turn a context into a prompt, in one configuration.

    Own strategies need these five members and nothing else.
    """

    def build(self, prepared: Prepared, question: str) -> BuiltContext:
        """Run stage 2: build the text that the model answers from."""


@dataclass(frozen=True, slots=True)
class Answered:
    """Answer and cost of a strategy that answers by itself.

    Attributes:
        text: The answer: a text, or the object of a structured answer.
        ledger: Tokens of stage 2.
        seconds: Of stage 2.
        shared_input: Prompt tokens that are the same for every question about the context.
        calls: Calls of models.
        answer_field: The field of a structured answer that metrics judge; empty for all of it.
    """

    text: Any
    ledger: TokenLedger = field(default_factory=TokenLedger)
    seconds: float = 0.0
    shared_input: float = 0.0
    calls: int = 1
    answer_field: str = ""


@runtime_checkable
class AnsweringStrategy(_TwoStages, Protocol):
    """A strategy that answers by itself, such as a chain of the user's own."""

    def answer(self, prepared: Prepared, question: str) -> Answered:
        """Run stage 2 and return the answer."""


class NoPreparation:
    """A strategy without a stage 1, to derive from."""

    routable = True

    def prepare(self, context: Context) -> Prepared:
        """Return the context unchanged; this costs nothing."""
        return Prepared(context)


def prepare_all(
    strategy: Strategy | AnsweringStrategy, contexts: Sequence[Context]
) -> list[Prepared]:
    """Run stage 1 of several contexts, by ``prepare_many`` where the strategy has it."""
    many: Callable[[Sequence[Context]], list[Prepared]] | None
    many = getattr(strategy, "prepare_many", None)
    return [strategy.prepare(context) for context in contexts] if many is None else many(contexts)


def key_of(strategy: Strategy, context: Context, namespace: tuple[str, ...] = ()) -> PreparationKey:
    """Return the key of a strategy's preparation of a context.

    Its preparations are kept on disk if it has an ``identity``: a name of the model and prompt that
    prepare.
    """
    point = (strategy.name, config_json(strategy.config))
    identity = str(getattr(strategy, "identity", ""))
    return PreparationKey(namespace, "", context.id, point, identity)


def check_depth(depth: object) -> int:
    """Return ``depth``, or raise if it is no whole number of at least 1."""
    if not isinstance(depth, int) or depth < 1:
        raise ConfigurationError(f"depth must be a whole number, at least 1, got {depth!r}")
    return depth
