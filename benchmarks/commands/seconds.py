"""``python -m benchmarks seconds``: how long a question over 10 and 40 passages takes."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import torch
import typer

from benchmarks.datasets.hub import data_file
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.lm import LocalLM
from ecs_plugins.ranking.embedder import Embedder, default_embedder
from ecs_plugins.shaping import ContextShaper, ShapingConfig

HELP = """How long a question over 10 and 40 passages takes, with the bundled model.

\b
  python -m benchmarks seconds --data dev-v1.1.json

Passages are paragraphs of SQuAD of 90 to 160 tokens, as they are. A first question reads its
passages, a later one over the same passages does not. Without a model (signal=None) only the
embedder reads them.
"""
SIZES = (10, 40)
TOKENS = range(90, 161)
"""Tokens of a passage, like those of many splitters."""
WAYS = ("first question", "later question", "no model, first", "no model, later")

Case = tuple[tuple[str, str], list[str]]
"""Two questions about an article, and passages with the paragraphs that they were asked of."""


def seconds(
    data: Annotated[str, typer.Option(help="A file of SQuAD.")],
    repeats: Annotated[int, typer.Option(min=1, help="Articles, each with its own passages.")] = 5,
    threads: Annotated[int, typer.Option(min=1, help="Of the model.")] = 2,
    dtype: Annotated[str, typer.Option(help="Of the bundled model.")] = "auto",
    device: Annotated[str, typer.Option(help="Of the bundled model.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="JSON file; printed only without it.")] = None,
) -> None:
    """See `HELP`, which the command line shows."""
    torch.set_num_threads(threads)
    model = LocalLM.bundled(dtype=dtype, **({} if device == "auto" else {"device": device}))
    typer.echo(f"{model.placement}; {threads} threads; medians of {repeats}: wall, CPU seconds")
    measured: dict[str, dict[str, list[float]]] = {}
    for size in SIZES:
        cases = _cases(data, model, size, repeats)
        runs = [_timed(model, case) for case in cases]
        for way in WAYS:
            wall = median(run[way][0] for run in runs)
            cpu = median(run[way][1] for run in runs)
            measured.setdefault(way, {})[str(size)] = [round(wall, 2), round(cpu, 2)]
            typer.echo(f"{size:3d} passages  {way:15s} {wall:6.2f} {cpu:6.2f}")
    if out is not None:
        out.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


def _cases(data: str, model: LocalLM, size: int, repeats: int) -> list[Case]:
    """Passages of one article after the other, whose first two bring a question each."""
    articles = json.loads(data_file(data).read_text(encoding="utf-8"))["data"]
    fitting = [_paragraphs(model, article) for article in articles]
    enough = [paragraphs for paragraphs in fitting if len(paragraphs) >= 2]
    texts = [each["context"] for paragraphs in enough for each in paragraphs]
    if len(enough) < repeats + 1 or len(texts) < 2 * size:
        raise InvalidInputError(f"too few paragraphs for {repeats} repeats of {size} passages")
    cases: list[Case] = []
    start = 0
    for paragraphs in enough[1 : repeats + 1]:
        asked = paragraphs[0]["qas"][0]["question"], paragraphs[1]["qas"][0]["question"]
        passages = [paragraphs[0]["context"], paragraphs[1]["context"]]
        others = [text for text in texts[start:] + texts if text not in passages]
        start += size
        cases.append((asked, passages + others[: size - 2]))
    return cases


def _paragraphs(model: LocalLM, article: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the paragraphs of an article with the right length and a question."""
    asked = [each for each in article["paragraphs"] if each["qas"]]
    counts = model.count_tokens([each["context"] for each in asked])
    return [each for each, count in zip(asked, counts, strict=True) if count in TOKENS]


def _timed(model: LocalLM, case: Case) -> dict[str, tuple[float, float]]:
    """Wall and CPU seconds of each way."""
    (first, later), passages = case
    model.clear_cache()
    with_model = ContextShaper(model, ShapingConfig(on_error="raise"), embedder=_fresh_embedder())
    without = ContextShaper(None, ShapingConfig(signal=None), embedder=_fresh_embedder())
    found = [
        _seconds(shaper, question, passages)
        for shaper in (with_model, without)
        for question in (first, later)
    ]
    return dict(zip(WAYS, found, strict=True))


def _fresh_embedder() -> Embedder:
    """Return a loaded embedder that has no vectors yet: a pickle holds none."""
    embedder: Embedder = pickle.loads(pickle.dumps(default_embedder()))
    embedder.embed_query("loads the model")
    return embedder


def _seconds(shaper: ContextShaper, question: str, passages: Sequence[str]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    shaper.shape(question, passages)
    return time.perf_counter() - wall, time.process_time() - cpu
