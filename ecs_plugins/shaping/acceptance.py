"""Acceptance of scored passages: limits, repetitions, and two ways to accept.

``independent`` scores once against the given context. ``stream`` is Algorithm 1: passages in the
given order, and an accepted one joins the context C.

A passage repeats another one by its text, or nearly, by the cosine of their TF-IDF vectors. Near
repetitions have a guard that the paper does not have: a passage that brings a number or a
name which the kept one lacks is never redundant. "The meeting is on the 14th in Rome" and
"... on the 15th in Oslo" are all but equal for a cosine, and the difference is what matters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ecs_plugins.common.text import names_and_numbers
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.ranking.lexical import tfidf_matrix
from ecs_plugins.shaping.config import ShapingConfig
from ecs_plugins.shaping.passages import TokenCounter
from ecs_plugins.shaping.result import Verdict
from ecs_plugins.shaping.signals.base import Signal, UnitUtility, by_score

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision on one passage; ``cut_by`` names the setting that cut it, if one did."""

    verdict: Verdict
    kept: bool
    reason: str
    cut_by: str = ""


class Sizes(NamedTuple):
    """Tokens and characters of every passage."""

    tokens: Sequence[int]
    characters: Sequence[int]


class Full(NamedTuple):
    """The setting that is used up, and a sentence about it."""

    setting: str
    reason: str


def _no_tokens(texts: Sequence[str]) -> list[int]:
    return [0] * len(texts)


@dataclass(frozen=True)
class Budget:
    """Largest size of the kept text. The best piece stays even if it alone is longer.

    Attributes:
        characters: Largest number of characters.
        tokens: Largest number of tokens, as ``count_tokens`` counts them.
        limits: The settings that set it, with their values.
    """

    characters: float = math.inf
    tokens: float = math.inf
    count_tokens: TokenCounter = _no_tokens
    limits: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        config: ShapingConfig,
        count_tokens: TokenCounter,
        total: int,
    ) -> Budget:
        """Return the budget of a configuration for passages of ``total`` characters."""
        limits: dict[str, str] = {}
        characters = tokens = math.inf
        if config.keep_share is not None:
            limits["keep_share"] = f"{config.keep_share:.0%}"
            characters = config.keep_share * total
        if config.max_characters is not None:
            limits["max_characters"] = str(config.max_characters)
            characters = min(characters, config.max_characters)
        if config.max_tokens is not None:
            limits["max_tokens"] = str(config.max_tokens)
            tokens = config.max_tokens
        return cls(characters, tokens, count_tokens, limits)

    def __str__(self) -> str:
        return " and ".join(f"{name} of {limit}" for name, limit in self.limits.items())

    def is_exceeded_by(self, texts: Sequence[str]) -> bool:
        """Return True if texts take more than the characters or tokens that were set."""
        if sum(map(len, texts)) > self.characters:
            return True
        return self.tokens < math.inf and sum(self.count_tokens(texts)) > self.tokens

    def no_room(
        self,
        kept: Sequence[int],
        index: int,
        sizes: Sizes,
    ) -> Full | None:
        """Return the limit that a passage would exceed with the others; None if it fits."""
        by_characters = " and ".join(name for name in self.limits if name != "max_tokens")
        for setting, unit, limit, size in (
            ("max_tokens", "tokens", self.tokens, sizes.tokens),
            (by_characters, "characters", self.characters, sizes.characters),
        ):
            left = max(0.0, limit - sum(size[other] for other in kept))
            if size[index] > left:
                reason = f"its {size[index]} {unit} exceed the {left:.0f} that are left of "
                return Full(setting, f"{reason}{setting} ({limit:.0f} {unit})")
        return None


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the selection; None is no limit. Without a threshold, a signal only ranks.

    Attributes:
        threshold: Least utility, in the signal's unit.
        top_k: How many passages are kept at most.
        unit: Of the utility.
        budget: Of the text that stays.
        min_probability: Least probability; it takes the place of the threshold.
    """

    threshold: float | None
    top_k: int | None
    unit: str
    budget: Budget = Budget()
    min_probability: float | None = None

    @classmethod
    def of(
        cls,
        config: ShapingConfig,
        signal: Signal,
        budget: Budget,
    ) -> Limits:
        """Return the limits of a configuration, and of a signal with a threshold of its own.

        Args:
            config: The settings.
            signal: The signal.
            budget: Of the text that stays.

        Raises:
            ConfigurationError: Passages are decided on one by one and there is no threshold, or
                there is one of known answers and the answer is not known.
        """
        threshold = config.threshold
        least = None
        if not signal.needs_answer:
            check_threshold(config)
            least = config.min_probability
        if threshold is None:
            threshold = signal.threshold
        if threshold is None and config.acceptance == "stream":
            raise ConfigurationError(
                f'acceptance="stream" decides passage by passage and needs a threshold, which '
                f"the signal {signal.name!r} does not have: set threshold=..., or use "
                'acceptance="independent"'
            )
        if config.unit == "sentence":  # the budget is of the sentences that stay
            budget = Budget()
        return cls(threshold, config.effective_top_k, signal.unit, budget, least)

    def no_room(
        self,
        kept: Sequence[int],
        index: int,
        sizes: Sizes,
    ) -> Full | None:
        """Return the limit that forbids to keep a passage with the others; None if it may be kept.

        The best passage may be longer than a budget.
        """
        if self.top_k is not None and len(kept) >= self.top_k:
            return Full("top_k", f"top_k is {self.top_k}")
        return self.budget.no_room(kept, index, sizes) if kept else None

    def decide(
        self,
        scored: UnitUtility,
        place: int,
        of: int,
    ) -> Decision:
        """Return the decision on a passage that is not redundant and has room."""
        if self.min_probability is not None:
            return self._by_probability(scored.probability)
        if self.threshold is None:
            reason = f"selected by rank: place {place} of {of}"
            return Decision(Verdict.SELECTED, True, reason)
        verdict = verdict_of(scored.utility, self.threshold)
        value = f"{scored.utility:+.3f} {self.unit}"
        reasons = {
            Verdict.HELPS: f"{value} reach the threshold of {self.threshold:g}",
            Verdict.NEUTRAL: f"{value} lie within ±{self.threshold:g}",
            Verdict.HURTS: f"{value} make the answer less likely",
        }
        helps = verdict is Verdict.HELPS
        return Decision(verdict, helps, reasons[verdict], "" if helps else "threshold")

    def _by_probability(self, probability: float | None) -> Decision:
        least = self.min_probability or 0.0
        if probability is None:
            raise ConfigurationError(
                "min_probability=... needs a probability, and none was fitted to this model and "
                "signal: fit one with ecs-plugins diagnose, or set top_k=..."
            )
        if probability >= least:
            reason = f"it helps with probability {probability:.2f}, at least {least:g}"
            return Decision(Verdict.HELPS, True, reason)
        reason = f"it helps with probability {probability:.2f}, less than {least:g}"
        return Decision(Verdict.NEUTRAL, False, reason, "min_probability")

    def crowded_out(self, place: int, full: Full) -> Decision:
        """Return the decision on a passage that would be kept if there were room."""
        verdict = Verdict.HELPS
        if self.min_probability is not None:
            reason = f"likely enough, but {full.reason}"
        elif self.threshold is None:
            verdict = Verdict.NEUTRAL
            reason = f"place {place}: {full.reason}"
        else:
            reason = f"reaches the threshold of {self.threshold:g}, but {full.reason}"
        return Decision(verdict, False, reason, full.setting)


def check_threshold(config: ShapingConfig) -> None:
    """Refuse a threshold of known answers where there is none and no probability takes its place.

    Raises:
        ConfigurationError: The threshold is for the signal that ``"auto"`` takes with an answer.
    """
    if config.threshold is None or config.min_probability is not None:
        return
    if config.signal == "auto":
        raise ConfigurationError(
            f"threshold={config.threshold:g} is in nats of a known answer, and there is none: "
            "pass answer=..., or say how likely a passage must help by min_probability=..., or "
            "name the signal whose threshold this is"
        )


def verdict_of(utility: float, threshold: float) -> Verdict:
    """`Verdict.HELPS` at or above the threshold, `Verdict.HURTS` below minus the threshold."""
    if utility >= threshold:
        return Verdict.HELPS
    return Verdict.HURTS if utility < -threshold else Verdict.NEUTRAL


def redundant(index: int, *, cut_by: str = "") -> Decision:
    """Return the decision on a passage that repeats another one, word for word or by a setting."""
    return Decision(Verdict.REDUNDANT, False, f"repeats passage {index}", cut_by)


def exact_repetitions(passages: Sequence[str], read: Sequence[str]) -> dict[int, int]:
    """Later passage -> the first one with the same text, white space aside; blank ones never.

    What the model reads must be the same too: "Yes." to another question is no repetition.
    """
    first: dict[tuple[str, str], int] = {}
    repeats: dict[int, int] = {}
    for index, passage in enumerate(passages):
        said = " ".join(passage.split())
        if not said:
            continue
        understood = " ".join(read[index].split())
        key = (said, understood)
        earlier = first.setdefault(key, index)
        if earlier != index:
            repeats[index] = earlier
    return repeats


class NearRepetitions:
    """Near repetitions among passages by index, from a cosine on; None finds none."""

    def __init__(self, passages: dict[int, str], similarity: float | None) -> None:
        self._passages = passages
        self._similarity = similarity
        self._row = {index: row for row, index in enumerate(passages)}

    @cached_property
    def _rows(self) -> csr_matrix | None:
        return tfidf_matrix(list(self._passages.values()))

    def of(self, index: int, kept: Sequence[int]) -> int | None:
        """Return the most similar kept passage that ``index`` repeats; None if there is none."""
        if self._similarity is None or not kept or self._rows is None:
            return None
        rows_of_others = [self._row[other] for other in kept]
        others = self._rows[rows_of_others]
        own = self._rows[[self._row[index]]]
        cosines = (others @ own.T).toarray()[:, 0]
        for place in np.argsort(-cosines, kind="stable"):
            if cosines[place] < self._similarity:
                return None
            other = kept[int(place)]
            if self._names(index) <= self._names(other):
                return other
        return None

    def _names(self, index: int) -> set[str]:
        return set(names_and_numbers(self._passages[index]))


Scorer = Callable[[Sequence[int], Sequence[int]], Mapping[int, UnitUtility]]
"""Scores passages, by index, once others are accepted; what cannot be scored is left out."""


class Outcome(NamedTuple):
    """Scores and decisions by passage index; a passage without a decision was not scored.

    ``accepted`` are kept passages in the order of acceptance.
    """

    scored: Mapping[int, UnitUtility]
    decisions: Mapping[int, Decision]
    accepted: Sequence[int]


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Turns scored passages into kept ones.

    Attributes:
        score: Scores passages.
        limits: Bound what is kept.
        sizes: Of every passage.
        repetitions: Finds what repeats a kept passage.
    """

    score: Scorer
    limits: Limits
    sizes: Sizes
    repetitions: NearRepetitions

    def independent(self, pool: Sequence[int]) -> Outcome:
        """Decide on passages from the best down.

        A passage that does not fit the budget is passed over, and a smaller one may still fit.
        """
        scored = self.score(pool, ())
        kept: list[int] = []
        decisions: dict[int, Decision] = {}
        for place, index in enumerate(by_score(scored), start=1):
            decision = self.limits.decide(scored[index], place, len(scored))
            if decision.kept:
                repeated = self.repetitions.of(index, kept)
                no_room = self.limits.no_room(kept, index, self.sizes)
                if repeated is not None:
                    decision = redundant(repeated, cut_by="redundancy_similarity")
                elif no_room is not None:
                    decision = self.limits.crowded_out(place, no_room)
            if decision.kept:
                kept.append(index)
            decisions[index] = decision
        return Outcome(scored, decisions, kept)

    def stream(self, pool: Sequence[int]) -> Outcome:
        """Algorithm 1. Passages that cannot be kept any more are not scored at all."""
        scored: dict[int, UnitUtility] = {}
        decisions: dict[int, Decision] = {}
        kept: list[int] = []
        for index in pool:
            repeated = self.repetitions.of(index, kept)
            if repeated is not None:
                decisions[index] = redundant(repeated, cut_by="redundancy_similarity")
                continue
            full = self.limits.no_room(kept, index, self.sizes)
            if full is not None:
                decisions[index] = Decision(Verdict.UNSCORED, False, full.reason, full.setting)
                continue
            found = self.score((index,), kept)
            if index not in found:
                continue
            scored[index] = found[index]
            decisions[index] = self.limits.decide(found[index], len(kept) + 1, len(pool))
            if decisions[index].kept:
                kept.append(index)
        return Outcome(scored, decisions, kept)
