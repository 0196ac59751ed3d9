"""``python -m benchmarks policies``: rules for how many queries will follow, in one table."""

from __future__ import annotations

from typing import Annotated

import typer


def policies(
    contexts: Annotated[int, typer.Option(min=1, help="Contexts per kind of traffic.")] = 300,
    games: Annotated[int, typer.Option(min=2, help="Drawn strategies and traffics.")] = 900,
    seed: Annotated[int, typer.Option(help="Of the games.")] = 123,
) -> None:
    """Cost over the offline optimum on the months, and on games that nobody tuned a rule on."""
    from rich.console import Console
    from rich.table import Table

    from benchmarks.deployment.policies import drawn_games, months, summary

    for name, ratios in (("20 months", months(contexts)), ("games", drawn_games(games, seed=seed))):
        table = Table("rule", "mean", "most", "less than as many more as have come", box=None)
        for row in summary(ratios):
            table.add_row(*row)
        Console().print(name)
        Console().print(table)
