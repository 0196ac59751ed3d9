"""``python -m examples.demo``."""

import sys

import typer

from ecs_plugins.errors import EcsPluginsError
from examples.demo import HELP, demo

app = typer.Typer(pretty_exceptions_enable=False)
app.command("demo", help=HELP)(demo)


def main() -> None:
    """Run the demo; an expected error is one line on stderr and exit status 1."""
    try:
        app()
    except EcsPluginsError as error:
        typer.echo(f"demo: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
