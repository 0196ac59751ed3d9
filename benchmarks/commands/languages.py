"""``python -m benchmarks languages``: what the bundled English models make of other languages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

import benchmarks.datasets
from benchmarks.drawing import markdown_table
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.ranking import Ranker, make_ranker
from ecs_plugins.ranking.embedder import Embedder
from ecs_plugins.shaping import ContextShaper, ShapingConfig

HELP = """How often the sentence that answers is first of twenty, by language.

Twenty questions about invented places and people, the same in every language, each answered by one
of twenty sentences (benchmarks/datasets/languages.json, written for this project).
"""
Pair = tuple[str, str]
Order = Callable[[str, Sequence[str]], Sequence[int]]
RANKERS = ("bm25", "dense", "convex")


def languages(
    model: Annotated[str | None, typer.Option(help="A model's name; None: bundled.")] = None,
    embedder: Annotated[str | None, typer.Option(help="An embedder's name; None: bundled.")] = None,
    dtype: Annotated[str, typer.Option(help="Of the model.")] = "auto",
) -> None:
    """See `HELP`, which the command line shows."""
    from ecs_plugins.lm import LocalLM
    from ecs_plugins.ranking.embedder import SentenceTransformerEmbedder, default_embedder

    lm = LocalLM.from_pretrained(model, dtype=dtype) if model else LocalLM.bundled(dtype=dtype)
    dense = SentenceTransformerEmbedder(embedder) if embedder else default_embedder()
    found = {name: first(pairs, orders(lm, dense)) for name, pairs in read().items()}
    rows = [[name, *(str(number) for number in row.values())] for name, row in found.items()]
    typer.echo(markdown_table(["first of 20", *next(iter(found.values()))], rows))


def read() -> dict[str, list[Pair]]:
    """By language: every question with the sentence that answers it."""
    file = Path(benchmarks.datasets.__file__).with_name("languages.json")
    found: Mapping[str, list[list[str]]] = json.loads(file.read_text(encoding="utf-8"))
    return {name: [(asked, answer) for asked, answer in pairs] for name, pairs in found.items()}


def orders(model: LanguageModel, embedder: Embedder) -> dict[str, Order]:
    """What orders sentences for a question, by name."""
    found: dict[str, Order] = {
        name: partial(_ranked, make_ranker(name, embedder)) for name in RANKERS
    }
    for name, signal in {"query likelihood": "query_likelihood", "default": "auto"}.items():
        found[name] = partial(_shaped, ContextShaper(model, ShapingConfig(signal=signal)))
    return found


def _ranked(ranker: Ranker, asked: str, sentences: Sequence[str]) -> Sequence[int]:
    return ranker.rank(asked, sentences).order


def _shaped(shaper: ContextShaper, asked: str, sentences: Sequence[str]) -> Sequence[int]:
    return [verdict.index for verdict in shaper.shape(asked, sentences).ranked]


def first(pairs: Sequence[Pair], by: Mapping[str, Order]) -> dict[str, int]:
    """Of how many questions each puts the answer first."""
    sentences = [answer for _, answer in pairs]
    return {
        name: sum(order(asked, sentences)[0] == n for n, (asked, _) in enumerate(pairs))
        for name, order in by.items()
    }
