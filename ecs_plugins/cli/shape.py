"""``ecs-plugins shape``: shape the passages of a file or a pipe for one question."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from ecs_plugins.cli._records import json_records, read_text
from ecs_plugins.cli.model import (
    DeviceOption,
    DtypeOption,
    JsonOption,
    ModelOption,
    SettingsCommand,
    settings_of,
)
from ecs_plugins.common import files
from ecs_plugins.common.text import printable
from ecs_plugins.errors import InvalidInputError

TEXT_KEYS = ("text", "page_content", "content")
"""Where a record's passage is looked for; the first key that it has."""
_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
_JSON = re.compile(r'\s*+(\{|\[\s*+[{"])')
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")

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
threshold stay. With --unit sentence, sentences of them that do not help are
left out.
"""


class ShapeCommand(SettingsCommand):
    """Command with the settings of `ShapingConfig`."""

    configs = ("ecs_plugins.shaping.config:ShapingConfig",)


def shape(
    ctx: typer.Context,
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

        from ecs_plugins.cli.model import load_model
        from ecs_plugins.shaping.config import ShapingConfig, resolve_signal
        from ecs_plugins.shaping.shaper import ContextShaper

        (settings,) = settings_of(ctx.args, ShapingConfig)
        config = ShapingConfig(**{"on_error": "raise"} | settings)
        if config.signal is not None:  # refused before a model is loaded
            resolve_signal(config.signal, has_answer=bool(answer))
        with Console(stderr=True).status("loading the model") as status:
            language_model = load_model(model, device=device, dtype=dtype)
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
        if config.unit == "sentence":
            typer.echo(printable(shaped.text))


def read_passages(source: str) -> list[str]:
    """Return the passages of a file, or of standard input where ``source`` is ``-``.

    JSON records are known by the file's name or the first character. Other text has a passage per
    paragraph where there are blank lines, else per line.
    """
    text = read_text(source)
    if Path(source).suffix.lower() in _JSON_SUFFIXES or _JSON.match(text):
        passages = [_text_of(record, place) for place, record in json_records(text, source)]
    else:
        parts = _BLANK_LINE.split(text.strip())
        parts = parts if len(parts) > 1 else text.splitlines()
        passages = [part.strip() for part in parts if part.strip()]
    if not passages:
        raise InvalidInputError(f"{source} holds no passages; give it at least one")
    return passages


def _text_of(record: object, place: str) -> str:
    text = record
    if isinstance(record, dict):
        text = next((record[key] for key in TEXT_KEYS if key in record), None)
    if not isinstance(text, str):
        raise InvalidInputError(f'{place}: a record is a text, or an object with a "text"')
    return text
