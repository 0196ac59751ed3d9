"""Writes what a person looks at: figures as PNG and SVG, and one page that holds everything."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ecs_plugins.common.files import write_atomically
from ecs_plugins.frontier.cost import check_reuse
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.figures import (
    global_figure,
    map_figure,
    reuse_figure,
    strategy_figure,
)
from ecs_plugins.frontier.html import html_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEFAULT_REUSES = (1.0, 10.0, 100.0)


def write_report(
    frontier: EfficiencyFrontier,
    directory: str | os.PathLike[str],
    *,
    reuses: Sequence[float] = DEFAULT_REUSES,
    target_f1: float | None = None,
) -> list[Path]:
    """Write ``frontier.html`` and four figures, each as PNG and SVG.

    Args:
        frontier: What was measured.
        directory: Where to; made if missing.
        reuses: The N that figures and tables compare.
        target_f1: Of the figure of cost over reuse; by default the one at which reuse saves
            the most.

    Returns:
        The files, the page first.

    Raises:
        MissingExtraError: matplotlib is not installed.
        InvalidInputError: An N < 1.
        UnreachableTargetError: Nothing reaches ``target_f1``.
        StorageError: A file cannot be written.
    """
    reuses = sorted({check_reuse(reuse) for reuse in reuses})
    target = _default_target(frontier, reuses) if target_f1 is None else target_f1
    frontier.cheapest(target, 1)
    drawn = {
        "strategies": (
            "Each strategy: all configurations, non-dominated (dashed), optimal over w (solid)",
            strategy_figure(frontier, reuses),
        ),
        "frontier": (
            "The global frontier: optimal choices as w rises",
            global_figure(frontier, reuses),
        ),
        "map": (
            "The cheapest strategy by reuse and target F1",
            map_figure(frontier),
        ),
        "reuse": (
            "Cost over reuse: the router against always the same",
            reuse_figure(frontier, target),
        ),
    }
    folder = Path(directory)
    written = []
    pages = {}
    for name, (caption, figure) in drawn.items():
        svg = _svg(figure)
        pages[name] = (caption, _inline(svg, name))
        written.append(write_atomically(folder / f"{name}.svg", svg))
        written.append(_png(figure, folder / f"{name}.png"))
    page = html_page(frontier, pages, reuses)
    return [write_atomically(folder / "frontier.html", page), *written]


def write_figure(figure: Figure, directory: str | os.PathLike[str], name: str) -> list[Path]:
    """Write a figure as SVG and PNG.

    Raises:
        StorageError: A file cannot be written.
    """
    folder = Path(directory)
    svg = write_atomically(folder / f"{name}.svg", _svg(figure))
    return [svg, _png(figure, folder / f"{name}.png")]


def _default_target(frontier: EfficiencyFrontier, reuses: Sequence[float]) -> float:
    """The target at which reuse saves the most."""

    def saving(target: float) -> float:
        costs = [frontier.cheapest(target, reuse).effective for reuse in (reuses[0], reuses[-1])]
        return costs[0] / costs[1]

    # Of equals the highest: there the alternatives are the dearest.
    return max(sorted({p.f1 for p in frontier.routable}, reverse=True), key=saving)


def _svg(figure: Figure) -> str:
    import matplotlib

    buffer = io.StringIO()
    # With a fixed salt and without a date, the same frontier gives the same file.
    with matplotlib.rc_context({"svg.hashsalt": "ecs_plugins"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _png(figure: Figure, path: Path) -> Path:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160, metadata={"Software": None})
    return write_atomically(path, buffer.getvalue())


def _inline(svg: str, name: str) -> str:
    """The SVG element alone, its ids made unique, as all figures share one page."""
    element = svg[svg.index("<svg") :]
    for mark in ('id="', "url(#", 'href="#'):
        element = element.replace(mark, f"{mark}{name}-")
    return element
