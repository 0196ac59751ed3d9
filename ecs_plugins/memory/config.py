"""Settings: `MemoryConfig` for consolidation, `StoreConfig` for storage and running."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal, Self

from pydantic import Field

from ecs_plugins.common.config import Config
from ecs_plugins.storage.base import Synchronous

Rule = Literal["default", "paper"]
ProposalKind = Literal["centroid", "medoid", "summary"]
EntropyKind = Literal["evidence", "cluster_variance", "embedding"]


class MemoryConfig(Config):
    """Settings of Entropic Memory. The defaults are the best found for texts.

    How near two messages are that say the same depends on what embeds them: ``merge_threshold`` was
    chosen on chat under all-MiniLM-L6-v2, where at 0.7 three turns in four have another turn to
    merge with. ``threshold`` is a probability (`ecs_plugins.memory.relevance`).

    ``rule`` switches the whole algorithm:

    ========================= =============================== ==================================
    .                         ``default``                     ``paper`` (section 2, A.1, A.7)
    ========================= =============================== ==================================
    a message on arrival      merges into what it repeats     is appended
    a full hot store drops    what has not earned a proposal  the oldest (FIFO)
    clusters                  linked at ``merge_threshold``   k-means with ``clusters`` centres
    a cluster below support   fills the store while it waits  is discarded
    what was proposed         leaves the hot store            stays until it is the oldest
    a proposal that repeats   reinforces the cold memory      competes like any other
    the victim                highest free energy             lowest utility
    T                         ``temperature`` standard        ``temperature``
                              deviations of F over the store
    utility                   how often a memory was asked    mean cosine to the recent queries,
    .                         for or said again, and the      weighted by recency
    .                         prior of its text
    a recall searches         both tiers                      the cold store
    ========================= =============================== ==================================
    """

    hot_capacity: int = Field(
        default=100, ge=1, description="Items in the hot store, per namespace."
    )
    cold_capacity: int = Field(
        default=1000, ge=1, description="Memories in the cold store, per namespace."
    )
    sleep_every: int = Field(
        default=20, ge=1, description="Messages between two sleep phases (the paper's K)."
    )
    threshold: float = Field(
        default=0.45,
        ge=-1,
        le=1,
        description="Minimum score of a recalled memory: the probability that it is evidence for "
        "the answer. Under the paper's rule, the minimum cosine (its tau).",
    )
    merge_threshold: float = Field(
        default=0.9,
        ge=-1,
        le=1,
        description="Minimum cosine at which two observations are one memory.",
    )
    rule: Rule = Field(default="default", description="The whole algorithm, see above.")
    clusters: int = Field(
        default=5, ge=1, description="Clusters of k-means under the paper's rule."
    )
    min_support: int = Field(
        default=1,
        ge=1,
        description="Observations and retrieval hits that a cluster needs to be proposed.",
    )
    proposal: ProposalKind = Field(
        default="centroid",
        description="The vector of a proposal: the centroid of its cluster, its medoid, or a "
        "summary by a language model, embedded anew.",
    )
    entropy: EntropyKind = Field(
        default="evidence",
        description="S. evidence: how far the observations behind a memory lie apart, and how "
        "surprising the outcomes of its use were. cluster_variance: of the embeddings (the paper, "
        "A.1). embedding: Shannon entropy over the coordinates of one embedding (the paper, "
        "section 2).",
    )
    entropy_weight: float = Field(default=1.0, ge=0, description="lambda in F = E + lambda * S.")
    temperature: float = Field(default=0.05, ge=0, description="T.")

    @classmethod
    def paper(cls, **changes: Any) -> Self:
        """Return the paper's rule in the reading that reproduces its Table 1.

        k-means with k = 5 over a hot store of 100, clusters below 3 dropped, the medoid as the
        proposal, cosine utility over recent queries, cluster variance as entropy, T = 1. The
        other readings: ``hot_capacity=20`` (A.7), ``proposal="centroid"`` or ``"summary"``
        (A.1), ``entropy="embedding"`` (section 2).

        Args:
            **changes: Settings to change from that reading.
        """
        literal: dict[str, Any] = {
            "cold_capacity": 20,
            "sleep_every": 100,
            "threshold": 0.7,
            "rule": "paper",
            "min_support": 3,
            "proposal": "medoid",
            "entropy": "cluster_variance",
            "temperature": 1.0,
        }
        return cls(**(literal | changes))

    @property
    def version(self) -> str:
        """Twelve hex digits that identify these settings; every decision records them."""
        canonical = json.dumps(self.to_json(), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]


class StoreConfig(Config):
    """Settings of storage and running."""

    synchronous: Synchronous = Field(
        default="full",
        description="full: a write that returned survives a power cut. normal: a power cut may "
        "lose the last writes; a killed process loses none.",
    )
    busy_timeout: float = Field(
        default=30.0, gt=0, description="Seconds to wait for another writer."
    )
    sleep: Literal["caller", "background", "manual"] = Field(
        default="caller",
        description="Who runs the sleep phases that fall due: the caller of add, a background "
        "thread, or nobody.",
    )
    summary_deadline: float = Field(
        default=60.0,
        gt=0,
        description="Seconds that all summaries of one sleep phase may take together.",
    )
    seed: int = Field(
        default=0, description="Base seed; every sleep phase derives its own and records it."
    )
    max_messages: int | None = Field(
        default=None,
        ge=1,
        description="Messages in the log of a namespace at most. None: any. Items by key that are "
        "no messages are not counted: who puts them decides how many keys there are.",
    )
    max_bytes: int | None = Field(
        default=None,
        ge=1,
        description="Bytes of their texts and metadata, in UTF-8, per namespace. None: any.",
    )
    log_retention: float | None = Field(
        default=None,
        gt=0,
        description="Seconds that the message log is kept for; None is for ever. What the hot "
        "tier holds is kept anyway.",
    )
