"""What a cluster of hot items proposes for the cold store (paper, A.1: one P_j per centroid)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from ecs_plugins.memory.admission import moved_centroid
from ecs_plugins.memory.clustering import medoid
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.energy import (
    cluster_variance,
    gaussian_entropy,
    softmax_entropy,
    spectral_entropy,
)
from ecs_plugins.memory.evidence import merged
from ecs_plugins.memory.types import Evidence, HotItem, Matrix, Proposal, Summarise, Vector
from ecs_plugins.memory.wording import is_question


def propose(
    members: Sequence[HotItem],
    *,
    config: MemoryConfig,
    summarise: Summarise | None,
    seed: int,
) -> Proposal:
    """Return the proposition of a cluster.

    Args:
        members: Its hot items, oldest first.
        config: Decides vector, text and entropy.
        summarise: Writes the text, if given; its vector is used with ``proposal="summary"``.
        seed: Seed of the sleep phase, part of the id.
    """
    vectors = np.array([item.vector for item in members])
    nearest = members[medoid(vectors)] if len(members) > 1 else members[0]
    vector, evidence = _pooled(members, config)
    text = _representative_text(members, nearest, evidence)
    if config.proposal == "medoid":
        vector, text = nearest.vector, nearest.text
        if config.contradiction == "never":
            evidence = replace(evidence, belief=nearest.evidence.belief)
    if summarise is not None:
        text, written = summarise(members)
        if config.proposal == "summary" and written is not None:
            vector = written
    messages = tuple(message for item in members for message in item.members)
    return Proposal(
        id=_proposal_id(messages, seed),
        vector=vector,
        text=text,
        evidence=evidence,
        members=messages,
        sources=tuple(item.id for item in members),
        entropy=cluster_entropy(vectors, vector, config),
    )


def cluster_entropy(vectors: Matrix, vector: Vector, config: MemoryConfig) -> float:
    """Return the embedding entropy of a cluster under the configured reading.

    ``evidence`` and ``outcomes`` are no embedding entropies: they are computed from the evidence
    when memories compete, so that later outcomes count.
    """
    if config.entropy == "cluster_variance":
        return cluster_variance(vectors)
    if config.entropy == "gaussian":
        return gaussian_entropy(vectors)
    if config.entropy == "spectral":
        return spectral_entropy(vectors)
    if config.entropy == "softmax":
        return softmax_entropy(vector)
    return 0.0


def _pooled(members: Sequence[HotItem], config: MemoryConfig) -> tuple[Vector, Evidence]:
    """Return direction and evidence of all observations behind the members."""
    if len(members) == 1:
        return members[0].vector, members[0].evidence

    def join(left: HotItem, right: HotItem) -> HotItem:
        vector, resultant = moved_centroid(
            left.vector,
            left.evidence.resultant,
            right.vector * np.float32(right.evidence.resultant),
        )
        evidence = merged(left.evidence, right.evidence, resultant, config)
        return replace(left, vector=vector, evidence=evidence)

    pooled = reduce(join, sorted(members, key=lambda item: item.evidence.created))
    return pooled.vector, pooled.evidence


def _representative_text(members: Sequence[HotItem], nearest: HotItem, evidence: Evidence) -> str:
    """The newest member that says what is believed; without outcomes, the medoid.

    Statements speak before questions.
    """
    if evidence.label is None:
        if not is_question(nearest.text):
            return nearest.text
        statements = [item for item in members if not is_question(item.text)]
        return max(statements or [nearest], key=lambda item: item.evidence.last_seen).text
    agreeing = [item for item in members if item.evidence.label == evidence.label]
    return max(agreeing or [nearest], key=lambda item: item.evidence.last_seen).text


def _proposal_id(messages: Sequence[str], seed: int) -> str:
    digest = hashlib.sha256(str(seed).encode())
    for message in messages:
        digest.update(b"\0" + message.encode())
    return digest.hexdigest()[:32]
