"""``python -m benchmarks questions``: a published file as the questions of a calibration."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.commands import DataFile

HELP = """Write a published file as the JSON lines that `ecs-plugins calibrate --data` takes.

\b
  python -m benchmarks questions hotpotqa --data hotpot_dev.json --limit 200 --out questions.jsonl
  ecs-plugins calibrate --data questions.jsonl --out frontier.json

Of HotpotQA, MuSiQue, SQuAD or LoCoMo. Every line repeats its whole context.
"""


def questions(
    dataset: Annotated[str, typer.Argument(help="hotpotqa, musique, squad or locomo.")],
    data: DataFile,
    out: Annotated[Path, typer.Option(help="The file to write.")],
    limit: Annotated[int | None, typer.Option(min=1, help="A sample of so many.")] = None,
    contexts: Annotated[
        int | None, typer.Option(min=1, help="Only the questions about the first contexts.")
    ] = None,
    max_context_tokens: Annotated[
        int | None,
        typer.Option(help="Cut longer contexts to their first documents; ask what these answer."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Whose tokens these are; the bundled model's without it.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the sample.")] = 42,
) -> None:
    """See `HELP`, which the command line shows."""
    from benchmarks.datasets.contexts import read_contexts, to_json_lines

    found = read_contexts(dataset, data)
    if limit is not None and limit < len(found):
        chosen = sorted(random.Random(seed).sample(range(len(found)), limit))
        found = [found[index] for index in chosen]
    if contexts is not None:
        first = list(dict.fromkeys(question.context.id for question in found))[:contexts]
        found = [question for question in found if question.context.id in first]
    if max_context_tokens is not None:
        from benchmarks.datasets.fitting import fit_contexts
        from ecs_plugins.cli import model as models

        found = fit_contexts(found, max_context_tokens, models.load_model(model).count_tokens)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("".join(f"{line}\n" for line in to_json_lines(found)), encoding="utf-8")
    typer.echo(f"wrote {len(found)} questions to {out}")
