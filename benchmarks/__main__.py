"""Commands of ``python -m benchmarks``: they make the tables of the docs."""

from __future__ import annotations

import sys

import typer

from benchmarks.commands import (
    attribution,
    bounded_chat,
    engine,
    fusion,
    gpu,
    infinite_room,
    lapsing,
    memory_prior,
    memory_relevance,
    memory_rules,
    memory_scale,
    memory_store,
    month,
    policies,
    pruning,
    report,
    robustness,
    route,
    seconds,
    server_load,
    signals,
    soak,
)
from ecs_plugins.errors import EcsPluginsError

app = typer.Typer(
    name="benchmarks",
    help="Run a benchmark. Each prints its tables and writes its runs as JSON.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("engine", help=engine.HELP)(engine.engine)
app.command("soak", help=soak.HELP)(soak.soak)
app.command("gpu")(gpu.gpu)
app.command("infinite-room")(infinite_room.infinite_room)
app.command("bounded-chat", help=bounded_chat.HELP)(bounded_chat.bounded_chat)
app.command("memory-prior")(memory_prior.memory_prior)
app.command("memory-relevance")(memory_relevance.memory_relevance)
app.command("memory-rules")(memory_rules.memory_rules)
app.command("memory-scale")(memory_scale.memory_scale)
app.command("memory-store", help=memory_store.HELP)(memory_store.memory_store)
app.command("month")(month.month)
app.command("policies")(policies.policies)
app.command("route")(route.route)
app.command("lapsing")(lapsing.lapsing)
app.command("fusion", help=fusion.HELP)(fusion.fusion)
app.command("pruning", help=pruning.HELP)(pruning.pruning)
app.command("attribution", help=attribution.HELP)(attribution.attribution)
app.command("robustness", help=robustness.HELP)(robustness.robustness)
app.command("server-load", help=server_load.HELP)(server_load.server_load)
app.command("signals", help=signals.HELP)(signals.signals)
app.command("report", help=report.HELP)(report.report)
app.command("seconds", help=seconds.HELP)(seconds.seconds)


def main() -> None:
    """Run a benchmark; an expected error is one line on stderr and exit status 1."""
    try:
        app()
    except EcsPluginsError as error:
        typer.echo(f"benchmarks: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
