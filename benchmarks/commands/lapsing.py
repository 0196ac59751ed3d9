"""``python -m benchmarks lapsing``: the router in games with caches that lapse."""

from __future__ import annotations

from typing import Annotated

import typer


def lapsing(
    games: Annotated[int, typer.Option(min=1, help="How many games are drawn.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Of the games.")] = 42,
) -> None:
    """Route query by query, and hold the cost against an optimum that knows all gaps."""
    from benchmarks.deployment.lapsing import final_ratio, made_up, often_lapsing, play

    ratios = sorted(play(game) for game in made_up(games, seed=seed))
    often = [final_ratio(game) for game in often_lapsing()]
    typer.echo(
        f"cost over the optimum at most {ratios[-1]:.3f}, median "
        f"{ratios[len(ratios) // 2]:.3f}, 95th percentile {ratios[int(0.95 * len(ratios))]:.3f}"
    )
    typer.echo(f"a context that outlives its cache entry: {max(often):.3f} at most of eight")
