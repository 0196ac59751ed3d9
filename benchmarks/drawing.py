"""Markdown tables and figures of the benchmarks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ecs_plugins.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table that ends with a line break."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def new_figure(size: tuple[float, float], rows: int = 1, columns: int = 1) -> tuple[Figure, Any]:
    """Return a figure without a display, and its axes (one or an array).

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingExtraError("Drawing the figures", "matplotlib") from error
    figure = Figure(figsize=size, layout="constrained", dpi=150)
    return figure, figure.subplots(rows, columns)
