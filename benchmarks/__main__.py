"""``python -m benchmarks``: what the tables of the docs are made with."""

from __future__ import annotations

import sys

import typer

from benchmarks.commands import app as _root
from benchmarks.commands import bounded_chat, engine, evidence, frontier
from ecs_plugins.errors import EcsPluginsError

app = _root.app
app.command("engine", help=engine.HELP)(engine.engine)
app.command("frontier", help=frontier.HELP)(frontier.frontier)
app.command("deployment", help=frontier.DEPLOYMENT_HELP)(frontier.deployment)
app.command("bounded-chat", help=bounded_chat.HELP)(bounded_chat.bounded_chat)
for _name in evidence.BENCHES:
    app.command(_name, help=evidence.help_of(_name))(evidence.command(_name))
app.command("evidence-report", help=evidence.REPORT_HELP)(evidence.report)
app.command("evidence-methods", help=evidence.METHODS_HELP)(evidence.methods)


def main() -> None:
    """Run a benchmark; an expected error is one line on stderr and exit status 1."""
    try:
        app()
    except EcsPluginsError as error:
        typer.echo(f"benchmarks: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
