"""`ModelDiagnostics` in words, for people and logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ecs_plugins.shaping.diagnostics.result import ModelDiagnostics
    from ecs_plugins.shaping.diagnostics.statistics import Distribution
    from ecs_plugins.shaping.diagnostics.verdicts import SignalDiagnostics


def report(found: ModelDiagnostics) -> str:
    """A paragraph per signal, the best first."""
    best = found.signals[0]
    lines = [
        f"{found.model} is {found.verdict} for context shaping, at best with {best.signal}.",
        f"Measured {found.created} on {found.examples} questions with {found.passages} passages, "
        f"{found.evidence} of them evidence (ecs-plugins {found.package_version}, seed "
        f"{found.seed}, data {found.data_hash[:12]}).",
    ]
    for signal in found.signals:
        lines += ["", *_paragraph(signal)]
    return "\n".join(lines)


def _paragraph(found: SignalDiagnostics) -> list[str]:
    lines = [f"{found.signal}: {found.verdict}"]
    lines += [f"  - {reason}" for reason in found.reasons]
    if (threshold := found.threshold) is not None:
        share = found.unrelated_above(threshold.value)
        passing = "" if share is None else f"; {share:.0%} of unrelated passages pass"
        lines.append(
            f"  threshold {threshold.value:.3g} {found.unit} "
            f"({threshold.low:.3g} to {threshold.high:.3g} over folds): on held-out questions "
            f"precision {threshold.precision:.2f}, recall {threshold.recall:.2f}{passing}"
        )
    else:
        lines.append("  no threshold: the signal only ranks; set top_k or max_tokens")
    for name in ("evidence", "distractors", "unrelated"):
        part: Distribution | None = getattr(found, name)
        if part is not None:
            lines.append(f"  {name:<12}{_described(part)}")
    noise = found.noise
    plain = "" if noise.reference is None else f", against the reference {noise.reference:.2g}"
    lines.append(f"  noise       one by one {noise.alone:.2g}{plain} {found.unit}")
    lines.append(f"  cost        {found.tokens:.1f} tokens computed per passage token")
    if found.unscored:
        lines.append(f"  unscored    {found.unscored} passages")
    return lines


def _described(found: Distribution) -> str:
    low, middle, high = (found.quantile(share) for share in (0.05, 0.5, 0.95))
    return (
        f"{found.mean:+.3f} ± {found.sd:.3f}, 5 / 50 / 95 %: "
        f"{low:+.3f} / {middle:+.3f} / {high:+.3f} ({found.count})"
    )
