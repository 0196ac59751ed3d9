"""Methods by name, with description, access to the answer, and constructor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

from benchmarks.evidence.methods import (
    Method,
    Oracle,
    PoolOrder,
    RandomOrder,
    RankerMethod,
)
from benchmarks.evidence.peers import (
    CrossEncoderMethod,
    LangChainEmbeddingsFilter,
    LlamaIndexSentenceOptimizer,
)
from benchmarks.evidence.signals import UPR_TEMPLATE, LongLLMLinguaRule
from ecs_plugins.errors import InvalidInputError, MissingExtraError
from ecs_plugins.ranking.base import Ranker
from ecs_plugins.ranking.coverage import CoverageRanker
from ecs_plugins.ranking.dense import ConvexRanker, DenseRanker
from ecs_plugins.ranking.embedder import Embedder
from ecs_plugins.ranking.lexical import BM25Ranker, TfidfQueryRanker
from ecs_plugins.shaping.config import (
    AUTO_WITH_ANSWER,
    AUTO_WITHOUT_ANSWER,
    is_signal,
    make_signal,
)
from ecs_plugins.shaping.signals import SIGNALS
from ecs_plugins.shaping.signals.base import Signal
from ecs_plugins.shaping.signals.likelihood import QueryLikelihood

Kind = Literal["ours", "peer", "bound"]
"""Ours, somebody else's, or chance and ceiling."""

RETRIEVERS = ("tfidf", "bm25", "dense", "convex", "longllmlingua_rule")
"""The peers that the label-free default has to leave behind by a margin."""
PLAIN = "plain_query_likelihood"
"""Query likelihood as published."""
CROSS_ENCODER = "cross_encoder:"
"""Opens the name of a cross-encoder of the user's."""
OWN, OWN_GIVEN = "own:", "own_given:"
"""Open the names of a user's own signals: label-free, and with the answer given."""


@dataclass(frozen=True, slots=True)
class Tools:
    """Components of methods.

    Attributes:
        embedder: Of every method that embeds.
        convex: Stage 1.
        dense: Its dense half, which remembers vectors.
        seed: Of everything random.
    """

    embedder: Embedder
    dense: DenseRanker
    convex: Ranker
    seed: int = 42

    @classmethod
    def of(cls, embedder: Embedder, seed: int = 42) -> Tools:
        """The product's own stage 1 around an embedder."""
        dense = DenseRanker(embedder)
        return cls(embedder, dense, ConvexRanker(CoverageRanker(), dense), seed)


@dataclass(frozen=True, slots=True)
class Entry:
    """A method by name.

    Attributes:
        kind: Whose it is.
        about: One line for ``--help`` and tables.
        uses_answer: Whether it looks at the answer or at the evidence: not possible at run time.
        signal: Makes the signal of a method that asks the language model.
        method: Makes any other method.
        as_is: A signal that reads units as they are, also in a conversation.
    """

    kind: Kind
    about: str
    uses_answer: bool = False
    signal: Callable[[Tools], Signal] | None = None
    method: Callable[[Tools], Method] | None = None
    as_is: bool = False


def _of_signal(name: str) -> Entry:
    judge = name == "judge"
    made = make_signal(name)
    about = "pointwise Yes/No" if judge else (type(made).__doc__ or name).splitlines()[0]
    kind: Kind = "peer" if judge else "ours"
    return Entry(kind, about, made.needs_answer, signal=lambda _: make_signal(name), as_is=judge)


def _ranked(about: str, make: Callable[[Tools], Ranker], *, by_piece: bool = False) -> list[Entry]:
    return [
        Entry(
            "peer",
            about + (", over all units" if everywhere else ""),
            method=lambda tools, everywhere=everywhere: RankerMethod(  # type: ignore[misc]
                make(tools), everywhere=everywhere, by_piece=by_piece
            ),
        )
        for everywhere in (False, True)
    ]


def _catalogue() -> dict[str, Entry]:
    out = {
        "random": Entry("bound", "chance", method=lambda tools: RandomOrder(tools.seed)),
        "oracle": Entry("bound", "the ceiling of the pool", True, method=lambda _: Oracle()),
    }
    for name, found in {
        "tfidf": _ranked("cosine of TF-IDF vectors", lambda _: TfidfQueryRanker()),
        "bm25": _ranked("Okapi BM25", lambda _: BM25Ranker()),
        "dense": _ranked("cosine of embeddings", lambda tools: tools.dense, by_piece=True),
        "convex": _ranked(
            "mean of query coverage and cosine", lambda tools: tools.convex, by_piece=True
        ),
    }.items():
        out[name], out[f"{name}_all"] = found
    out["embeddings_filter"] = Entry(
        "peer",
        "LangChain's EmbeddingsFilter",
        method=lambda tools: LangChainEmbeddingsFilter(tools.embedder),
    )
    out["sentence_optimizer"] = Entry(
        "peer",
        "LlamaIndex' SentenceEmbeddingOptimizer",
        method=lambda tools: LlamaIndexSentenceOptimizer(tools.embedder),
    )
    out["longllmlingua_rule"] = Entry(
        "peer", "LongLLMLingua's ranking rule", signal=lambda _: LongLLMLinguaRule(), as_is=True
    )
    out["upr"] = Entry(
        "peer",
        "query likelihood with the prompt of UPR",
        signal=lambda _: QueryLikelihood(template=UPR_TEMPLATE),
        as_is=True,
    )
    out["stage1"] = Entry(
        "ours", "the pool's own order, by what the model reads", method=lambda _: PoolOrder()
    )
    out["stage1_answered"] = Entry(
        "ours",
        "the pool's own order, of question and answer",
        True,
        method=lambda _: PoolOrder(answered=True),
    )
    out[PLAIN] = Entry(
        "ours",
        "query likelihood of every unit as it is",
        signal=lambda _: QueryLikelihood(),
        as_is=True,
    )
    every = (*SIGNALS, AUTO_WITHOUT_ANSWER, AUTO_WITH_ANSWER)
    out |= {name: _of_signal(name) for name in every}
    return out


CATALOGUE: Mapping[str, Entry] = _catalogue()
"""Methods by name, without the user's own cross-encoders and signals with another ranker."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The methods of a run.

    Attributes:
        signals: By name, those that ask the language model.
        methods: By name, the others.
        left_out: Name -> why it cannot run here.
        as_they_are: Names of signals that read units as they are.
    """

    signals: Mapping[str, Signal]
    methods: Mapping[str, Method]
    left_out: Mapping[str, str]
    as_they_are: frozenset[str] = frozenset()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all methods that run."""
        return (*self.signals, *self.methods)


def entry_of(name: str) -> Entry:
    """Return the description of a method, also of the user's own."""
    if name.startswith(CROSS_ENCODER):
        return Entry("peer", "a cross-encoder")
    if name.startswith((OWN, OWN_GIVEN)):
        return Entry("ours", "an own signal", name.startswith(OWN_GIVEN))
    return CATALOGUE[name] if name in CATALOGUE else _of_signal(name)


def name_of(own: Signal | Path) -> str:
    """The name of a user's own signal, or of the cross-encoder in a directory."""
    if isinstance(own, Path):
        return f"{CROSS_ENCODER}{own.resolve().name}"
    return f"{OWN_GIVEN if own.needs_answer else OWN}{own.name}"


def choose(names: Sequence[str], tools: Tools, own: Sequence[Signal | Path] = ()) -> Chosen:
    """Make methods.

    Args:
        names: In the catalogue.
        tools: What methods are made from.
        own: The user's own signals, and directories of cross-encoders.

    Raises:
        InvalidInputError: A name is unknown or named twice, or there is none.
        ModelError: A cross-encoder cannot be loaded.
    """
    unknown = [name for name in names if name not in CATALOGUE and not is_signal(name)]
    if unknown:
        raise InvalidInputError(f"unknown method {unknown[0]!r}: use {', '.join(CATALOGUE)}")
    together = [*names, *map(name_of, own)]
    if len(set(together)) < len(together):
        raise InvalidInputError(f"a method is named twice: {', '.join(together)}")
    if not together:
        raise InvalidInputError("there is nothing to measure: name a method")
    signals: dict[str, Signal] = {}
    methods: dict[str, Method] = {}
    left_out: dict[str, str] = {}
    for name in names:
        entry = entry_of(name)
        if entry.signal is not None:
            signals[name] = entry.signal(tools)
        elif entry.method is not None:
            try:
                methods[name] = entry.method(tools)
            except MissingExtraError as error:
                left_out[name] = str(error)
    for each in own:
        if isinstance(each, Path):
            methods[name_of(each)] = CrossEncoderMethod(each)
        else:
            signals[name_of(each)] = each
    as_they_are = frozenset(name for name in signals if entry_of(name).as_is)
    return Chosen(signals, methods, left_out, as_they_are)


def load_signal(place: str) -> Signal:
    """Return an own signal from ``"package.module:attribute"``: a `Signal` or its factory.

    Raises:
        InvalidInputError: There is none.
    """
    module, _, attribute = place.partition(":")
    try:
        found = getattr(import_module(module), attribute)
        # A class has all that the protocol asks for, and still has to be made.
        made = isinstance(found, Signal) and not isinstance(found, type)
        signal = found if made else found()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"no signal at {place!r} ({error}); name package.module:attribute, a Signal or a "
            "function without arguments that makes one"
        ) from error
    if not isinstance(signal, Signal):
        raise InvalidInputError(f"{place!r} is no Signal; see ecs_plugins.shaping.Signal")
    return signal
