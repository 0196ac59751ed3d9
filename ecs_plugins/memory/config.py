"""``MemoryConfig``: every setting of consolidation, and the paper's configuration.

The paper leaves much open. Each ambiguity is a named setting here, so that
``MemoryConfig.paper()`` can state the one reading that reproduces the published table.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Literal, get_args, get_type_hints

from ecs_plugins.errors import ConfigurationError

Clustering = Literal["link", "kmeans"]
ProposalKind = Literal["centroid", "medoid", "summary"]
UtilityKind = Literal["observed", "query_mean", "query_max"]
EntropyKind = Literal[
    "evidence", "outcomes", "cluster_variance", "gaussian", "spectral", "softmax", "none"
]
Schedule = Literal["constant", "annealed", "scaled"]
Contradiction = Literal["learned", "newest", "never"]


@dataclass(frozen=True, slots=True)
class MemoryConfig:
    """Settings of Entropic Memory. The defaults are the best found, one for every stream.

    Attributes:
        hot_capacity: Items in the working store, per namespace.
        cold_capacity: Memories in the consolidated store, per namespace.
        sleep_every: Messages between two sleep phases (the paper's K).
        top_k: Memories that a recall returns at most.
        threshold: Least cosine for a memory to be recalled (the paper's tau).
        search: Which tiers a recall searches by default.
        on_add: ``merge`` a message into the hot item or cold memory that it repeats, or
            ``append`` it as it is (the paper).
        merge_threshold: Least cosine at which two observations are one memory; also the linking
            threshold of ``clustering="link"``.
        hot_eviction: Which item leaves a full hot store: the oldest (``fifo``, the paper), or
            the oldest among those that have not earned a proposal (``unsupported_first``).
        clustering: ``link`` items whose cosine reaches ``merge_threshold`` (as many clusters as
            there are), or ``kmeans`` with ``clusters`` centres (the paper).
        clusters: The paper's k.
        min_support: Observations and retrieval hits that a cluster needs before it is proposed.
        proposal: The vector of a proposition: the ``centroid`` of its cluster, its ``medoid``,
            or a ``summary`` embedded anew.
        reinforce: A proposal that repeats a cold memory is merged into it, not inserted.
        fill: While the cold store has room, insert ``all`` (also items below ``min_support``;
            once it is full they compete only with older ones of the same kind), insert what is
            ``supported`` (the paper), or let it ``contest`` an empty slot of free energy 0.
        keep_hot: Proposed items stay in the hot store until they age out (the paper's FIFO),
            instead of moving to the cold store.
        utility: ``observed`` demand (log of the rate at which the memory is asked for or said
            again), or cosine to the recent queries weighted by recency: their mean
            (``query_mean``) or their maximum (``query_max``).
        recompute_utility: Score cold memories anew at every sleep phase, or keep the utility
            that they had when inserted.
        utility_window: Recent queries considered.
        utility_decay: Weight per step of age of a query.
        half_life: Steps after which an observed event counts half; ``inf`` never forgets.
        entropy: What S measures: ``evidence`` (the mean surprise of the supporting observations
            under what the memory says, and how far they lie apart), ``outcomes`` (entropy of
            the distribution of their outcomes, and how far they lie apart),
            ``cluster_variance``, ``gaussian`` (differential entropy),
            ``spectral`` (of the cluster's covariance), ``softmax`` (Shannon entropy over the
            coordinates of one embedding: the paper's letter), or ``none``.
        entropy_weight: lambda in ``F = E + lambda * S``.
        spread_weight: Weight of the members' spread in ``evidence`` and ``outcomes``.
        contradiction: When an observation contradicts a memory: ``learned`` from how earlier
            contradictions turned out, ``newest`` wins, or ``never`` overwrite.
        victim: The weakest memory is the one of highest ``free_energy``, or of lowest
            ``utility`` (the paper, A.1).
        schedule: ``constant`` temperature; ``annealed`` from ``temperature`` towards
            ``final_temperature``; or ``scaled``: ``temperature`` times the standard deviation
            of F over the cold store, so that one value fits every scale of utility.
        temperature: T.
        final_temperature: Where annealing ends.
        annealing: Factor per sleep phase for ``schedule="annealed"``.
        summary_tokens: Most tokens of an LLM summary.
        summary_temperature: Sampling temperature of an LLM summary.
        seed: Base seed; every sleep phase derives its own from it and records it.
    """

    hot_capacity: int = 100
    cold_capacity: int = 1000
    sleep_every: int = 20
    top_k: int = 3
    threshold: float = 0.7
    search: Literal["both", "cold"] = "both"
    on_add: Literal["merge", "append"] = "merge"
    merge_threshold: float = 0.7
    hot_eviction: Literal["fifo", "unsupported_first"] = "unsupported_first"
    clustering: Clustering = "link"
    clusters: int = 5
    min_support: int = 2
    proposal: ProposalKind = "centroid"
    reinforce: bool = True
    fill: Literal["all", "supported", "contest"] = "all"
    keep_hot: bool = False
    utility: UtilityKind = "observed"
    recompute_utility: bool = True
    utility_window: int = 100
    utility_decay: float = 0.99
    half_life: float = 1000.0
    entropy: EntropyKind = "evidence"
    entropy_weight: float = 1.0
    spread_weight: float = 1.0
    contradiction: Contradiction = "learned"
    victim: Literal["free_energy", "utility"] = "free_energy"
    schedule: Schedule = "scaled"
    temperature: float = 0.05
    final_temperature: float = 0.01
    annealing: float = 0.9
    summary_tokens: int = 50
    summary_temperature: float = 0.3
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse values that are out of range, naming the setting."""
        hints = get_type_hints(type(self))
        for setting in fields(self):
            choices = get_args(hints[setting.name])
            value = getattr(self, setting.name)
            if choices and value not in choices:
                raise ConfigurationError(
                    f"{setting.name} is {value!r}; use one of {', '.join(map(repr, choices))}."
                )
        for name in ("hot_capacity", "cold_capacity", "sleep_every", "top_k", "clusters"):
            _require(name, getattr(self, name), 1, math.inf)
        for name in ("min_support", "utility_window", "summary_tokens"):
            _require(name, getattr(self, name), 1, math.inf)
        for name in ("threshold", "merge_threshold"):
            _require(name, getattr(self, name), -1.0, 1.0)
        for name in ("utility_decay", "annealing"):
            _require(name, getattr(self, name), 0.0, 1.0)
        for name in ("temperature", "final_temperature", "entropy_weight", "spread_weight"):
            _require(name, getattr(self, name), 0.0, math.inf)
        _require("summary_temperature", self.summary_temperature, 0.0, math.inf)
        if not self.half_life > 0:
            raise ConfigurationError(f"half_life is {self.half_life}; use a positive number.")

    @classmethod
    def paper(cls, **changes: object) -> MemoryConfig:
        """Return the paper's rule in the reading that reproduces its Table 1.

        k-means with k = 5 over a hot buffer of 100, clusters below 3 dropped, the medoid as the
        proposition, cosine utility over recent queries, cluster variance as entropy, T = 1,
        only the cold store searched. The other readings: ``hot_capacity=20`` (A.7),
        ``proposal="centroid"`` (A.1), any ``entropy``.

        Args:
            **changes: Settings to change from that reading.
        """
        literal: dict[str, object] = {
            "hot_capacity": 100,
            "cold_capacity": 20,
            "sleep_every": 100,
            "search": "cold",
            "on_add": "append",
            "hot_eviction": "fifo",
            "clustering": "kmeans",
            "min_support": 3,
            "proposal": "medoid",
            "reinforce": False,
            "fill": "supported",
            "keep_hot": True,
            "utility": "query_mean",
            "half_life": math.inf,
            "entropy": "cluster_variance",
            "contradiction": "never",
            "victim": "utility",
            "schedule": "constant",
            "temperature": 1.0,
        }
        return cls(**(literal | changes))  # type: ignore[arg-type]

    def replace(self, **changes: object) -> MemoryConfig:
        """Return a copy with some settings changed."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def to_json(self) -> dict[str, object]:
        """Return plain JSON types (an infinite half-life becomes None)."""
        values = asdict(self)
        if math.isinf(self.half_life):
            values["half_life"] = None
        return values

    @classmethod
    def from_json(cls, data: dict[str, object]) -> MemoryConfig:
        """Rebuild from :meth:`to_json`; unknown settings are refused."""
        values = dict(data)
        unknown = set(values) - {setting.name for setting in fields(cls)}
        if unknown:
            raise ConfigurationError(f"Unknown memory settings: {', '.join(sorted(unknown))}.")
        if "half_life" in values and values["half_life"] is None:
            values["half_life"] = math.inf
        return cls(**values)  # type: ignore[arg-type]

    @property
    def version(self) -> str:
        """Twelve hex digits that name these settings; it stands in every decision."""
        return _version(self)


@lru_cache(maxsize=64)
def _version(config: MemoryConfig) -> str:
    canonical = json.dumps(config.to_json(), sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def _require(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        wanted = f"between {low} and {high}" if math.isfinite(high) else f"at least {low}"
        raise ConfigurationError(f"{name} is {value}; it must be {wanted}.")
