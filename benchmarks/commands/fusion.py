"""``python -m benchmarks fusion``: the learned numbers of the default, and its table."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

HELP = """Record likelihoods, fit the weights and the probability, and compare with baselines.

\b
  python -m benchmarks fusion --journal DIR --limit 60 \\
    --data faq=faq.json --data mtrag=mtrag.json --data squad=squad.json \\
    --data hotpotqa=hotpot.json --data musique=musique.json --data locomo=locomo.json \\
    --out ecs_plugins/ranking/learned.json

help, chats and groups, the project's own, always count. Learned are the numbers from sets whose
licence allows it, never from faq and locomo. What the journal holds is not computed again;
--minutes bounds the recording.
"""
LICENCES = {
    "help": "the project's own",
    "chats": "the project's own",
    "groups": "the project's own",
    "mtrag": "Apache-2.0",
    "squad": "CC BY-SA 4.0",
    "hotpotqa": "CC BY-SA 4.0",
    "musique": "CC BY 4.0",
}
"""Sets that numbers are learned from."""
LEAST = 0.025
"""The documented value of ``min_probability``."""


def fusion(
    journal: Annotated[Path, typer.Option(help="Folder of the recorded likelihoods.")],
    data: Annotated[list[str] | None, typer.Option(help="NAME=FILE of a data set.")] = None,
    limit: Annotated[int, typer.Option(min=2, help="Questions of each set.")] = 60,
    minutes: Annotated[float, typer.Option(help="Time for recording; 0 records nothing.")] = 0.0,
    out: Annotated[Path | None, typer.Option(help="Where the learned numbers go.")] = None,
    seed: Annotated[int, typer.Option(help="Of the sample.")] = 42,
) -> None:
    """Run the command that `HELP` describes."""
    from benchmarks.datasets.evidence import read_dataset
    from benchmarks.datasets.own_words import READERS, read_own_words
    from benchmarks.evidence import fusion as measured
    from benchmarks.evidence.questions import EvidenceQuestion, sample

    questions: dict[str, list[EvidenceQuestion]] = {}
    released = [(name, "") for name in ("help", "chats", "groups")]
    for name, path in [*(each.split("=", 1) for each in data or ()), *released]:
        if name in READERS:
            found = read_own_words(name, Path(path) if path else None)
        else:
            found = read_dataset(name, path)
        questions[name] = sample(found, seed=seed)
    journal.mkdir(parents=True, exist_ok=True)
    if minutes:
        _record(questions, journal, limit, minutes)
    lists: dict[str, list[measured.Listed]] = {}
    for name, own in questions.items():
        rows = measured.read_rows(journal / f"{name}.jsonl")
        pairs = [(each, rows[each.id]) for each in own if each.id in rows]
        if len(pairs) > 1:
            lists[name] = [measured.listed(*pair) for pair in pairs]
    learned_from = [name for name in lists if name in LICENCES]
    typer.echo(_table(measured, lists, learned_from))
    if out is not None:
        sets = [lists[name] for name in learned_from]
        weights = measured.fit_weights(sets, signal=True)
        rankers = measured.fit_weights(sets, signal=False)
        fitted = {
            "version": 1,
            "data": {
                name: {"licence": LICENCES[name], "questions": len(lists[name])}
                for name in learned_from
            },
            "weights": {
                "rankers": {name: list(weight) for name, weight in rankers.items()},
                "signal": {name: list(weight) for name, weight in weights.items()},
            },
            "probability": measured.fit_probability(sets, weights),
        }
        out.write_text(json.dumps(fitted, indent=1) + "\n", encoding="utf-8")


def _record(questions: Any, journal: Path, limit: int, minutes: float) -> None:
    """Record the questions that the journal lacks, a few of each set at a time."""
    from benchmarks.evidence import fusion as measured
    from ecs_plugins.lm import LocalLM
    from ecs_plugins.ranking.embedder import default_embedder

    recorder = measured.Recorder(LocalLM.bundled(), default_embedder())
    until = time.monotonic() + 60.0 * minutes
    waiting = {}
    for name, own in questions.items():
        known = measured.read_rows(journal / f"{name}.jsonl")
        waiting[name] = [each for each in own[:limit] if each.id not in known]
    while any(waiting.values()):
        for name, left in waiting.items():
            for question in left[:4]:
                if time.monotonic() > until:
                    return
                measured.append(journal / f"{name}.jsonl", recorder.record(question))
            del left[:4]


def _table(measured: Any, lists: Any, learned_from: list[str]) -> str:
    """Return Markdown tables; weights never saw the questions that they are measured on."""
    import numpy as np

    from benchmarks.tables import markdown_table

    rows: list[list[str]] = []
    told: list[list[str]] = []
    for name, own in lists.items():
        by_method: dict[str, list[tuple[int, dict[str, float]]]] = {}
        probability: list[tuple[int, dict[str, float]]] = []
        for half in (0, 1):
            learning = [lists[other][half::2] for other in learned_from]
            weights = measured.fit_weights(learning, signal=True)
            rankers = measured.fit_weights(learning, signal=False)
            fit = measured.fit_probability(learning, weights)
            held_out = own[1 - half :: 2]
            for method, order in measured.orders(weights, rankers).items():
                figures = measured.figures(held_out, order)
                by_method.setdefault(method, []).append((len(held_out), figures))
            probability.append(
                (len(held_out), measured.probabilities(held_out, weights, fit, LEAST))
            )

        def mean(parts: Any, key: str) -> str:
            return f"{np.average([f[key] for _, f in parts], weights=[n for n, _ in parts]):.2f}"

        for method, parts in by_method.items():
            keys = ("F1", "recall of five", "first")
            rows.append([name, str(len(own)), method, *(mean(parts, key) for key in keys)])
        told.append([name, *(mean(probability, key) for key in probability[0][1])])
    heads = list(probability[0][1])
    first = markdown_table(["set", "n", "method", "F1", "recall of five", "first"], rows)
    return f"{first}\n\n{markdown_table(['set', *heads], told)}"
