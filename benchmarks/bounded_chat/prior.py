"""Learning and quality of the weights of `ecs_plugins.memory.prior`.

A turn counts as asked for if it is evidence of a question. The figures leave one chat out: its
turns are judged by weights learned on the others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import benchmarks.datasets
from benchmarks.bounded_chat.chats import Chat
from ecs_plugins.memory.prior import Known, features, log_odds
from ecs_plugins.memory.types import Floats

UNIVERSAL = ("words", "numbers", "asks")
CASED = (*UNIVERSAL, "long words", "capitals")
ENGLISH = (*CASED[1:], "sentences", "times", "past tense", "first person", "second person")
"""Beside its long words, an English text's words add nothing."""
KNOWN: Mapping[Known, Sequence[str]] = {"english": ENGLISH, "cased": CASED, "any": UNIVERSAL}

SOURCE: Mapping[str, str] = {
    "learned_from": "benchmarks/datasets/own_chats.json: which turns somebody may ask for later",
    "licence_of_the_source": "Apache-2.0, written for this project",
}
"""Description in ``prior.json``."""

OWN_CHATS = Path(benchmarks.datasets.__file__).with_name("own_chats.json")

PENALTY = 0.05
"""scikit-learn's C, on standardised features."""


@dataclass(frozen=True, slots=True)
class PriorTable:
    """Shipped numbers of `ecs_plugins.memory.prior`: ``WEIGHTS`` and ``MOST``."""

    weights: Mapping[Known, Mapping[str, float]]
    most: Mapping[str, float]

    def worth(self, text: str, known: Known | None = None) -> float:
        """Return the log-odds of a text; ``known`` sets its language."""
        found, values = features(text)
        return log_odds(values, self.weights[known or found], self.most)


def asked_for(chat: Chat) -> list[bool]:
    """Return whether each turn is evidence of a question."""
    evidence = {position for question in chat.questions for position in question.evidence}
    return [position in evidence for position in range(len(chat.turns))]


def own_turns() -> tuple[list[str], list[bool]]:
    """Return the turns of the project's own chats, and whether each may be asked for."""
    turns = json.loads(OWN_CHATS.read_text(encoding="utf-8"))["turns"]
    return [text for text, _ in turns], [bool(label) for _, label in turns]


def learned(chats: Sequence[Chat]) -> PriorTable:
    """Return the table learned on these chats."""
    texts = [turn.text for chat in chats for turn in chat.turns]
    return learned_from(texts, [asked for chat in chats for asked in asked_for(chat)])


def learned_from(texts: Sequence[str], target: Sequence[bool]) -> PriorTable:
    """Return the table learned on turns, of which each was asked for or not, rounded as shipped.

    All turns are English. The rows for other languages are learned on them too, without the
    features that such a language does not show.
    """
    rows = [features(text)[1] for text in texts]
    most = {name: round(max(row[name] for row in rows), 2) for name in ("words", *ENGLISH)}
    weights: dict[Known, dict[str, float]] = {}
    for known, names in KNOWN.items():
        values = np.array([[min(row[name], most[name]) for name in names] for row in rows])
        scaler = StandardScaler().fit(values)
        model = LogisticRegression(C=PENALTY).fit(scaler.transform(values), target)
        slopes = model.coef_[0] / scaler.scale_
        bias = float(model.intercept_[0] - slopes @ scaler.mean_)
        weights[known] = {"bias": round(bias, 2)} | {
            name: round(float(slope), 2) for name, slope in zip(names, slopes, strict=True)
        }
    return PriorTable(weights, most)


def without_each(chats: Sequence[Chat]) -> dict[str, PriorTable]:
    """Return for each chat, by its id, the table learned on the others."""
    return {chat.id: learned([other for other in chats if other is not chat]) for chat in chats}


def evidence_held(chats: Sequence[Chat], worths: Sequence[Floats], share: float) -> float:
    """Return the mean share of a chat's evidence turns among its best turns.

    Args:
        chats: The chats.
        worths: Of the turns of each.
        share: Of the turns that are kept.
    """
    held = []
    for chat, worth in zip(chats, worths, strict=True):
        kept = np.argsort(-worth, kind="stable")[: round(share * len(worth))]
        asked = np.array(asked_for(chat))
        held.append(asked[kept].sum() / asked.sum())
    return float(np.mean(held))
