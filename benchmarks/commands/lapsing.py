"""``python -m benchmarks lapsing``: the shown bound in games with caches that lapse."""

from __future__ import annotations

from typing import Annotated

import typer


def lapsing(
    games: Annotated[int, typer.Option(min=1, help="How many games are drawn.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Of the games.")] = 42,
) -> None:
    """Route query by query, and hold the cost against an optimum that knows all gaps."""
    from benchmarks.deployment.lapsing import made_up, play

    outcomes = [play(game) for game in made_up(games, seed=seed)]
    ratios = sorted(outcome.ratio for outcome in outcomes)
    bounds = sorted(outcome.bound for outcome in outcomes)
    above = sum(not outcome.holds for outcome in outcomes)
    middle = len(ratios) // 2
    typer.echo(f"games above the bound that was shown: {above} of {games}")
    typer.echo(f"highest cost over the optimum: {ratios[-1]:.3f} (median {ratios[middle]:.3f})")
    typer.echo(f"bound that was shown: {bounds[-1]:.3f} at most (median {bounds[middle]:.3f})")
