"""Tables of the paper with our figures, and a table of all worlds."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from benchmarks.infinite_room.simulation import OF_THE_WORLD
from benchmarks.infinite_room.suite import Results
from benchmarks.tables import markdown_table

PAPER_30: dict[str, tuple[float, ...]] = {
    "Random (guess)": (0.02, 0.02, 0.05),
    "FIFO": (0.26, 0.31, 0.65),
    "LRU": (0.27, 0.33, 0.68),
    "Importance": (0.29, 0.35, 0.73),
    "Entropic, paper()": (0.29, 0.36, 0.73),
}
PAPER_50: dict[str, tuple[float, ...]] = {
    "Importance": (0.24, 0.60),
    "Entropic, paper()": (0.28, 0.70),
}
OURS = "Entropic, default"


def paper_table(results: Results, world: str) -> Table:
    """Return Table 1 (world ``a30``) or 2 (``a50``) of the paper with our runs."""
    title, published, metrics = {
        "a30": ("Table 1: 30 % noise", PAPER_30, ("survival", "hit", "density")),
        "a50": ("Table 2: 50 % noise", PAPER_50, ("survival", "density")),
    }[world]
    table = Table(title=f"{title} (mean ± std over seeds)", caption=settings_line())
    table.add_column("Method")
    for metric in metrics:
        table.add_column({"hit": "hit@3", "density": "info density"}.get(metric, metric))
        table.add_column("paper")
    for name in dict.fromkeys(["FIFO", *published, OURS, "Oracle"]):
        if name not in results.runs[world]:
            continue
        row = [name]
        for number, metric in enumerate(metrics):
            cell, values = results.cell(world, name, metric), published.get(name, ())
            row.append(f"{cell.mean:.3f} ± {cell.std:.3f}")
            row.append(f"{values[number]:.2f}" if values else "-")
        table.add_row(*row)
    return table


def settings_line() -> str:
    """Return the settings in which the measured default differs from the shipped one."""
    settings = ", ".join(f"{name}={value:g}" for name, value in OF_THE_WORLD.items())
    return f"{OURS}: as it ships, but for {settings}; the cold store alone is searched."


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
    return markdown_table(["policy", *worlds], world_rows(results, names, worlds))


def margin_table(results: Results) -> Table:
    """Return the margin of the default over the best classical policy, per world."""
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
