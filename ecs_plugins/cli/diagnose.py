"""``ecs-plugins diagnose``: is this model fit for context shaping, on a user's own questions?"""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ecs_plugins.cli._setup import DeviceOption, DtypeOption, JsonOption, ModelOption
from ecs_plugins.errors import ConfigurationError, InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ecs_plugins.lm.base import LanguageModel
    from ecs_plugins.shaping.diagnostics import ModelDiagnostics
    from ecs_plugins.shaping.observations import LabelledExample
    from ecs_plugins.shaping.probability import ProbabilityFit

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
is chance), what unrelated passages do to it, its numeric noise, a threshold
with the precision and recall to expect of it on questions it has not seen, and
a verdict: fit, weak or unfit, with the reasons.

\b
  from ecs_plugins.shaping import ModelDiagnostics
  config = ModelDiagnostics.load("diagnostics.json").config()

--fit only learns how likely a passage helps, for another model, language or
kind of document, from 50 examples on; --out then holds the fit:

\b
  ecs-plugins diagnose --fit examples.jsonl --out fit.json
  shaper = ContextShaper(model, probability=ProbabilityFit.load("fit.json"))

--from-traffic learns the same from what answers of your application rest on,
as ecs_plugins.shaping.traffic.ShapingTraffic keeps it, and loads no model:

\b
  ecs-plugins diagnose --from-traffic traffic.jsonl --out fit.json
"""
MIN_TO_FIT = 50
"""Examples from which on a probability is learned: with fewer it is the prior."""


def diagnose(
    data: Annotated[
        Path | None, typer.Option(help="JSON lines {question, passages, evidence, answer?}.")
    ] = None,
    fit: Annotated[
        Path | None,
        typer.Option(help="The same, to learn the probability of the default signal alone."),
    ] = None,
    from_traffic: Annotated[
        Path | None,
        typer.Option(help="Numbers that ShapingTraffic has kept of your answers, to learn from."),
    ] = None,
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
    seed: Annotated[int, typer.Option(help="Draws samples, unrelated passages and folds.")] = 42,
    as_json: JsonOption = False,
) -> None:
    """Run the command that `HELP` describes."""
    source = _one_of(data, fit, from_traffic)
    if from_traffic is not None:
        _show_learned(source, model, out)
        return
    # Libraries print while they load; that must not end up between the JSON and its reader.
    with contextlib.redirect_stdout(sys.stderr):
        from rich.console import Console
        from rich.progress import Progress

        from ecs_plugins.cli import _setup
        from ecs_plugins.shaping.diagnostics import ModelDiagnostics
        from ecs_plugins.shaping.observations import LabelledExample

        examples = LabelledExample.read(source, limit=limit, seed=seed)
        names = _measured(signals, examples, fitting=fit is not None)
        with Console(stderr=True).status("loading the model"):
            language_model = _setup.load_model(model, device=device, dtype=dtype)
        typer.echo(_placement(language_model), err=True)
        with Progress(console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("measuring", total=None)

            def tell(done: int, total: int) -> None:
                progress.update(task, completed=done, total=total)

            found = ModelDiagnostics.measure(
                language_model, examples, signals=names, seed=seed, progress=tell
            )
        fitted = None if fit is None else _learned(found)
        if out is not None:
            (fitted or found).save(out)
    if fitted is not None and (as_json or out is None):
        typer.echo(json.dumps(asdict(fitted)))
        return
    if as_json:
        typer.echo(found.to_json(), nl=False)
        return
    typer.echo(found.report())
    if out is not None:
        typer.echo(f"\n{out}")


def _one_of(*paths: Path | None) -> Path:
    given = [path for path in paths if path is not None]
    if len(given) != 1:
        raise ConfigurationError(
            "pass the examples as --data, as --fit to learn from them alone, or numbers of your "
            "traffic as --from-traffic"
        )
    return given[0]


def _show_learned(path: Path, model: str | None, out: Path | None) -> None:
    """Learn from traffic and write the fit, or show it."""
    from ecs_plugins.shaping.traffic import learned_from_traffic

    fit, answers = learned_from_traffic(path, model)
    typer.echo(f"learned from {answers} answers", err=True)
    if out is None:
        typer.echo(json.dumps(asdict(fit)))
    else:
        fit.save(out)


def _measured(
    signals: str | None,
    examples: Sequence[LabelledExample],
    *,
    fitting: bool,
) -> list[str] | None:
    """Return names of the signals to measure; None for those that are worth their cost."""
    if fitting:
        return [_fitted_signal(examples)]
    return None if signals is None else _names(signals, examples)


def _fitted_signal(examples: Sequence[LabelledExample]) -> str:
    """Return the signal whose probability is learned.

    Raises:
        InvalidInputError: There are too few examples.
    """
    from ecs_plugins.shaping.config import AUTO_WITHOUT_ANSWER

    if len(examples) < MIN_TO_FIT:
        raise InvalidInputError(
            f"--fit learns from {MIN_TO_FIT} examples on, and these are {len(examples)}: label "
            "more, or take --data to see how fit the model is"
        )
    return AUTO_WITHOUT_ANSWER


def _learned(found: ModelDiagnostics) -> ProbabilityFit:
    """Return the probability that was learned.

    Raises:
        InvalidInputError: All passages are evidence, or none is.
    """
    (learned,) = found.signals
    if learned.probability is None:
        raise InvalidInputError("nothing can be learned where all passages are alike")
    return learned.probability


def _placement(model: LanguageModel) -> str:
    """Return one line on the model and the device on which it computes."""
    place = getattr(model, "placement", None)
    return model.name if place is None else f"{model.name}: {place}"


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
