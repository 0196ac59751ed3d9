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

BOWS = (0, -130, 130, -260, 260)
"""How far a bow may be drawn aside, the best first."""
STEPS = 40
"""Points of a curve that are looked at."""
MARGIN = 4
"""Pixels that a curve keeps from the side of a box."""

Arrows = Sequence[tuple[str, str]]
Place = tuple[float, float]


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
    places: dict[str, Place] = {}
    for level, names in enumerate(levels):
        left = (widest - len(names)) / 2
        for number, name in enumerate(names):
            places[name] = ((left + number + 0.5) * ACROSS, level * DOWN + HEIGHT)
    boxes = list(places.values())
    parts = [_arrow(places[source], places[target], boxes) for source, target in arrows]
    parts += [_box(name, *place) for name, place in places.items()]
    size = f"0 0 {widest * ACROSS} {(len(levels) - 1) * DOWN + 2 * HEIGHT}"
    head = '<marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
    tip = f'<defs>{head}<path d="M0,1 L8,4 L0,7 z" fill="currentColor"/></marker></defs>'
    return f'<svg viewBox="{size}" style="max-width: 100%" role="img">{tip}{"".join(parts)}</svg>'


def _arrow(source: Place, target: Place, boxes: Sequence[Place]) -> str:
    """A line, bowed as little as it has to be to cross no box."""
    start = (source[0], source[1] + HEIGHT / 2)
    end = (target[0], target[1] - HEIGHT / 2)
    middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
    bends = [(middle[0] + bow, middle[1]) for bow in BOWS]
    free = [bend for bend in bends if not _crosses(start, bend, end, boxes)]
    bend = free[0] if free else middle
    way = f"M{start[0]},{start[1]} Q{bend[0]},{bend[1]} {end[0]},{end[1]}"
    look = 'fill="none" stroke="currentColor" opacity="0.6" marker-end="url(#tip)"'
    return f'<path d="{way}" {look}/>'


def _crosses(start: Place, bend: Place, end: Place, boxes: Sequence[Place]) -> bool:
    """Whether a quadratic curve runs into a box, but for those at its ends."""
    for step in range(1, STEPS):
        part = step / STEPS
        weights = ((1 - part) ** 2, 2 * part * (1 - part), part**2)
        x = sum(w * place[0] for w, place in zip(weights, (start, bend, end), strict=True))
        y = sum(w * place[1] for w, place in zip(weights, (start, bend, end), strict=True))
        for left, top in boxes:
            if abs(x - left) < WIDTH / 2 + MARGIN and abs(y - top) < HEIGHT / 2:
                return True
    return False


def _box(name: str, x: float, y: float) -> str:
    corner = f'x="{x - WIDTH / 2}" y="{y - HEIGHT / 2}" width="{WIDTH}" height="{HEIGHT}" rx="4"'
    box = f'<rect {corner} fill="var(--md-default-bg-color, white)" stroke="currentColor"/>'
    middle = f'x="{x}" y="{y + 4}" text-anchor="middle" font-size="13" fill="currentColor"'
    return f"{box}<text {middle}>{html.escape(name)}</text>"


def drawn(markdown: str) -> str:
    """A page with its flowcharts drawn."""
    return FLOWCHART.sub(lambda block: drawing(ARROW.findall(block[1])), markdown)
