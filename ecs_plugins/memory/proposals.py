"""What a cluster of hot items proposes for the cold store (paper, A.1: one P_j per centroid)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from ecs_plugins.memory.admission import merged, moved_centroid
from ecs_plugins.memory.clustering import medoid
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.energy import cluster_variance, embedding_entropy
from ecs_plugins.memory.types import (
    ColdMemory,
    Evidence,
    HotItem,
    Proposal,
    Summarise,
    Vector,
)
from ecs_plugins.memory.wording import is_question


def propose(
    members: Sequence[HotItem], *, config: MemoryConfig, summarise: Summarise | None, seed: int
) -> Proposal:
    """Return the proposal of a cluster.

    Args:
        members: Its hot items, oldest first.
        config: Decides vector, text and entropy.
        summarise: Writes the text, if it can; its vector is used with ``proposal="summary"``.
        seed: Seed of the sleep phase, part of the id.
    """
    vectors = np.array([item.vector for item in members])
    nearest = members[medoid(vectors)]
    vector, evidence = _pooled(members)
    representative = _representative(members, nearest)
    if config.proposal == "medoid":
        vector, representative = nearest.vector, nearest
    text, asked = representative.text, representative.asked
    written = None if summarise is None else summarise(members)
    if written is not None:
        (text, summary), asked = written, ""
        vector = summary if config.proposal == "summary" else vector
    entropy = 0.0  # "evidence" is computed when memories compete, so that later outcomes count
    if config.entropy == "cluster_variance":
        entropy = cluster_variance(vectors)
    elif config.entropy == "embedding":
        entropy = embedding_entropy(vector)
    messages = tuple(message for item in members for message in item.members)
    return Proposal(
        ColdMemory(
            _proposal_id(messages, seed), vector, evidence, text, entropy=entropy, asked=asked
        ),
        members=messages,
        sources=tuple(item.id for item in members),
    )


def _pooled(members: Sequence[HotItem]) -> tuple[Vector, Evidence]:
    """Return direction and evidence of all observations behind the members."""
    first, *others = sorted(members, key=lambda item: item.evidence.created)
    vector, evidence = first.vector, first.evidence
    for item in others:
        addition = item.vector * np.float32(item.evidence.resultant)
        vector, resultant = moved_centroid(vector, evidence.resultant, addition)
        evidence = merged(evidence, item.evidence, resultant)
    return vector, evidence


def _representative(members: Sequence[HotItem], nearest: HotItem) -> HotItem:
    """The medoid; if that is a question, the newest statement."""
    if not is_question(nearest.text):
        return nearest
    statements = [item for item in members if not is_question(item.text)]
    return max(statements or [nearest], key=lambda item: item.evidence.last_seen)


def _proposal_id(messages: Sequence[str], seed: int) -> str:
    digest = hashlib.sha256(str(seed).encode())
    for message in messages:
        digest.update(b"\0" + message.encode())
    return digest.hexdigest()[:32]
