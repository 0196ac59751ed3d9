"""The demo's figure: recall against k, and recall where words match and where they do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ecs_plugins.errors import MissingExtraError

# Okabe and Ito's palette, which stays apart for colour-blind readers; ECS stands out.
_COLOURS = {
    "TF-IDF": "#999999",
    "BM25": "#56B4E9",
    "dense": "#009E73",
    "hybrid": "#E69F00",
    "ECS": "#D55E00",
}


def save_evidence_figure(
    path: Path,
    depths: Sequence[int],
    curves: Mapping[str, Sequence[float]],
    splits: Mapping[str, Mapping[str, float]],
    *,
    k: int,
    questions: int,
) -> Path:
    """Draw and save the figure; needs no display.

    Args:
        path: Where the PNG goes.
        depths: Values of k.
        curves: Method -> mean recall at each of ``depths``.
        splits: Method -> kind of question -> mean recall at ``k``.
        k: Where the bars are taken.
        questions: How many questions the means are over.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingExtraError("the demo's figure", "matplotlib", "plots") from error

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    for method, values in curves.items():
        strong = method == "ECS"
        left.plot(
            depths,
            values,
            color=_COLOURS.get(method),
            label=method,
            marker="o",
            markersize=5 if strong else 3.5,
            linewidth=2.6 if strong else 1.5,
            zorder=3 if strong else 2,
        )
    left.axvline(k, color="#cccccc", linewidth=1, zorder=1)
    left.set(xlabel="turns kept (k)", ylabel="evidence found (recall)", ylim=(0, 1))
    left.set_xticks(list(depths))
    left.set_title(f"Evidence found in a long conversation, {questions} questions", fontsize=10)
    left.legend(frameon=False, loc="upper left", fontsize=9)

    kinds = list(dict.fromkeys(kind for split in splits.values() for kind in split))
    width = 0.8 / max(1, len(splits))
    for position, (method, split) in enumerate(splits.items()):
        shift = (position - (len(splits) - 1) / 2) * width
        bars = right.bar(
            [index + shift for index in range(len(kinds))],
            [split.get(kind, 0.0) for kind in kinds],
            width * 0.92,
            color=_COLOURS.get(method),
            label=method,
        )
        right.bar_label(bars, fmt="%.2f", fontsize=7, padding=1)
    right.set(ylabel=f"recall at k = {k}", ylim=(0, 1))
    right.set_xticks(range(len(kinds)), [f"question {kind}\nwith its evidence" for kind in kinds])
    right.set_title("Where words match, and where they do not", fontsize=10)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#eeeeee")
        axes.set_axisbelow(True)
    figure.savefig(path, dpi=150)
    return path
