"""``ecs-plugins calibrate``, ``route`` and ``report``: the Efficiency Frontier."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ecs_plugins.cli.model import (
    DeviceOption,
    DtypeOption,
    JsonOption,
    SettingsCommand,
    settings_of,
)
from ecs_plugins.common import files
from ecs_plugins.common.rendering import folded
from ecs_plugins.common.text import printable
from ecs_plugins.errors import ConfigurationError

if TYPE_CHECKING:
    from ecs_plugins.frontier.decision import RoutingDecision
    from ecs_plugins.frontier.envelope import EfficiencyFrontier

CALIBRATE_HELP = """Measure every context strategy once on your own questions.

\b
  ecs-plugins calibrate --data questions.jsonl --out frontier.json
  ecs-plugins report frontier.json
  ecs-plugins route --frontier frontier.json --reuse 40 --target-f1 0.78

Run the same command again after a kill: what was measured is in a journal
beside --out and is not measured twice. Decoding is greedy, the sample seeded.
"""
ROUTE_HELP = """Choose a strategy from a measured frontier, with the numbers behind the choice.

\b
  ecs-plugins route --frontier frontier.json --reuse 40 --target-f1 0.78
  ecs-plugins route --frontier frontier.json --reuse 1 --budget 600 --json

--reuse is N, how many queries will share the context. Ask by exactly one of
target F1, cost per query, and weight.
"""
REPORT_HELP = """Write one HTML page from a measured frontier.

\b
  ecs-plugins report frontier.json
  ecs-plugins report --ledger reuse.db

It shows the paper's figures, a map of the cheapest strategy by N and target F1,
cost over N, and the tables behind them.
"""

PricesOption = Annotated[
    Path | None,
    typer.Option(
        "--prices",
        help="Price list (JSON, per million tokens) or LiteLLM's price map; costs are then money.",
    ),
]


class CalibrateCommand(SettingsCommand):
    """Command with the settings of a calibration."""

    configs = ("ecs_plugins.frontier.calibration:CalibrationConfig",)


def calibrate(
    ctx: typer.Context,
    data: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Questions, one JSON object per line: {question, answer | answers, documents, "
            "supporting?}.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Where the frontier is written.")] = Path(
        "frontier.json"
    ),
    model: Annotated[
        str | None,
        typer.Option(
            help="The local model, a directory or hub name: it scores for ECS and, without "
            "--answer-model, answers and compresses. By default the bundled one."
        ),
    ] = None,
    answer_model: Annotated[
        str | None,
        typer.Option(
            help="The model that answers and compresses: module:attribute of a LangChain chat "
            "model, a LlamaIndex LLM or a function that makes one. Tokens it does not report are "
            "counted by the tokenizer of the local model."
        ),
    ] = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    limit: Annotated[int | None, typer.Option(help="Sample this many questions (seed 42).")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help='Measure this strategy, such as "bm25" or "bm25(depth=4)"; can be repeated. '
            "Without it, all."
        ),
    ] = None,
) -> None:
    """See `CALIBRATE_HELP`, which the command line shows."""
    from ecs_plugins.cli.model import imported_answer_model, load_model
    from ecs_plugins.frontier.answering import AnswerModel, LocalAnswerModel
    from ecs_plugins.frontier.calibration import CalibrationConfig
    from ecs_plugins.frontier.calibration import calibrate as measure
    from ecs_plugins.frontier.data import read_questions
    from ecs_plugins.frontier.strategies import configurations, default_strategies
    from ecs_plugins.lm.devices import dtype_name, resolve_device, resolve_dtype
    from ecs_plugins.ranking.embedder import default_embedder

    # Everything that can be refused is refused before a model is loaded.
    journal = files.beside(out, f"{out.stem}.journal.db")
    names = {name for name, _ in configurations(only or ())}
    (of_run,) = settings_of(ctx.args, CalibrationConfig)
    config = CalibrationConfig(**{"progress": True} | of_run)
    questions = read_questions(data, limit=limit)
    scoring = load_model(model, device=device, dtype=dtype)
    answerer: AnswerModel = LocalAnswerModel(scoring)
    if answer_model is not None:
        answerer = imported_answer_model(answer_model, scoring.count_tokens)
    models = {}
    embedder = None
    if not names.isdisjoint(("dense", "ecs")):
        embedder = default_embedder()
        models = {"embedder": embedder.name, "scorer": scoring.name}
    strategies = default_strategies(
        answerer,
        questions=questions,
        only=only or (),
        embedder=embedder,
        scorer=scoring,
        cache_dir=files.beside(out, f"{out.stem}.compressions"),
    )
    frontier = measure(
        questions,
        strategies,
        answerer,
        config=config,
        journal=journal,
        data=data.name,
        models=models,
        settings={"dtype": dtype_name(resolve_dtype(dtype, resolve_device(device)))},
    )
    frontier.save(out)
    _print_points(frontier)
    typer.echo(f"\n{out}\nNext: ecs-plugins report {out}")


def route(
    frontier: Annotated[Path, typer.Option(help="A frontier that calibrate wrote.")],
    reuse: Annotated[float, typer.Option(help="N: queries that will share the context.")],
    target_f1: Annotated[
        float | None, typer.Option("--target-f1", help="The cheapest that reaches it.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="The best F1 within this cost per query.")
    ] = None,
    weight: Annotated[
        float | None, typer.Option(help="The best score at this w, in [0, 1].")
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option(help="Only what answers within it at p95.")
    ] = None,
    prices: PricesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Choose a strategy from a frontier file and print it; the help is `ROUTE_HELP`."""
    measured = _load(frontier, prices)
    decision = measured.decide(
        reuse=reuse,
        target_f1=target_f1,
        budget=budget,
        weight=weight,
        max_seconds=max_seconds,
    )
    if as_json:
        typer.echo(json.dumps(decision.to_dict(), indent=2))
    else:
        _print_decision(decision)


def report(
    frontier: Annotated[
        Path | None, typer.Argument(help="A frontier that calibrate wrote.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder. Without it, beside the frontier or the ledger.")
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(help="A reuse ledger or its address: what was spent and saved."),
    ] = None,
    prices: PricesOption = None,
) -> None:
    """See `REPORT_HELP`, which the command line shows."""
    if frontier is None and ledger is None:
        raise ConfigurationError("give a frontier, or --ledger")
    if ledger is not None:
        _report_spending(ledger, out)
    if frontier is None:
        return
    from ecs_plugins.frontier.report import write_report

    folder = out or files.beside(frontier, f"{frontier.stem}.report")
    measured = _load(frontier, prices)
    typer.echo(str(write_report(measured, folder)))


def _report_spending(ledger: str, out: Path | None) -> None:
    """Print spending and savings, and write them as a page."""
    from ecs_plugins.frontier.reuse import (
        SPENDING_COLUMNS,
        ReuseLedger,
        savings,
        total,
        write_spending,
    )
    from ecs_plugins.storage.addresses import is_address

    if not is_address(ledger) and not Path(ledger).is_file():
        raise ConfigurationError(f"there is no ledger {ledger}; check the path")
    with ReuseLedger(ledger) as opened:
        rows = savings(opened)
        table = [SPENDING_COLUMNS, *(row.cells() for row in [*rows, *total(rows)])]
        for cells in _aligned(table, str.ljust):
            typer.echo(printable("  ".join(cells).rstrip()))
        folder = out or (Path.cwd() if is_address(ledger) else Path(ledger).parent)
        typer.echo(str(write_spending(opened, folder / "spending.html")))


def _load(path: Path, prices: Path | None) -> EfficiencyFrontier:
    from ecs_plugins.frontier.envelope import EfficiencyFrontier
    from ecs_plugins.frontier.prices import PriceVector

    measured = EfficiencyFrontier.load(path)
    if prices is None:
        return measured
    return measured.priced(PriceVector.read(prices, measured.provenance.models))


def _print_points(frontier: EfficiencyFrontier) -> None:
    """Print two lines for each point, so that eighty columns hold any name and all figures."""
    from ecs_plugins.frontier.report import POINT_COLUMNS, point_rows

    rows = [[*POINT_COLUMNS, "N = 1", "N = 10", "N = 100"], *point_rows(frontier, (1, 10, 100))]
    for name, *cells in _aligned(rows, str.rjust):
        typer.echo(f"{printable(name.strip())}\n  {'  '.join(cells)}")
    for dropped in frontier.dropped:
        typer.echo(printable(f"{dropped.strategy} {dict(dropped.config)}: {dropped.reason}"))
    if frontier.caution:
        typer.echo(f"\n{frontier.caution}")


def _aligned(
    rows: Sequence[Sequence[str]], align: Callable[[str, int], str]
) -> Iterator[list[str]]:
    """Yield rows whose cells are as wide as the widest of their column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield [align(cell, width) for cell, width in zip(row, widths, strict=True)]


def _print_decision(decision: RoutingDecision) -> None:
    lines = [decision.explain(), "", "why not"]
    for label, reason in decision.why_not().items():
        lines += [f"  {label}", f"      {reason}"]
    typer.echo(folded(printable("\n".join(lines))))
