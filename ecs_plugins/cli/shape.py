"""``ecs-plugins shape``: shape the passages of a file or a pipe for one question."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption
from typing_extensions import override

from ecs_plugins.cli._passages import read_passages
from ecs_plugins.cli._setup import DeviceOption, DtypeOption, JsonOption, ModelOption
from ecs_plugins.common import files
from ecs_plugins.common.text import printable

HELP = """Keep the passages that help to answer a question, and say why.

\b
  printf '%s\\n' 'The ferry leaves at nine.' 'Gulls nest on the roof.' |
    ecs-plugins shape --query 'When does the boat go?' --passages - --top-k 1

Passages come as JSON lines ({"text": "..."}), as one JSON list of such records,
or as text with one passage per line, or per paragraph where blank lines
separate them. With --json the
result alone goes to standard output:

\b
  ecs-plugins shape -q 'When does the boat go?' -p notes.jsonl --json |
    jq .kept

Without --answer the passages are ordered by how likely they make the
question, and the best --top-k (5 by default) or those within --max-tokens
stay. With the known answer, those that raise its log-probability by the
threshold stay.
"""


class HelpOfRegistries(TyperCommand):
    """A command whose help names the signals and rankers that there are.

    The registries are read when the help is shown: to build the command would load NumPy.
    """

    @override
    def format_help(self, ctx: Any, formatter: Any) -> None:
        from ecs_plugins.ranking.registry import RANKERS
        from ecs_plugins.shaping.signals import SIGNALS

        options = [each for each in self.params if isinstance(each, TyperOption) and each.help]
        templates = [option.help or "" for option in options]
        for option, template in zip(options, templates, strict=True):
            named = template.replace("{signals}", ", ".join(SIGNALS))
            option.help = named.replace("{rankers}", ", ".join(RANKERS))
        super().format_help(ctx, formatter)
        for option, template in zip(options, templates, strict=True):
            option.help = template


def shape(
    query: Annotated[str, typer.Option("--query", "-q", help="The question.")],
    passages: Annotated[
        str,
        typer.Option(
            "--passages",
            "-p",
            metavar="FILE|-",
            help="A .jsonl, .json or .txt file, or - for standard input.",
        ),
    ],
    answer: Annotated[
        list[str] | None,
        typer.Option("--answer", "-a", help="The known answer; repeat it for alternatives."),
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="Keep at most so many passages.")] = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="With --answer: nats that a passage must add to be kept."),
    ] = None,
    min_probability: Annotated[
        float | None,
        typer.Option(help="Without --answer: how likely a passage must help to be kept, 0 to 1."),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(help="Token budget of the kept passages, or with --prune of what is left."),
    ] = None,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Leave out of kept passages the sentences that do not help."),
    ] = False,
    keep_share: Annotated[
        float | None,
        typer.Option(help="With --prune: share of their characters that may be left, 0 to 1."),
    ] = None,
    max_characters: Annotated[
        int | None, typer.Option(help="With --prune: characters that may be left in all.")
    ] = None,
    signal: Annotated[
        str,
        typer.Option(
            help="The measure: auto, {signals}; with + and a ranker or without. none goes by the "
            "ranker alone and asks no model."
        ),
    ] = "auto",
    ranker: Annotated[
        str,
        typer.Option(help="Chooses the passages worth scoring: {rankers}, or none to score all."),
    ] = "fused",
    pool_size: Annotated[int, typer.Option(help="How many passages it chooses.")] = 20,
    model: ModelOption = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    as_json: JsonOption = False,
    html: Annotated[
        Path | None,
        typer.Option(help="Also write a page that shows what each sentence adds.", metavar="FILE"),
    ] = None,
) -> None:
    """Run the command that `HELP` describes."""
    texts = read_passages(passages)
    # Libraries print while they load; that must not end up between the JSON and its reader.
    with contextlib.redirect_stdout(sys.stderr):
        from rich.console import Console

        from ecs_plugins.cli import _setup
        from ecs_plugins.shaping.config import ShapingConfig, resolve_signal
        from ecs_plugins.shaping.shaper import ContextShaper

        config = ShapingConfig(
            signal=None if signal == "none" else signal,
            ranker=None if ranker == "none" else ranker,
            pool_size=pool_size,
            threshold=threshold,
            min_probability=min_probability,
            top_k=top_k,
            max_tokens=max_tokens,
            max_characters=max_characters,
            keep_share=keep_share,
            unit="sentence" if prune else "passage",
            on_error="raise",
        )
        if config.signal is not None:  # refused before a model is loaded
            resolve_signal(config.signal, has_answer=bool(answer))
        with Console(stderr=True).status("loading the model") as status:
            language_model = _setup.load_model(model, device=device, dtype=dtype)
            number = len(texts)
            pool = number if config.ranker is None else min(number, config.pool_size)
            status.update(f"scoring {pool} of {number} passages")
            shaper = ContextShaper(language_model, config)
            shaped = shaper.shape(query, texts, answer=answer)
            if html is not None:
                from ecs_plugins.cli import pages

                status.update("scoring sentences")
                page = pages.shape_page(shaped, pages.coloured(shaper, shaped))
                files.write_atomically(html, page)
    if as_json:
        typer.echo(printable(json.dumps(shaped.to_dict(), ensure_ascii=False, allow_nan=False)))
    else:
        typer.echo(shaped.explain(width=max(80, shutil.get_terminal_size((120, 40)).columns)))
        if prune:
            typer.echo(printable(shaped.text))
