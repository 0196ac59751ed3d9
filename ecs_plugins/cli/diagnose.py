"""``ecs-plugins diagnose``: is this model fit for context shaping, on a user's own questions?"""

from __future__ import annotations

import contextlib
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ecs_plugins.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ecs_plugins.shaping.calibrated import CalibratedSignal
    from ecs_plugins.shaping.diagnostics.examples import LabelledExample
    from ecs_plugins.shaping.diagnostics.observe import Observations
    from ecs_plugins.shaping.diagnostics.result import ModelDiagnostics
    from ecs_plugins.shaping.diagnostics.statistics import Distribution

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
a verdict: fit, weak or unfit, with the reasons. --calibrate also fits the
probability that a passage helps, from all measured signals that need no answer.

\b
  from ecs_plugins.shaping import ModelDiagnostics
  config = ModelDiagnostics.load("diagnostics.json").config()
"""


def diagnose(
    data: Annotated[
        Path,
        typer.Option(
            help="JSON lines {question, passages, evidence, answer?}.", show_default=False
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            help="A model's name or directory; the bundled model without it.", show_default=False
        ),
    ] = None,
    signals: Annotated[
        str | None,
        typer.Option(
            help="Names with commas, or all. Without it, those that are worth their cost.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Where the diagnostics are written (JSON).", show_default=False),
    ] = None,
    calibrate: Annotated[
        Path | None,
        typer.Option(
            help="Fit the probability that a passage helps, and write it here (JSON).",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="Sample this many questions.", show_default=False)
    ] = None,
    unrelated: Annotated[
        int, typer.Option(min=0, help="Passages of other questions per question.")
    ] = 4,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    seed: Annotated[int, typer.Option(help="Draws samples, unrelated passages and folds.")] = 42,
    as_json: Annotated[
        bool, typer.Option("--json", help="Write JSON and nothing else to standard output.")
    ] = False,
) -> None:
    """See `HELP`, which the command line shows."""
    # What libraries print while they load must not end up between the JSON and its reader.
    with contextlib.redirect_stdout(sys.stderr):
        from ecs_plugins.shaping.diagnostics.examples import read_examples
        from ecs_plugins.shaping.diagnostics.result import ModelDiagnostics, default_signals

        examples = read_examples(data, limit=limit, seed=seed)
        names = _names(signals, examples) or default_signals(examples)
        if calibrate is not None:
            _require_calibratable(names, examples)
        observed, name = _observe(examples, names, model, device, dtype, unrelated, seed)
        found = ModelDiagnostics.of(observed, examples, model=name, seed=seed)
        if out is not None:
            found.save(out)
        fitted = None
        if calibrate is not None:
            fitted = _calibrated(observed, examples, name, seed)
            fitted.save(calibrate)
    if as_json:
        typer.echo(found.to_json(), nl=False)
        return
    _show(found)
    if fitted is not None:
        typer.echo(f"\n{fitted.report()}")
    for path in (out, calibrate):
        if path is not None:
            typer.echo(str(path))


def _names(text: str | None, examples: Sequence[LabelledExample]) -> tuple[str, ...]:
    from ecs_plugins.shaping.signals import SIGNALS

    if text is None:
        return ()
    if text.strip() == "all":
        answered = all(example.answers for example in examples)
        return tuple(n for n, make in SIGNALS.items() if answered or not make().needs_answer)
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in SIGNALS]
    if unknown or not names:
        raise ConfigurationError(
            f"--signals {text!r}: choose from {', '.join(SIGNALS)}, separated by commas, or all"
        )
    return names


def _observe(
    examples: Sequence[LabelledExample],
    names: Sequence[str],
    model: str | None,
    device: str,
    dtype: str,
    unrelated: int,
    seed: int,
) -> tuple[Observations, str]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    from ecs_plugins.cli import _setup
    from ecs_plugins.shaping.diagnostics.observe import observe

    console = Console(stderr=True)
    with console.status("loading the model"):
        language_model = _setup.load_model(model, device=device, dtype=dtype)
    columns = (TextColumn("measuring"), BarColumn(), MofNCompleteColumn(), Remaining())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)

        def tell(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        observed = observe(
            language_model, examples, names, unrelated=unrelated, seed=seed, progress=tell
        )
    return observed, language_model.name


def _require_calibratable(names: Sequence[str], examples: Sequence[LabelledExample]) -> None:
    """Before anything is measured."""
    from ecs_plugins.shaping.calibrated import require_enough
    from ecs_plugins.shaping.signals import SIGNALS

    require_enough(examples)
    if all(SIGNALS[name]().needs_answer for name in names):
        raise ConfigurationError(
            "--calibrate combines signals that need no answer; name one with --signals, for "
            "example query_likelihood"
        )


def _calibrated(
    observed: Observations, examples: Sequence[LabelledExample], model: str, seed: int
) -> CalibratedSignal:
    from ecs_plugins.shaping.calibrated import CalibratedSignal

    free = [n for n, signal in enumerate(observed.signals) if not signal.needs_answer]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the report below says the same
        return CalibratedSignal.of(observed.chosen(free), examples, model=model, seed=seed)


def _show(found: ModelDiagnostics) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("signal", "verdict", "AUC", "95 %", "evidence", "distractors", "unrelated"):
        table.add_column(name, justify="left" if name in ("signal", "verdict") else "right")
    for name in ("noise", "threshold", "precision", "recall", "tokens"):
        table.add_column(name, justify="right")
    for signal in found.signals:
        auc, threshold = signal.auc, signal.threshold
        table.add_row(
            signal.signal,
            str(signal.verdict),
            "" if auc is None else f"{auc.value:.2f}",
            "" if auc is None else f"{auc.low:.2f}-{auc.high:.2f}",
            *(_mean(part) for part in (signal.evidence, signal.distractors, signal.unrelated)),
            f"{signal.noise.largest:.1g}",
            "rank only" if threshold is None else f"{threshold.value:.3g}",
            "" if threshold is None else f"{threshold.precision:.2f}",
            "" if threshold is None else f"{threshold.recall:.2f}",
            f"{signal.tokens:.1f}",
        )
    typer.echo(
        f"{found.model}: {found.verdict}, at best with {found.signals[0].signal} "
        f"({found.examples} questions, {found.passages} passages, {found.evidence} evidence)\n"
    )
    Console().print(table)
    typer.echo(
        "\nMeans in the signal's unit; precision and recall on questions held out; tokens are "
        "computed per passage token."
    )
    for signal in found.signals:
        typer.echo(f"\n{signal.signal}: {signal.verdict}")
        for reason in signal.reasons:
            typer.echo(f"  - {reason}")


def _mean(found: Distribution | None) -> str:
    return "" if found is None else f"{found.mean:+.2f} ± {found.sd:.2f}"
