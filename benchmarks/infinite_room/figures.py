"""The paper's Figures 2 (survival over time) and 3 (survival over noise), from our runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.drawing import new_figure
from benchmarks.infinite_room.suite import Cell, Results
from ecs_plugins.memory.types import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SERIES: dict[str, tuple[str, str]] = {
    "Oracle": ("#888888", ":"),
    "Entropic, default": ("#c1272d", "-"),
    "Entropic, paper()": ("#e8871e", "--"),
    "LFU + dedup": ("#2a7f62", "-."),
    "Importance": ("#3b6fb6", "-"),
    "LRU": ("#7b5aa6", "-"),
    "FIFO": ("#444444", "-"),
}

FEWEST_SEEDS = 5
"""Below this an interval over seeds says nothing, and is not drawn."""


def draw_figures(results: Results, folder: Path) -> list[Path]:
    """Write the figures for which the worlds were run; return their paths.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    paths = []
    if "a30" in results.runs:
        paths.append(_survival_over_time(results, folder / "figure2.png"))
    if len(_noise_levels(results)) > 1:
        paths.append(_survival_over_noise(results, folder / "figure3.png"))
    return paths


def _survival_over_time(results: Results, path: Path) -> Path:
    figure, axes = new_figure((8, 4.5))
    steps = results.worlds["a30"].steps
    for name, (colour, style) in SERIES.items():
        runs = results.runs["a30"].get(name)
        if not runs:
            continue
        curves = np.array([run.expected_curve for run in runs])
        cells = [Cell.of(column) for column in _smoothed(curves).T]
        x = np.linspace(0, steps, len(cells))
        mean = np.array([cell.mean for cell in cells])
        axes.plot(x, mean, style, color=colour, label=name, linewidth=1.6)
        if len(runs) >= FEWEST_SEEDS:
            width = np.array([cell.half_width for cell in cells])
            axes.fill_between(x, mean - width, mean + width, color=colour, alpha=0.15, linewidth=0)
    axes.set(
        xlabel="step",
        ylabel="expected survival rate",
        ylim=(0, None),
        xlim=(0, steps),
        title=f"World A, 30 % noise, {_seeds(results)}",
    )
    return _finished(figure, axes, path)


def _survival_over_noise(results: Results, path: Path) -> Path:
    figure, axes = new_figure((8, 4.5))
    levels = _noise_levels(results)
    many = len(results.seeds) >= FEWEST_SEEDS
    for name, (colour, style) in SERIES.items():
        cells = [results.cell(world, name) for world in levels if name in results.runs[world]]
        if len(cells) < len(levels):
            continue
        x = [100 * level for level in levels.values()]
        axes.errorbar(
            x,
            [cell.mean for cell in cells],
            yerr=[cell.half_width for cell in cells] if many else None,
            color=colour,
            linestyle=style,
            label=name,
            marker="o",
            markersize=4,
            capsize=3,
        )
    for name, points, marker in (
        ("paper: Importance", {30: 0.29, 50: 0.24}, "x"),
        ("paper: Entropic", {30: 0.29, 50: 0.28}, "+"),
    ):
        axes.plot(
            list(points), list(points.values()), marker, color="black", label=name, markersize=9
        )
    axes.set(
        xlabel="noise (%)",
        ylabel="expected survival rate",
        ylim=(0, None),
        title=f"World A, {_seeds(results)}",
    )
    return _finished(figure, axes, path)


def _seeds(results: Results) -> str:
    count = len(results.seeds)
    return f"{count} seeds" + (", 95 % intervals" if count >= FEWEST_SEEDS else "")


def _noise_levels(results: Results) -> dict[str, float]:
    levels = ("a10", "a30", "a50", "a70")
    return {key: results.worlds[key].distractors for key in levels if key in results.worlds}


def _smoothed(curves: Floats, points: int = 50) -> Floats:
    """Average each curve [seeds, evaluations] within consecutive windows."""
    windows = np.array_split(curves, min(points, curves.shape[1]), axis=1)
    return np.stack([window.mean(axis=1) for window in windows], axis=1)


def _finished(figure: Figure, axes: Axes, path: Path) -> Path:
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, ncols=2)
    figure.savefig(path)
    return path
