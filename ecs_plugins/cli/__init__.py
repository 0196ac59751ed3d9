"""The command line: ``ecs-plugins``. Each command group is a module of its own."""

from __future__ import annotations

import sys

import typer

from ecs_plugins.cli import memory, model
from ecs_plugins.errors import EcsPluginsError

app = typer.Typer(
    name="ecs-plugins",
    help="Context shaping, bounded memory and cost-aware routing on one local language model.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


app.add_typer(model.app)
app.add_typer(memory.app)


@app.callback()
def _root() -> None:
    """Context shaping, bounded memory and cost-aware routing on one local language model."""


def main() -> None:
    """Run the command line; an expected error is one line on stderr and exit status 1."""
    try:
        app()
    except EcsPluginsError as error:
        typer.echo(f"ecs-plugins: {error}", err=True)
        sys.exit(1)
