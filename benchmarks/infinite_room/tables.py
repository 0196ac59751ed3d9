"""The paper's tables beside ours, and every world at a glance."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from benchmarks.infinite_room.suite import Results

PAPER_30: dict[str, tuple[float, float, float]] = {
    "Random (guess)": (0.02, 0.02, 0.05),
    "FIFO": (0.26, 0.31, 0.65),
    "LRU": (0.27, 0.33, 0.68),
    "Importance": (0.29, 0.35, 0.73),
    "Entropic, paper()": (0.29, 0.36, 0.73),
}
PAPER_50: dict[str, tuple[float, float]] = {
    "Importance": (0.24, 0.60),
    "Entropic, paper()": (0.28, 0.70),
}
OURS = "Entropic, default"


def paper_table_1(results: Results) -> Table:
    """Return Table 1 (30 % noise) beside our runs."""
    table = Table(title="Table 1: 30 % noise (mean ± std over seeds)")
    table.add_column("Method")
    for column in ("Survival", "paper", "Hit@3", "paper", "Info density", "paper"):
        table.add_column(column, justify="right")
    for name in [*PAPER_30, OURS, "Oracle"]:
        if name not in results.runs["a30"]:
            continue
        cells = [results.cell("a30", name, metric) for metric in ("survival", "hit", "density")]
        published = [f"{value:.2f}" for value in PAPER_30.get(name, ())] or ["-"] * 3
        row = [name]
        for cell, value in zip(cells, published, strict=True):
            row += [f"{cell.mean:.3f} ± {cell.std:.3f}", value]
        table.add_row(*row)
    return table


def paper_table_2(results: Results) -> Table:
    """Return Table 2 (50 % noise) beside our runs."""
    table = Table(title="Table 2: 50 % noise (mean ± std over seeds)")
    table.add_column("Method")
    for column in ("Survival", "paper", "Info density", "paper"):
        table.add_column(column, justify="right")
    for name in ["FIFO", *PAPER_50, OURS, "Oracle"]:
        if name not in results.runs["a50"]:
            continue
        cells = [results.cell("a50", name, metric) for metric in ("survival", "density")]
        published = [f"{value:.2f}" for value in PAPER_50.get(name, ())] or ["-"] * 2
        row = [name]
        for cell, value in zip(cells, published, strict=True):
            row += [f"{cell.mean:.3f} ± {cell.std:.3f}", value]
        table.add_row(*row)
    return table


def world_rows(results: Results, names: Sequence[str], worlds: Sequence[str]) -> list[list[str]]:
    """Return one row per policy: expected survival (share of the oracle's) in each world."""
    rows = []
    for name in names:
        row = [name]
        for world in worlds:
            mean = results.cell(world, name).mean
            row.append(f"{mean:.3f} ({results.ratio(world, name):.2f})")
        rows.append(row)
    return rows


def world_table(results: Results, names: Sequence[str], worlds: Sequence[str], title: str) -> Table:
    """Return :func:`world_rows` as a table."""
    table = Table(title=title)
    table.add_column("Policy")
    for world in worlds:
        table.add_column(world, justify="right")
    for row in world_rows(results, names, worlds):
        table.add_row(*row)
    return table


def markdown(results: Results, names: Sequence[str], worlds: Sequence[str]) -> str:
    """Return :func:`world_rows` as a Markdown table."""
    header = ["policy", *worlds]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in world_rows(results, names, worlds)]
    return "\n".join(lines) + "\n"


def margin_table(results: Results) -> Table:
    """Return how the default configuration stands to the best classical policy, per world."""
    table = Table(title="The default configuration against the best classical policy")
    for column in ("World", "Description", "Best classical", "SR", "Ours", "Margin", "Of oracle"):
        table.add_column(column)
    for world, settings in results.worlds.items():
        best, score = results.best_baseline(world)
        ours = results.cell(world, OURS).mean
        share = results.ratio(world, OURS)
        table.add_row(
            world,
            settings.name,
            best,
            f"{score:.3f}",
            f"{ours:.3f}",
            f"{ours - score:+.3f}",
            f"{share:.2f}",
        )
    return table
