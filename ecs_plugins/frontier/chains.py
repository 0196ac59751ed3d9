"""Chains of your own that a router chooses from.

A chain has a stage 1, which may prepare a context, and a stage 2, which answers a question from it.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import threading
import time
import types
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

from pydantic import BaseModel

from ecs_plugins.common.checks import check_kind, check_text
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.answering import TokenCounter
from ecs_plugins.frontier.cost import ConfigValue, PointKey, config_json, label_of
from ecs_plugins.frontier.data import Context
from ecs_plugins.frontier.preparations import (
    ChainPreparation,
    ContextCost,
    PreparationKey,
    PreparationStore,
)
from ecs_plugins.frontier.strategies.base import Answered, AnsweringStrategy, Prepared
from ecs_plugins.frontier.usage import NO_CACHE, ModelCall, booked, reported_usage
from ecs_plugins.tokens import Stage, TokenLedger

# Counting.


class CountsCalls(Protocol):
    """Counter of the model calls of a run, and of the contexts that the run builds."""

    def add_call(self, prompt: str, reply: str, message: object = None) -> None:
        """Count a call of a model."""

    def add_context(self, key: PointKey, cost: ContextCost) -> None:
        """Count a context that was built."""


@dataclass(slots=True)
class CallCounter:
    """A count of the model calls in one stage of a chain.

    Attributes:
        stage: Of the calls.
        count_tokens: Tokens of each text, for models that do not report them.
        tokens: Of all calls.
        calls: Each of them.
        unknown: Calls that neither reported their tokens nor could be counted.
        started: When the count began, by `time.perf_counter`.
    """

    stage: Stage
    count_tokens: TokenCounter | None = None
    tokens: TokenLedger = field(default_factory=TokenLedger)
    calls: list[ModelCall] = field(default_factory=list)
    unknown: int = 0
    started: float = field(default_factory=time.perf_counter)

    def add_call(self, prompt: str, reply: str, message: object = None) -> None:
        """Count one call: as it reports, else by ``count_tokens``."""
        usage = reported_usage(message)
        read, written = usage.prompt, usage.written
        if (read is None or written is None) and self.count_tokens is not None:
            counted = self.count_tokens([prompt, reply])
            read = int(counted[0]) if read is None else read
            written = int(counted[1]) if written is None else written
        self.unknown += read is None or written is None
        cache = usage.cache if usage.cache.total <= (read or 0) else NO_CACHE
        call = ModelCall(self.stage, read or 0, written or 0, cache)
        self.tokens.add(booked([call]))
        self.calls.append(call)

    def add_context(self, key: PointKey, cost: ContextCost) -> None:
        """Count the cost of a context."""
        del key
        self.tokens.add(cost.tokens)
        self.calls += cost.calls
        self.unknown += cost.unknown

    def cost(self) -> ContextCost:
        """Return the count until now as the cost of a context."""
        seconds = time.perf_counter() - self.started
        return ContextCost(self.tokens, tuple(self.calls), seconds, self.unknown)


# Chains.


@dataclass(eq=False, repr=False)
class RoutedChain:
    """A chain or query engine with a stage 1 of its own, for a router and for `calibrate`.

    ```python
    RoutedChain("notes", prepare=summarise, answer=prompt | llm)  # LangChain
    RoutedChain("notes", prepare=summarise, answer=lambda notes: NotesEngine(llm, notes))
    ```

    ``prepare`` runs once per context, and its result is kept. Tokens of both stages are counted by
    themselves.

    Attributes:
        name: The strategy; with ``settings`` the name of its point.
        answer: Stage 2. In LangChain a Runnable of ``{"question", "documents", "prepared"}``; in
            LlamaIndex a query engine, or a function of the preparation (without ``prepare``, of
            the nodes) that makes one.
        prepare: Stage 1, to text or plain values; None for none. In LangChain a Runnable of
            ``{"documents"}``, in LlamaIndex a function of nodes. Both may be only async.
        nodes: In LlamaIndex, the nodes that queries are about.
        settings: The configuration, where a strategy has several.
        version: Names the code of ``prepare``. Without one, a hash of its code and settings tells
            preparations of another prompt or model apart.
        directory: Keeps preparations for other processes and the next start.
        count_tokens: Tokens of each text, for models that do not report them.
        answer_field: The field of a structured answer that metrics judge.
        routable: Whether a router may choose it.

    Raises:
        ConfigurationError: An argument cannot be used.
    """

    name: str
    _: KW_ONLY
    answer: Any
    prepare: Any = None
    nodes: Sequence[Any] = ()
    settings: Mapping[str, ConfigValue] | None = None
    version: str = ""
    directory: str | None = None
    count_tokens: TokenCounter | None = None
    answer_field: str = ""
    routable: bool = True
    store: PreparationStore = field(init=False)
    _identity: str = field(default="", init=False)

    def __post_init__(self) -> None:
        if not check_text("the name of a chain", self.name):
            raise ConfigurationError("a chain needs the name of its strategy")
        if not _runs(self.answer, "query"):
            raise ConfigurationError(
                f"{self.name}: answer is no Runnable, no query engine, and makes none"
            )
        if self.prepare is not None and not _runs(self.prepare):
            raise ConfigurationError(f"{self.name}: prepare is no Runnable and no function")
        if self.prepare is not None and hasattr(self.answer, "query"):
            raise ConfigurationError(
                f"{self.name} prepares something and its engine is never given it; let answer make "
                "the engine: answer=lambda prepared: ..."
            )
        self.settings = dict(check_kind("settings", self.settings or {}, Mapping))  # type: ignore[type-abstract]
        self.nodes = list(self.nodes)
        self.store = PreparationStore(self.directory)
        # Now, as models may count their calls in a field.
        if self.prepare is not None and not self.version:
            self._identity = fingerprint(self.prepare)

    @property
    def key(self) -> PointKey:
        """Return the key of its point."""
        return (self.name, config_json(self.settings or {}))

    @property
    def label(self) -> str:
        """Return the label of its point."""
        return label_of(self.name, self.settings or {})

    def preparation_key(
        self, namespace: tuple[str, ...], context: str, content: str
    ) -> PreparationKey:
        """Return the key of its preparation of a context."""
        identity = f"version {self.version}" if self.version else self._identity
        return PreparationKey(namespace, context, content, self.key, identity)

    def as_strategy(self) -> AnsweringStrategy:
        """Return the chain as `calibrate` measures it.

        Raises:
            ConfigurationError: The adapter of its framework is not loaded.
        """
        for adapter in _adapters:
            if adapter.fits(self.answer):
                return MeasuredChain(self, adapter)
        raise ConfigurationError(
            f"{self.label} is of a framework whose adapter is not loaded; import RoutedChain from "
            "ecs_plugins.langchain or ecs_plugins.llama_index"
        )


class ChainAdapter(NamedTuple):
    """Functions by which a framework runs the chains of a user.

    Attributes:
        fits: Returns True for an answer that the framework runs.
        prepare: Runs stage 1 of a chain for a context.
        answer: Answers a question from a chain's preparation, and counts the calls.
    """

    fits: Callable[[object], bool]
    prepare: Callable[[RoutedChain, Context], ChainPreparation]
    answer: Callable[[RoutedChain, Prepared, str, CallCounter], Any]


_adapters: list[ChainAdapter] = []


def register_adapter(adapter: ChainAdapter) -> None:
    """Let a framework measure the chains whose answer it runs."""
    _adapters.append(adapter)


class MeasuredChain:
    """A `RoutedChain` as a strategy that answers by itself."""

    def __init__(self, chain: RoutedChain, adapter: ChainAdapter) -> None:
        self.name = chain.name
        self.config: Mapping[str, ConfigValue] = dict(chain.settings or {})
        self.routable = chain.routable
        self._chain = chain
        self._adapter = adapter

    def prepare(self, context: Context) -> Prepared:
        """Run stage 1, always anew: its cost is measured."""
        if self._chain.prepare is None:
            return Prepared(context)
        made = self._adapter.prepare(self._chain, context)
        return Prepared(context, made.value, made.cost)

    def answer(self, prepared: Prepared, question: str) -> Answered:
        """Run stage 2.

        Raises:
            ConfigurationError: A model did not report its tokens, and no counter was given.
        """
        counter = CallCounter(Stage.QUERY, self._chain.count_tokens)
        text = self._adapter.answer(self._chain, prepared, question, counter)
        if counter.unknown:
            raise ConfigurationError(
                f"a model of {self._chain.label} does not report the tokens that it used; give "
                "count_tokens=..., such as that of its tokenizer"
            )
        cost = counter.cost()
        return Answered(
            text,
            cost.tokens,
            cost.seconds,
            calls=max(1, len(cost.calls)),
            answer_field=self._chain.answer_field,
        )


def _runs(part: object, *names: str) -> bool:
    return callable(part) or any(hasattr(part, name) for name in ("invoke", *names))


def run_coroutine(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end, in an event loop of its own, and return its result."""
    outcome: Future[Any] = Future()

    def run() -> None:
        try:
            outcome.set_result(asyncio.run(coroutine))
        except BaseException as error:
            outcome.set_exception(error)

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(run,), daemon=True)
    thread.start()
    return outcome.result()


# Identity.

_PLAIN = (str, bytes, int, float, complex, bool, type(None))
_DEEPEST = 16
_MOST_PARTS = 20_000


def fingerprint(component: object) -> str:
    """Return a hash of a function, a model or a chain.

    It covers code, default values, the variables that a function refers to, and the fields of
    objects. Two components that differ in a prompt or in the name of a model have two hashes.
    Secrets and the private state of pydantic models are left out.
    """
    total = hashlib.sha256()
    for number, part in enumerate(_parts(component, 0, {})):
        if number == _MOST_PARTS:
            break
        total.update(f"{len(part)}:".encode() + part)
    return total.hexdigest()


def _parts(value: Any, depth: int, seen: dict[int, int]) -> Iterator[bytes]:
    if isinstance(value, _PLAIN):
        yield f"{type(value).__name__} {value!r}".encode("utf-8", "surrogatepass")
        return
    if id(value) in seen or depth > _DEEPEST:
        # A number in the order of visits: addresses differ between processes.
        yield f"seen {seen.get(id(value), -1)}".encode()
        return
    seen[id(value)] = len(seen)
    yield _name_of(value)
    for inner in _inner(value):
        yield from _parts(inner, depth + 1, seen)


def _name_of(value: Any) -> bytes:
    named = value if isinstance(value, type) else type(value)
    return f"{named.__module__}.{named.__qualname__}".encode()


def _inner(value: Any) -> Iterator[Any]:
    """Yield the parts of a value that its behaviour depends on."""
    if isinstance(value, type | types.ModuleType) or hasattr(value, "get_secret_value"):
        return
    if isinstance(value, types.CodeType):
        yield from (value.co_code, value.co_names, value.co_consts)
    elif isinstance(value, types.FunctionType):
        yield from _of_function(value)
    elif isinstance(value, types.MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, Mapping):
        yield from sorted(value.items(), key=lambda item: repr(item[0]))
    elif isinstance(value, Set):
        yield from sorted(value, key=repr)
    elif isinstance(value, list | tuple):
        yield from value
    elif isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            if not field.exclude:
                yield name
                yield getattr(value, name, None)
    else:
        yield from sorted(getattr(value, "__dict__", {}).items())


def _of_function(function: types.FunctionType) -> Iterator[Any]:
    yield function.__code__
    yield function.__defaults__
    yield function.__kwdefaults__
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            yield None
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            yield name
            yield function.__globals__[name]


def _global_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)
