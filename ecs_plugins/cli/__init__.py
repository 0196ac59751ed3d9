"""The command line: ``ecs-plugins``. Each command group is a module of its own."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ecs_plugins import __version__
from ecs_plugins.cli import (
    bench,
    bench_chat,
    bench_engine,
    bench_evidence,
    bench_frontier,
    demo,
    diagnose,
    frontier,
    memory,
    model,
    shape,
)
from ecs_plugins.errors import EcsPluginsError

app = typer.Typer(
    name="ecs-plugins",
    help="Context shaping, bounded memory and cost-aware routing on one local language model.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

app.command("demo", help=demo.HELP)(demo.demo)
app.command("shape", help=shape.HELP)(shape.shape)
app.command("diagnose", help=diagnose.HELP)(diagnose.diagnose)
app.add_typer(memory.app)
app.add_typer(model.app)
app.command("calibrate", help=frontier.CALIBRATE_HELP)(frontier.calibrate)
app.command("route", help=frontier.ROUTE_HELP)(frontier.route)
app.command("report", help=frontier.REPORT_HELP)(frontier.report)
bench.app.command("engine", help=bench_engine.HELP)(bench_engine.engine)
bench.app.command("frontier", help=bench_frontier.HELP)(bench_frontier.frontier)
bench.app.command("deployment", help=bench_frontier.DEPLOYMENT_HELP)(bench_frontier.deployment)
bench.app.command("bounded-chat", help=bench_chat.HELP)(bench_chat.bounded_chat)
for _name in bench_evidence.BENCHES:
    bench.app.command(_name, help=bench_evidence.help_of(_name))(bench_evidence.command(_name))
bench.app.command("evidence-report", help=bench_evidence.REPORT_HELP)(bench_evidence.report)
bench.app.command("evidence-methods", help=bench_evidence.METHODS_HELP)(bench_evidence.methods)
app.add_typer(bench.app)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"ecs-plugins {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Context shaping, bounded memory and cost-aware routing on one local language model."""


def main() -> None:
    """Run the command line; an expected error is one line on stderr and exit status 1."""
    try:
        app()
    except EcsPluginsError as error:
        typer.echo(f"ecs-plugins: {error}", err=True)
        sys.exit(1)
