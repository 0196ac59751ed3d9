"""One HTML page for a frontier: figures, tables and a small calculator, nothing from elsewhere.

The page loads no font, script, style or image: it can be mailed, archived and opened offline.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping, Sequence

from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.explain import amount
from ecs_plugins.frontier.figures import colours
from ecs_plugins.frontier.lookup import regimes

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2rem auto;
  padding: 0 1rem; background: #fff; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.note { color: #666; } figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #e4e4e4; text-align: left; }
th { font-weight: 600; color: #555; } td.n, th.n { text-align: right; }
.dot { display: inline-block; width: .7em; height: .7em; border-radius: 50%; margin-right: .4em; }
.ask { background: #f6f7f8; border-radius: .5rem; padding: 1rem; }
.ask label { display: block; margin: .3rem 0; }
.ask input[type=range] { width: min(24rem, 60%); vertical-align: middle; }
#choice { font-size: 1.1rem; margin-top: .6rem; }
"""

_SCRIPT = """
const points = JSON.parse(document.getElementById('points').textContent);
const n = document.getElementById('n'), f = document.getElementById('f');
function show() {
  const reuse = Math.round(Math.pow(1000, n.value / 100)), target = +f.value;
  document.getElementById('nv').textContent = reuse;
  document.getElementById('fv').textContent = target.toFixed(3);
  let best = null, full = 0;
  for (const p of points) {
    const cost = p.stage2 + p.stage1 / reuse;
    full = Math.max(full, p.stage1 === 0 ? cost : 0);
    if (p.f1 >= target && (!best || cost < best.cost)) best = {cost, p};
  }
  document.getElementById('choice').textContent = best
    ? best.p.label + ': F1 ' + best.p.f1.toFixed(3) + ' for ' + best.cost.toPrecision(4) +
      ' ' + document.body.dataset.unit + ' per query, ' +
      Math.round(100 * (1 - best.cost / full)) + ' % below the dearest without preparation'
    : 'nothing measured reaches this target';
}
n.oninput = f.oninput = show; show();
"""


def html_page(
    frontier: EfficiencyFrontier,
    figures: Mapping[str, tuple[str, str]],
    reuses: Sequence[float],
) -> str:
    """The page.

    Args:
        frontier: What was measured.
        figures: Name -> (caption, SVG text).
        reuses: The N of the tables.
    """
    record = frontier.provenance
    about = [
        f"{record.questions} questions" if record.questions else "",
        f"data {record.data}" if record.data else "",
        ", ".join(f"{role}: {name}" for role, name in record.models.items()),
        record.created,
        f"ecs_plugins {record.package_version}" if record.package_version else "",
    ]
    parts = [
        "<h1>Efficiency Frontier</h1>",
        f'<p class="note">{_text(" · ".join(part for part in about if part))}</p>',
        _calculator(frontier),
        *(f"<h2>{_text(caption)}</h2><figure>{svg}</figure>" for caption, svg in figures.values()),
        "<h2>Regimes: the dominant strategy by target F1 and reuse</h2>",
        _regimes(frontier, reuses),
        "<h2>What routing saves</h2>",
        _savings(frontier, reuses),
        "<h2>Where the choice changes as w rises</h2>",
        _transitions(frontier, reuses),
        "<h2>Everything that was measured</h2>",
        _points(frontier, reuses),
    ]
    if frontier.dropped:
        parts += ["<h2>Given up early</h2>", _dropped(frontier)]
    title = f"Efficiency Frontier {record.data}".strip()
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head>"
        f'<body data-unit="{_text(frontier.unit)}">{"".join(parts)}</body></html>\n'
    )


def _calculator(frontier: EfficiencyFrontier) -> str:
    data = [
        {"label": p.label, "f1": p.f1, "stage1": p.stage1, "stage2": p.stage2}
        for p in frontier.routable
    ]
    # "<" would end the script element if a label held "</script>".
    payload = json.dumps(data).replace("<", "\\u003c")
    levels = [point.f1 for point in frontier.routable]
    low, high = math.floor(1000 * min(levels)) / 1000, math.floor(1000 * max(levels)) / 1000
    middle = (low + high) / 2
    return (
        '<div class="ask"><label>reuse N <input id="n" type="range" min="0" max="100" value="33">'
        ' <b id="nv"></b></label><label>target F1 '
        f'<input id="f" type="range" min="{low}" max="{high}" step="0.001" value="{middle}">'
        ' <b id="fv"></b></label><div id="choice"></div></div>'
        f'<script type="application/json" id="points">{payload}</script>'
        f"<script>{_SCRIPT}</script>"
    )


def _regimes(frontier: EfficiencyFrontier, reuses: Sequence[float]) -> str:
    head = ["regime", "target F1", *(f"N = {reuse:g}" for reuse in reuses)]
    rows = []
    for regime in regimes(frontier, reuses):
        cells = [_text(regime.name), f"{regime.f1_low:.3f} to {regime.f1_high:.3f}"]
        for reuse in reuses:
            choice = regime.choices[reuse]
            cost = amount(choice.effective, frontier.unit)
            share = "" if choice.share > 0.995 else f", {choice.share:.0%} of the range"
            cells.append(
                f"{_dot(frontier, choice.strategy)}{_text(choice.point.label)}"
                f'<br><span class="note">{_text(cost)}{share}</span>'
            )
        rows.append(cells)
    return _table(head, rows)


def _savings(frontier: EfficiencyFrontier, reuses: Sequence[float]) -> str:
    best = max(frontier.routable, key=lambda point: (point.f1, -point.stage2))
    base = next((p for p in frontier.routable if p.strategy == "full_context"), best)
    rows = []
    for target in sorted({point.f1 for point in frontier.non_dominated(reuses[-1])}):
        cells = [f"{target:.3f}"]
        for reuse in reuses:
            decision = frontier.cheapest(target, reuse)
            saved = 1 - decision.effective / base.effective(reuse)
            cells.append(
                f"{_dot(frontier, decision.strategy)}{_text(decision.label)}: "
                f"{_number(decision.effective)} ({saved:+.0%})"
            )
        rows.append(cells)
    note = (
        f'<p class="note">{_text(frontier.unit)} per query of the cheapest that reaches the '
        f"target, and what that saves against always {_text(base.label)}, whose F1 is "
        f"{base.f1:.3f}.</p>"
    )
    return note + _table(["target F1", *(f"N = {reuse:g}" for reuse in reuses)], rows)


def _transitions(frontier: EfficiencyFrontier, reuses: Sequence[float]) -> str:
    known = frontier.measurements is not None
    rows = []
    for reuse in reuses:
        for change in frontier.transitions(reuse, intervals=known):
            interval = "" if change.interval is None else str(change.interval)
            rows.append(
                [
                    f"{reuse:g}",
                    f"{change.weight:.4f}",
                    _text(interval),
                    f"{change.exchange_rate:.1%}",
                    _dot(frontier, change.before.strategy) + _text(change.before.label),
                    _dot(frontier, change.after.strategy) + _text(change.after.label),
                ]
            )
    head = ["N", "w", "95 % interval", "0.01 F1 is worth", "below", "above"]
    return _table(head, rows, numbers={0, 1, 2, 3})


def _points(frontier: EfficiencyFrontier, reuses: Sequence[float]) -> str:
    head = ["strategy", "F1", "95 % interval", "EM", "stage 1", "stage 2"]
    head += [f"N = {reuse:g}" for reuse in reuses]
    rows = []
    for point in sorted(frontier.points, key=lambda p: -p.f1):
        label = _text(point.label) + ("" if point.routable else " (upper bound)")
        rows.append(
            [
                _dot(frontier, point.strategy) + label,
                f"{point.f1:.3f}",
                _text(str(frontier.f1_interval(point))),
                "" if point.em is None else f"{point.em:.3f}",
                *(
                    _number(value)
                    for value in (
                        point.stage1,
                        point.stage2,
                        *(point.effective(reuse) for reuse in reuses),
                    )
                ),
            ]
        )
    return _table(head, rows, numbers=set(range(1, len(head))))


def _dropped(frontier: EfficiencyFrontier) -> str:
    rows = [
        [_text(f"{d.strategy} {dict(d.config)}"), str(d.questions), _text(d.reason)]
        for d in frontier.dropped
    ]
    return _table(["configuration", "questions", "why"], rows, numbers={1})


def _table(
    head: Sequence[str], rows: Sequence[Sequence[str]], numbers: set[int] | None = None
) -> str:
    right = numbers or set()

    def line(cells: Sequence[str], tag: str) -> str:
        marked = (
            f'<{tag} class="n">{cell}</{tag}>' if k in right else f"<{tag}>{cell}</{tag}>"
            for k, cell in enumerate(cells)
        )
        return f"<tr>{''.join(marked)}</tr>"

    body = "".join(line(row, "td") for row in rows)
    return (
        f'<div class="scroll"><table><thead>{line(head, "th")}</thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _dot(frontier: EfficiencyFrontier, strategy: str) -> str:
    return f'<span class="dot" style="background:{colours(frontier)[strategy]}"></span>'


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:.4g}"


def _text(value: str) -> str:
    return html.escape(value)
