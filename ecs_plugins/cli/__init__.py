"""The command line: ``ecs-plugins``. Each command group is a module of its own."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import Annotated

import typer

from ecs_plugins import __version__
from ecs_plugins.cli import diagnose, frontier, memory, model, serve, shape
from ecs_plugins.common.text import printable
from ecs_plugins.errors import EcsPluginsError

app = typer.Typer(
    name="ecs-plugins",
    help="Context shaping, bounded memory and cost-aware routing on one local language model.",
    epilog="Start with: ecs-plugins model install, then ecs-plugins play",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

app.command(
    "shape", help=shape.HELP, cls=shape.ShapeCommand, context_settings=model.TAKES_SETTINGS
)(shape.shape)
app.command("diagnose", help=diagnose.HELP)(diagnose.diagnose)
app.add_typer(memory.app)
app.add_typer(model.app)
app.command(
    "calibrate",
    help=frontier.CALIBRATE_HELP,
    cls=frontier.CalibrateCommand,
    context_settings=model.TAKES_SETTINGS,
)(frontier.calibrate)
app.command("route", help=frontier.ROUTE_HELP)(frontier.route)
app.command("report", help=frontier.REPORT_HELP)(frontier.report)
app.command("serve", help=serve.SERVE_HELP)(serve.serve)
app.command("mcp", help=serve.MCP_HELP)(serve.mcp)
app.command("play", help=serve.PLAY_HELP)(serve.play)


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
    """Run the command line; an expected error is one line on stderr and exit status 1.

    So is an output that cannot be written. A reader that has closed its end of a pipe knows.
    """
    try:
        try:
            app()
        finally:
            if sys.stdout is not None:  # it was closed before
                sys.stdout.flush()
    except EcsPluginsError as error:
        typer.echo(f"ecs-plugins: {printable(str(error))}", err=True)
        sys.exit(1)
    except OSError as error:
        # What is left in the buffer is not tried again when the interpreter ends.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        with contextlib.suppress(OSError):
            if error.errno != errno.EPIPE:
                typer.echo(f"ecs-plugins: {printable(str(error))}", err=True)
        sys.exit(1)
