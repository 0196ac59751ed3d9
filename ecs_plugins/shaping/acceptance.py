"""The three ways in which scored passages become kept ones.

``independent`` scores once against the given context. ``stream`` is Algorithm 1: passages in the
given order, and an accepted one joins the context C. ``greedy`` takes the best, lets it join C
and scores the others again, so that a repetition loses its utility and a second hop gets its
chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ecs_plugins.shaping.redundancy import NearRepetitions
from ecs_plugins.shaping.scoring import PassageScorer
from ecs_plugins.shaping.selection import Decision, Limits, Scored, by_score, redundant, select
from ecs_plugins.shaping.utility import Verdict


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found.

    Attributes:
        scored: Scores by passage index.
        decisions: By passage index; a passage without one was not scored.
        accepted: Kept passages in the order in which the context took them in, where that is not
            the order of their scores; best first behind them, those that are not named.
    """

    scored: dict[int, Scored]
    decisions: dict[int, Decision]
    accepted: tuple[int, ...] = ()

    def places(self) -> dict[int, int]:
        """Kept passage -> its place in the order of acceptance, 1 is the first."""
        others = [i for i in by_score(self.scored) if self.decisions[i].kept]
        order = dict.fromkeys((*self.accepted, *others))
        return {index: place for place, index in enumerate(order, start=1)}


@dataclass(frozen=True, slots=True)
class Candidates:
    """What is to be decided on.

    Attributes:
        indices: Passages of the pool, in input order.
        passages: All passages, by index.
        tokens: Their tokens, by index.
        context: What is known before any of them.
    """

    indices: tuple[int, ...]
    passages: Sequence[str]
    tokens: Sequence[int]
    context: str

    def known(self, kept: Sequence[int]) -> list[str]:
        """The context once some passages are accepted, in order of acceptance."""
        return [self.context, *(self.passages[index] for index in kept)]


def independent(
    candidates: Candidates, scorer: PassageScorer, limits: Limits, repetitions: NearRepetitions
) -> Outcome:
    """Score every passage once; the order of the passages does not matter."""
    scored = scorer.score(candidates.indices, candidates.known(()))
    return Outcome(scored, select(scored, candidates.tokens, limits, repetitions))


def stream(
    candidates: Candidates, scorer: PassageScorer, limits: Limits, repetitions: NearRepetitions
) -> Outcome:
    """Algorithm 1. Passages that cannot be kept any more are not scored at all."""
    outcome = Outcome({}, {})
    kept: list[int] = []
    spent = 0
    for index in candidates.indices:
        repeated = repetitions.of(index, kept)
        if repeated is not None:
            outcome.decisions[index] = redundant(repeated)
        elif limits.full(len(kept)):
            outcome.decisions[index] = Decision(
                Verdict.UNSCORED, False, f"{limits.top_k} passages were kept before it (top_k)"
            )
        elif not limits.fits(spent, candidates.tokens[index]):
            outcome.decisions[index] = Decision(
                Verdict.UNSCORED,
                False,
                f"its {candidates.tokens[index]} tokens exceed what is left of the budget "
                f"({(limits.max_tokens or 0) - spent} of {limits.max_tokens})",
            )
        else:
            scored = scorer.score((index,), candidates.known(kept))
            outcome.scored.update(scored)
            if index in scored:
                decision = limits.decide(scored[index], len(kept) + 1, len(candidates.indices))
                outcome.decisions[index] = decision
                if decision.kept:
                    kept.append(index)
                    spent += candidates.tokens[index]
    return replace(outcome, accepted=tuple(kept))


def greedy(
    candidates: Candidates,
    scorer: PassageScorer,
    limits: Limits,
    repetitions: NearRepetitions,
    rounds: int,
) -> Outcome:
    """Accept the best, score the others again; after ``rounds`` scorings the last scores stand.

    A passage that helped at first and no longer does once others are kept is redundant.
    """
    kept: list[int] = []
    outcome = Outcome({}, {})
    helped_at_first: set[int] = set()
    remaining = list(candidates.indices)
    for turn in range(rounds):
        scored = scorer.score(remaining, candidates.known(kept))
        for index in remaining:  # what an earlier round said of them no longer holds
            outcome.scored.pop(index, None)
            outcome.decisions.pop(index, None)
        outcome.scored.update(scored)
        if not turn and limits.threshold is not None:
            helped_at_first = {
                i for i, found in scored.items() if limits.verdict(found.utility) is Verdict.HELPS
            }
        chosen = select(scored, candidates.tokens, limits, repetitions, kept)
        takeable = [index for index in by_score(scored) if chosen[index].kept]
        outcome.decisions.update(chosen)
        if turn == rounds - 1 or not takeable:
            break
        kept.append(takeable[0])
        remaining = [index for index in scored if index != takeable[0]]
        if not remaining:
            break
    for index in helped_at_first & outcome.decisions.keys():
        decision = outcome.decisions[index]
        if decision.verdict in (Verdict.NEUTRAL, Verdict.HURTS):
            outcome.decisions[index] = Decision(
                Verdict.REDUNDANT,
                False,
                f"helped alone, adds {outcome.scored[index].utility:+.3f} {limits.unit} once "
                f"{', '.join(map(str, sorted(kept)))} "
                f"{'is' if len(kept) == 1 else 'are'} known",
            )
    return replace(outcome, accepted=tuple(kept))
