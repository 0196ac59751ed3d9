"""``ecs-plugins diagnose``: is this model fit for context shaping, on a user's own questions?"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ecs_plugins.cli.model import DeviceOption, DtypeOption, JsonOption, ModelOption
from ecs_plugins.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ecs_plugins.shaping.diagnostics import LabelledExample

HELP = """Is a model fit to tell evidence from distractors? Measured on your own questions.

\b
  ecs-plugins diagnose --data examples.jsonl --out diagnostics.json

One example per line, with the indices (from 0) of the passages that answer it:

\b
  {"question": "When does the boat leave?", "answer": "at nine",
   "passages": ["Gulls nest on the roof.", "The ferry leaves at nine."],
   "evidence": [1]}

20 to 50 questions with 5 to 20 passages each are enough. "answer" may be a
text, a list of texts, or missing; signals that need one are then left out.

For every signal you see how often evidence goes before a distractor (AUC, 0.5
is chance), what unrelated passages do to it, a threshold with the precision
and recall to expect of it on questions it has not seen, and a verdict: fit,
weak or unfit, with the reasons. Each signal has a fitted probability, too.

\b
  from ecs_plugins.shaping import ModelDiagnostics
  found = ModelDiagnostics.load("diagnostics.json")
  fit = found.signals[0].probability
  shaper = ContextShaper(model, found.config(), probability=fit)
"""


def diagnose(
    data: Annotated[Path, typer.Option(help="JSON lines {question, passages, evidence, answer?}.")],
    model: ModelOption = None,
    signals: Annotated[
        str | None,
        typer.Option(
            help="Names with commas, or all. Without it, those that are worth their cost."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where the diagnostics are written (JSON).")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Sample this many questions.")] = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Run the command that `HELP` describes."""
    # Libraries print while they load; that must not end up between the JSON and its reader.
    with contextlib.redirect_stdout(sys.stderr):
        from rich.console import Console
        from rich.progress import Progress

        from ecs_plugins.cli import model as models
        from ecs_plugins.shaping.diagnostics import LabelledExample, ModelDiagnostics

        examples = LabelledExample.read(data, limit=limit)
        names = None if signals is None else _names(signals, examples)
        with Console(stderr=True).status("loading the model"):
            language_model = models.load_model(model, device=device, dtype=dtype)
        place = getattr(language_model, "placement", "")
        typer.echo(f"{language_model.name}: {place}".rstrip(": "), err=True)
        with Progress(console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("measuring", total=None)

            def tell(done: int, total: int) -> None:
                progress.update(task, completed=done, total=total)

            found = ModelDiagnostics.measure(language_model, examples, signals=names, progress=tell)
        if out is not None:
            found.save(out)
    if as_json:
        typer.echo(found.to_json(), nl=False)
        return
    typer.echo(found.report())
    if out is not None:
        typer.echo(f"\n{out}")


def _names(text: str, examples: Sequence[LabelledExample]) -> list[str]:
    from ecs_plugins.shaping.config import (
        AUTO_WITH_ANSWER,
        AUTO_WITHOUT_ANSWER,
        is_signal,
        make_signal,
    )
    from ecs_plugins.shaping.signals import SIGNALS

    if text.strip() == "all":
        answered = all(example.answers for example in examples)
        every = (*SIGNALS, AUTO_WITHOUT_ANSWER, AUTO_WITH_ANSWER)
        return [name for name in every if answered or not make_signal(name).needs_answer]
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or not all(map(is_signal, names)):
        raise ConfigurationError(
            f"--signals {text!r}: choose from {', '.join(SIGNALS)}, with + and a ranker or "
            "without, separated by commas, or all"
        )
    return names
