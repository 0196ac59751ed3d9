"""``python -m benchmarks attribution``: citations and checks of statements."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import typer

from benchmarks.datasets.evidence import read_dataset
from benchmarks.datasets.hub import data_file
from benchmarks.evidence.changed import CHANGES, TrueStatement, true_statements
from benchmarks.evidence.citations import CitedShares, cited_statements, shares_of, ways_of
from benchmarks.evidence.questions import sample

HELP = """How much of the evidence of gold answers is cited, and how changed statements are checked.

\b
  python -m benchmarks attribution squad=squad.json hotpotqa=hotpot.json mtrag=mtrag.json

Units are sentences, or turns of a conversation. Of MTRAG, statements of answers that repeat a
sentence are checked as they are and with a number, a name or a negation changed.
"""
_CHECKS: Final = ("consistent", "conflict", "unverified")


def attribution(
    data: Annotated[
        list[str],
        typer.Argument(metavar="NAME=FILE...", help="squad, hotpotqa, musique, locomo or mtrag."),
    ],
    limit: Annotated[int, typer.Option(min=1, help="Questions of each, a sample.")] = 70,
    statements: Annotated[int, typer.Option(min=1, help="Statements of MTRAG.")] = 200,
    part: Annotated[int, typer.Option(min=0, max=1, help="Half of the answers of MTRAG.")] = 1,
    out: Annotated[Path | None, typer.Option(help="JSON file; printed only without it.")] = None,
    seed: Annotated[int, typer.Option(help="Of every draw.")] = 7,
) -> None:
    """See `HELP`, which the command line shows."""
    from ecs_plugins.ranking.embedder import default_embedder
    from ecs_plugins.ranking.registry import make_ranker

    ranker = make_ranker("convex", None)
    ways = ways_of(default_embedder())
    written: dict[str, object] = {}
    for name, _, file in (each.partition("=") for each in data):
        path = data_file(file)
        if name == "mtrag":
            made = true_statements(path, statements, seed, part)
            table = checks_of(made)
            typer.echo("\n".join(report_of_checks(table)))
            written[name] = table
            continue
        chosen = sample(read_dataset(name, path), limit=limit, seed=seed)
        shares = shares_of(cited_statements(chosen, ranker), ways)
        typer.echo("\n".join(report_of_citations(name, shares)))
        written[name] = {way: asdict(each) for way, each in shares.items()}
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


def report_of_citations(name: str, shares: Mapping[str, CitedShares]) -> list[str]:
    """Return a row for each way of citing."""
    lines = [f"{name:12}{'n':>6}{'first':>9}{'right':>9}{'found':>9}"]
    for way, own in shares.items():
        means = "".join(f"{np.mean(each):9.3f}" for each in (own.first, own.right, own.found))
        lines.append(f"  {way:10}{len(own.first):6}{means}")
    return lines


def checks_of(statements: Sequence[TrueStatement]) -> dict[str, dict[str, int]]:
    """Return how many statements have each check, by what was changed."""
    from ecs_plugins.shaping.attribution.attributing import attribute_answer

    table: dict[str, Counter[str]] = defaultdict(Counter)
    for each in statements:
        for kind, text in [("true", each.text), *each.changed.items()]:
            attribution = attribute_answer(each.question, each.passages, text)
            cited = attribution.cited[:1]
            table[kind]["cited right"] += bool(cited) and cited[0] in each.relevant
            table[kind][str(attribution.check)] += 1
    return {kind: dict(table[kind]) for kind in ("true", *CHANGES)}


def report_of_checks(table: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return a row of the confusion matrix for each kind of statement."""
    lines = [f"{'':10}{'n':>5}" + "".join(f"{check:>12}" for check in (*_CHECKS, "cited right"))]
    for kind, counts in table.items():
        number = sum(counts.get(check, 0) for check in (*_CHECKS, "None"))
        shares = (counts.get(check, 0) / max(1, number) for check in (*_CHECKS, "cited right"))
        lines.append(f"{kind:10}{number:5}" + "".join(f"{share:12.3f}" for share in shares))
    return lines
