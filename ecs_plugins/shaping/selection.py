"""From utilities to decisions: threshold, top-k, token budget and redundancy, in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.shaping.config import ShapingConfig
from ecs_plugins.shaping.redundancy import NearRepetitions
from ecs_plugins.shaping.utility import Verdict, verdict_of


@dataclass(frozen=True, slots=True)
class Scored:
    """What the model said of one passage.

    Attributes:
        utility: Nats, after the length penalty; finite.
        score: What it is ordered by.
        parts: The signal's parts.
    """

    utility: float
    score: float
    parts: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of one passage."""

    verdict: Verdict
    kept: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds the selection.

    Attributes:
        threshold: Nats; None if the signal only ranks.
        top_k: Passages; None is no limit.
        max_tokens: Tokens of the kept passages; None is no limit.
        unit: The signal's unit, for the reasons.
    """

    threshold: float | None
    top_k: int | None
    max_tokens: int | None
    unit: str

    @classmethod
    def of(cls, config: ShapingConfig, own: float | None, signal: str, unit: str) -> Limits:
        """The limits of a configuration and a signal whose own threshold is ``own``.

        Raises:
            ConfigurationError: ``acceptance="stream"`` with a signal that only ranks.
        """
        threshold = config.threshold if config.threshold is not None else own
        if threshold is None and config.acceptance == "stream":
            raise ConfigurationError(
                f'acceptance="stream" decides passage by passage and needs a threshold, which '
                f"the signal {signal!r} does not have: set threshold=..., or use "
                'acceptance="independent"'
            )
        return cls(threshold, config.effective_top_k, config.max_tokens, unit)

    def verdict(self, utility: float) -> Verdict:
        """By the threshold; without one, rank decides and nothing is said of the sign."""
        return Verdict.SELECTED if self.threshold is None else verdict_of(utility, self.threshold)

    def full(self, kept: int) -> bool:
        """Whether no further passage may be kept."""
        return self.top_k is not None and kept >= self.top_k

    def fits(self, spent: int, tokens: int) -> bool:
        """Whether a passage fits what is left of the budget."""
        return self.max_tokens is None or spent + tokens <= self.max_tokens

    def decide(self, scored: Scored, place: int, of: int) -> Decision:
        """The decision on a passage that is not redundant and has room."""
        verdict = self.verdict(scored.utility)
        if self.threshold is None:
            reason = f"selected by rank, place {place} of {of}: there is no threshold"
            return Decision(verdict, True, reason)
        value = f"{scored.utility:+.3f} {self.unit}"
        reasons = {
            Verdict.HELPS: f"{value} reach the threshold of {self.threshold:g}",
            Verdict.NEUTRAL: f"{value} lie within ±{self.threshold:g}",
            Verdict.HURTS: f"{value} make the answer less likely",
        }
        return Decision(verdict, verdict is Verdict.HELPS, reasons[verdict])

    def crowded_out(self, place: int, reason: str) -> Decision:
        """The decision on a passage that would be kept if there were room."""
        if self.threshold is None:
            return Decision(Verdict.NEUTRAL, False, f"place {place}: {reason}")
        return Decision(
            Verdict.HELPS, False, f"reaches the threshold of {self.threshold:g}, but {reason}"
        )


def by_score(scored: Mapping[int, Scored]) -> list[int]:
    """Indices, best first; ties by index."""
    return sorted(scored, key=lambda index: (-scored[index].score, index))


def redundant(index: int) -> Decision:
    """The decision on a passage that repeats another one."""
    return Decision(Verdict.REDUNDANT, False, f"repeats passage {index}")


def select(
    scored: Mapping[int, Scored],
    tokens: Sequence[int],
    limits: Limits,
    repetitions: NearRepetitions,
    kept: Sequence[int] = (),
) -> dict[int, Decision]:
    """Decide on passages from the best down.

    A passage that does not fit the budget is passed over, and a smaller one may still fit.

    Args:
        scored: Passage index -> what the model said.
        tokens: Tokens of every passage, by index.
        limits: Threshold, top-k and budget.
        repetitions: Finds near repetitions of what is kept.
        kept: What is kept already and counts against the limits.

    Returns:
        A decision for every key of ``scored``.
    """
    taken = list(kept)
    spent = sum(tokens[index] for index in taken)
    decisions: dict[int, Decision] = {}
    for place, index in enumerate(by_score(scored), start=len(taken) + 1):
        decision = limits.decide(scored[index], place, len(scored) + len(kept))
        if decision.kept:
            repeated = repetitions.of(index, taken)
            if repeated is not None:
                decision = redundant(repeated)
            elif limits.full(len(taken)):
                decision = limits.crowded_out(place, f"top_k is {limits.top_k}")
            elif not limits.fits(spent, tokens[index]):
                decision = limits.crowded_out(
                    place,
                    f"its {tokens[index]} tokens exceed what is left of the budget "
                    f"({max(0, (limits.max_tokens or 0) - spent)} of {limits.max_tokens})",
                )
            else:
                taken.append(index)
                spent += tokens[index]
        decisions[index] = decision
    return decisions
