"""Markdown tables of evidence benchmarks, made from their JSON and from nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.tables import markdown_table
from ecs_plugins.errors import InvalidInputError, StorageError

Result = Mapping[str, Any]
FEWEST = 30
"""Below so many questions the tables say that they show nothing."""
FORMAT = "ecs_plugins.evidence_result"

_DECIDES = {"nq": "recall@2"}
"""Main metric of a benchmark if it is not F1 at k = |evidence|."""
_COLUMNS: Mapping[str, str] = {
    "F1": "f1",
    "R@2": "recall@2",
    "R@5": "recall@5",
    "R@10": "recall@10",
    "hop 2@5": "second_hop@5",
    "nDCG@10": "ndcg@10",
    "AUC": "auc",
    "tokens kept": "selected_tokens",
    "scored / candidate": "scored_per_candidate_token",
    "s": "seconds",
}


def load(path: Path) -> Result:
    """Read a result.

    Raises:
        StorageError: It cannot be read.
        InvalidInputError: It is no result of an evidence benchmark.
    """
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise InvalidInputError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(result, dict) or result.get("format") != FORMAT:
        raise InvalidInputError(
            f"{path} is no result of an evidence benchmark; name the JSON, or the folder, that "
            "'python -m benchmarks locomo' or one of its siblings wrote"
        )
    return result


def find_results(paths: Sequence[Path]) -> list[Path]:
    """Return the result files of paths and folders.

    Raises:
        InvalidInputError: There is none.
    """
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("*.json")) if path.is_dir() else [path]
        found += [file for file in inside if path.is_file() or _is_result(file)]
    if not found:
        raise InvalidInputError(
            f"no results in {', '.join(map(str, paths))}; run a bench first, or name its --out"
        )
    return found


def _is_result(path: Path) -> bool:
    try:
        load(path)
    except (InvalidInputError, StorageError):
        return False
    return True


def markdown(results: Sequence[Result]) -> str:
    """All tables of several results, one section each."""
    return "\n".join(_section(result) for result in results)


def title_of(result: Result) -> str:
    """Return a short description of the measurement."""
    provenance = result["provenance"]
    return f"{provenance['bench']} ({provenance['unit']})"


def by_quality(result: Result) -> list[str]:
    """Return the names of methods, best first by the main metric."""
    metric, methods = decisive(result), result["methods"]
    return sorted(methods, key=lambda name: -methods[name]["metrics"][metric]["mean"])


def decisive(result: Result) -> str:
    """The metric that decides this bench."""
    return _DECIDES.get(result["provenance"]["bench"], "f1")


def metric_name(metric: str) -> str:
    """A metric as tables and figures call it."""
    return {"f1": "evidence F1", "recall@2": "recall@2"}[metric]


def _section(result: Result) -> str:
    parts = [
        f"## {title_of(result)}",
        "",
        _about(result),
        "",
        _main(result),
        _categories(result),
        _comparisons(result, None),
        *(_comparisons(result, category) for category in result["categories"]),
        _answers(result),
    ]
    return "\n".join(part for part in parts if part is not None) + "\n"


def _about(result: Result) -> str:
    provenance, pool = result["provenance"], result["pool_recall"]
    lines = [
        f"{result['questions']} questions ({result['evidence']:.1f} of {result['units']:.0f} units "
        f"are evidence), pool of {provenance['pool_size']} by convex with {pool['mean']:.0%} of "
        f"the evidence and {result['candidate_tokens']:.0f} tokens. Model "
        f"{Path(provenance['model']).name}, {provenance['dtype']}; "
        f"{Path(provenance['embedder']).name}; seed {provenance['seed']}, part "
        f"{provenance['part']}; {provenance['created'][:10]}, version {provenance['version']}.",
        "\\* knows the answer or the evidence: not possible at run time. Bold: this package's. "
        "scored / candidate: tokens through the model per token of the pool.",
        *(f"Left out: {name}. {why}" for name, why in result["left_out"].items()),
    ]
    if provenance["bench"] == "counterfactual":
        lines.append("F1 is the share of questions whose true passage stands first; chance: 0.5.")
    lines += [
        f"{name} failed on {entry['failed']} questions; stage 1's order counts there."
        for name, entry in result["methods"].items()
        if entry["failed"]
    ]
    if result["questions"] < FEWEST:
        lines.append(f"Fewer than {FEWEST} questions: a check that it runs, and no evidence.")
    return "  \n".join(lines)


def _main(result: Result) -> str:
    methods = result["methods"]
    columns = {
        title: metric
        for title, metric in _COLUMNS.items()
        if any(metric in entry["metrics"] for entry in methods.values())
    }
    decides = decisive(result)
    rows = [
        [
            _label(result, name),
            *(_cell(m, methods[name]["metrics"].get(m), decides) for m in columns.values()),
        ]
        for name in by_quality(result)
    ]
    return markdown_table(["method", *columns], rows)


def _categories(result: Result) -> str | None:
    categories: Mapping[str, int] = result["categories"]
    if len(categories) < 2:
        return None
    metric = decisive(result)
    rows = [
        [
            _label(result, name),
            *(_interval(result["methods"][name]["by_category"][c][metric]) for c in categories),
        ]
        for name in by_quality(result)
    ]
    pools = result["pool_recall_by_category"]
    rows.append(["in the pool", *(_interval(pools[category]) for category in categories)])
    head = [f"{category} ({count})" for category, count in categories.items()]
    return f"{metric_name(metric)} by category\n\n" + markdown_table(["method", *head], rows)


def _comparisons(result: Result, category: str | None) -> str | None:
    metric = decisive(result)
    found = [
        row
        for row in result["comparisons"]
        if row["metric"] == metric and row["category"] == category
    ]
    roles: dict[str, list[str]] = {}
    for row in found:
        named = roles.setdefault(row["reference"], [])
        if row["role"] not in named:
            named.append(row["role"])
    cells = {(row["method"], row["reference"]): _difference(row) for row in found}
    rows = [
        [_label(result, name), *(cells.get((name, reference), "") for reference in roles)]
        for name in by_quality(result)
        if any((name, reference) in cells for reference in roles)
    ]
    if not rows:
        return None
    of = "" if category is None else f", {category}"
    head = [f"against {reference} ({', '.join(named)})" for reference, named in roles.items()]
    return (
        f"Difference of {metric_name(metric)}{of}: absolute and relative with 95 % "
        "intervals, wins / losses / ties\n\n" + markdown_table(["method", *head], rows)
    )


def _answers(result: Result) -> str | None:
    methods = result["methods"]
    budgets = {
        name.partition("@")[2]: None
        for entry in methods.values()
        for name in entry["metrics"]
        if name.startswith("answer_f1@")
    }
    if not budgets:
        return None
    head, rows = ["method"], [[_label(result, name)] for name in by_quality(result)]
    for budget in budgets:
        head += [f"F1@{budget}", f"EM@{budget}", f"tokens@{budget}"]
        compared = any(budget in found for found in result["answers_against_all"].values())
        head += [f"F1@{budget} - F1@all"] * compared
        for row, name in zip(rows, by_quality(result), strict=True):
            metrics = methods[name]["metrics"]
            row += [
                _cell(metric, metrics.get(metric))
                for metric in (f"answer_{kind}@{budget}" for kind in ("f1", "em", "tokens"))
            ]
            if compared:
                found = result["answers_against_all"][name].get(budget)
                row.append("" if found is None else _absolute(found))
    return "Answers of the same model from what is kept, by budget\n\n" + markdown_table(head, rows)


def _label(result: Result, name: str) -> str:
    entry = result["methods"][name]
    label = f"{name} \\*" if entry["uses_answer"] else name
    return f"**{label}**" if entry["kind"] == "ours" else label


def _cell(metric: str, found: Mapping[str, float] | None, decides: str = "f1") -> str:
    if found is None:
        return ""
    if metric in ("f1", decides) or metric.startswith(("answer_f1", "answer_em")):
        return _interval(found)
    if "tokens" in metric:
        return f"{found['mean']:.0f}"
    return f"{found['mean']:.2f}"


def _interval(found: Mapping[str, float] | None) -> str:
    if found is None:
        return ""
    return f"{found['mean']:.3f} [{found['low']:.3f}, {found['high']:.3f}]"


def _difference(row: Mapping[str, Any]) -> str:
    return (
        f"{_absolute(row)}; "
        f"{_percent(row['relative'])} [{_percent(row['relative_low'])}, "
        f"{_percent(row['relative_high'])}]; {row['wins']} / {row['losses']} / {row['ties']}"
    )


def _absolute(row: Mapping[str, Any]) -> str:
    return f"{row['mean']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]"


def _percent(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:+.0%}"
