"""Flowcharts of the docs as drawings of the page itself: nothing is fetched, no script runs."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

FLOWCHART = re.compile(r"```mermaid\nflowchart TD\n(.*?)```", re.DOTALL)
ARROW = re.compile(r"(\w+) --> (\w+)")
WIDTH, HEIGHT = 120, 30
"""Of a box, in pixels."""
ACROSS, DOWN = 150, 80
"""From one box to the next."""

Arrows = Sequence[tuple[str, str]]


def rows(arrows: Arrows) -> list[list[str]]:
    """Boxes by their longest way from a box that no arrow leads to."""
    names = list(dict.fromkeys(name for arrow in arrows for name in arrow))
    depth = dict.fromkeys(names, 0)
    for _ in names:  # no way is longer than there are boxes
        for source, target in arrows:
            depth[target] = max(depth[target], depth[source] + 1)
    found: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    for name in names:
        found[depth[name]].append(name)
    return found


def drawing(arrows: Arrows) -> str:
    """An SVG in the colours of the text around it."""
    levels = rows(arrows)
    widest = max(map(len, levels))
    places: dict[str, tuple[float, float]] = {}
    for level, names in enumerate(levels):
        left = (widest - len(names)) / 2
        for number, name in enumerate(names):
            places[name] = ((left + number + 0.5) * ACROSS, level * DOWN + HEIGHT)
    parts = [_arrow(places[source], places[target]) for source, target in arrows]
    parts += [_box(name, *place) for name, place in places.items()]
    size = f"0 0 {widest * ACROSS} {(len(levels) - 1) * DOWN + 2 * HEIGHT}"
    head = '<marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
    tip = f'<defs>{head}<path d="M0,1 L8,4 L0,7 z" fill="currentColor"/></marker></defs>'
    return f'<svg viewBox="{size}" style="max-width: 100%" role="img">{tip}{"".join(parts)}</svg>'


def _arrow(source: tuple[float, float], target: tuple[float, float]) -> str:
    half = HEIGHT / 2
    ends = f'x1="{source[0]}" y1="{source[1] + half}" x2="{target[0]}" y2="{target[1] - half}"'
    return f'<line {ends} stroke="currentColor" opacity="0.6" marker-end="url(#tip)"/>'


def _box(name: str, x: float, y: float) -> str:
    corner = f'x="{x - WIDTH / 2}" y="{y - HEIGHT / 2}" width="{WIDTH}" height="{HEIGHT}" rx="4"'
    box = f'<rect {corner} fill="var(--md-default-bg-color, white)" stroke="currentColor"/>'
    middle = f'x="{x}" y="{y + 4}" text-anchor="middle" font-size="13" fill="currentColor"'
    return f"{box}<text {middle}>{html.escape(name)}</text>"


def drawn(markdown: str) -> str:
    """A page with its flowcharts drawn."""
    return FLOWCHART.sub(lambda block: drawing(ARROW.findall(block[1])), markdown)
