"""From rows to figures: means with intervals, paired comparisons, cost; ready for JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from benchmarks.evidence import metrics
from benchmarks.evidence.catalogue import PLAIN, RETRIEVERS, entry_of
from benchmarks.evidence.journal import QuestionRow
from benchmarks.evidence.questions import EvidenceQuestion
from benchmarks.evidence.statistics import (
    Difference,
    mean_interval,
    paired_difference,
)
from ecs_plugins.errors import InvalidInputError

DEPTHS = (1, 2, 5, 10)
"""The k of recall@k."""
HOP_DEPTHS = (2, 5, 10)
"""The k of second-hop recall."""
BASELINES = (PLAIN, "query_likelihood")
"""Signal that every other one must beat for its tokens."""

Measures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Measured:
    """Question with its measurements."""

    question: EvidenceQuestion
    row: QuestionRow


def measures(found: Measured, method: str) -> dict[str, float]:
    """Every metric of one method on one question; those that do not apply are left out.

    AUC and tokens per candidate token are of the pool that a method orders, so one that orders all
    units has neither.
    """
    row, question = found.row, found.question
    ordered = row.methods[method]
    order, evidence = ordered.order, question.evidence
    out = {
        "f1": metrics.evidence_f1(order, evidence),
        **{f"recall@{k}": metrics.recall_at(order, evidence, k) for k in DEPTHS},
        "ndcg@10": metrics.ndcg(order, evidence, 10),
        "selected_tokens": float(sum(row.tokens[i] for i in order[: len(evidence)])),
        "scored_tokens": float(ordered.scored_tokens),
        "seconds": ordered.seconds,
    }
    for k in HOP_DEPTHS:
        share = metrics.other_hops(order, evidence, question.hops, k)
        if share is not None:
            out[f"second_hop@{k}"] = share
    answered = entry_of(method).uses_answer and len(order) == len(row.pool)
    if answered or set(order) == set(row.pool):
        ranked = metrics.auc(order, evidence)
        if ranked is not None:
            out["auc"] = ranked
        candidates = sum(row.tokens[index] for index in order)
        if candidates:
            out["scored_per_candidate_token"] = ordered.scored_tokens / candidates
    for budget, answer in row.answers.get(method, {}).items():
        for name in ("f1", "em", "tokens"):
            out[f"answer_{name}@{budget}"] = float(answer[name])
    return out


def summarise(rows: Sequence[Measured], names: Sequence[str], *, seed: int = 42) -> dict[str, Any]:
    """Figures of a run.

    Args:
        rows: At least one; every one holds every method.
        names: Methods.
        seed: Of the bootstrap.

    Returns:
        ``methods`` (name -> metrics with intervals, over all and by category), ``comparisons``
        (method against reference on one metric, over all and by category) and
        ``answers_against_all`` (name -> budget -> what selection does to the reader's F1).

    Raises:
        InvalidInputError: There is no row.
    """
    if not rows:
        raise InvalidInputError("no question was measured with all of these methods")
    values = {name: [measures(found, name) for found in rows] for name in names}
    categories = sorted({found.question.category for found in rows if found.question.category})
    members = {
        category: [i for i, found in enumerate(rows) if found.question.category == category]
        for category in categories
    }
    ceiling = [
        metrics.recall_at(found.row.pool, found.question.evidence, len(found.row.pool))
        for found in rows
    ]
    every = list(range(len(rows)))
    subsets: dict[str | None, list[int]] = {None: every}
    if len(members) > 1:
        subsets.update(members)
    return {
        "questions": len(rows),
        "categories": {category: len(found) for category, found in members.items()},
        "units": fmean(found.row.units for found in rows),
        "evidence": fmean(len(found.question.evidence) for found in rows),
        "pool_recall": asdict(mean_interval(ceiling, seed=seed)),
        "pool_recall_by_category": {
            category: asdict(mean_interval([ceiling[i] for i in found], seed=seed))
            for category, found in members.items()
        },
        "candidate_tokens": fmean(sum(f.row.tokens[i] for i in f.row.pool) for f in rows),
        "methods": {
            name: {
                "kind": entry_of(name).kind,
                "about": entry_of(name).about,
                "uses_answer": entry_of(name).uses_answer,
                "failed": sum(bool(found.row.methods[name].error) for found in rows),
                "metrics": _means(values[name], every, seed),
                "by_category": {c: _means(values[name], m, seed) for c, m in members.items()},
            }
            for name in names
        },
        "comparisons": [
            compared
            for metric in _compared_metrics(values)
            for category, subset in subsets.items()
            for compared in _comparisons(values, metric, category, subset, seed)
        ],
        "answers_against_all": {name: _against_all(values[name], seed) for name in names},
    }


def _means(
    values: Sequence[Measures], subset: Sequence[int], seed: int
) -> dict[str, dict[str, float]]:
    chosen = [values[i] for i in subset]
    names = list(dict.fromkeys(name for found in chosen for name in found))
    return {
        name: asdict(mean_interval([found[name] for found in chosen if name in found], seed=seed))
        for name in names
    }


def _compared_metrics(values: Mapping[str, Sequence[Measures]]) -> list[str]:
    """Return the main metrics that every method has."""
    wanted = ("f1", "recall@2", "recall@5", "second_hop@5")
    there = [{name for found in rows for name in found} for rows in values.values()]
    shared = set.intersection(*there)
    answers = sorted(name for name in shared if name.startswith("answer_f1@"))
    return [name for name in wanted if name in shared] + answers


def _comparisons(
    values: Mapping[str, Sequence[Measures]],
    metric: str,
    category: str | None,
    subset: Sequence[int],
    seed: int,
) -> list[dict[str, Any]]:
    columns = {
        name: [rows[i][metric] for i in subset if metric in rows[i]]
        for name, rows in values.items()
    }
    if not all(columns.values()):
        return []
    return [
        {
            "metric": metric,
            "category": category,
            "method": name,
            "role": role,
            "reference": reference,
            **_plain(paired_difference(columns[name], columns[reference], seed=seed)),
        }
        for role, reference in _references(columns).items()
        for name in columns
        if name != reference and entry_of(name).kind != "bound"
    ]


def _against_all(values: Sequence[Measures], seed: int) -> dict[str, dict[str, float | None]]:
    """Budget -> answer F1 with it less answer F1 from the whole pool."""
    opening, whole = "answer_f1@", "answer_f1@all"
    budgets = {name for found in values for name in found if name.startswith(opening)} - {whole}
    out: dict[str, dict[str, float | None]] = {}
    for name in sorted(budgets):
        both = [found for found in values if name in found and whole in found]
        if both:
            ours, theirs = [found[name] for found in both], [found[whole] for found in both]
            out[name.removeprefix(opening)] = _plain(paired_difference(ours, theirs, seed=seed))
    return out


def _plain(difference: Difference) -> dict[str, float | None]:
    """For JSON, which has no infinity."""
    return {
        name: value if math.isfinite(value) else None for name, value in asdict(difference).items()
    }


def _references(columns: Mapping[str, Sequence[float]]) -> dict[str, str]:
    """Role -> method that others are compared with, chosen by its mean."""
    peers = [n for n in columns if entry_of(n).kind == "peer" and not entry_of(n).uses_answer]
    out = {
        "best retriever": _best([name for name in peers if name in RETRIEVERS], columns),
        "best peer": _best(peers, columns),
        "query likelihood": next((name for name in BASELINES if name in columns), None),
        "TF-IDF": "tfidf" if "tfidf" in columns else None,
    }
    return {role: name for role, name in out.items() if name is not None}


def _best(names: Iterable[str], columns: Mapping[str, Sequence[float]]) -> str | None:
    return max(names, key=lambda name: fmean(columns[name]), default=None)
