"""``MemoryConfig``: every setting of consolidation, and the paper's configuration.

The paper leaves much open. Each ambiguity is a named setting here, so that
``MemoryConfig.paper()`` can state the one reading that reproduces the published table.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Literal, get_args, get_origin, get_type_hints

from ecs_plugins.common.checks import check_numbers
from ecs_plugins.errors import ConfigurationError

Clustering = Literal["link", "kmeans"]
ProposalKind = Literal["centroid", "medoid", "summary"]
UtilityKind = Literal["informed", "observed", "query_mean", "query_max"]
EntropyKind = Literal[
    "evidence", "outcomes", "cluster_variance", "gaussian", "spectral", "softmax", "none"
]
Schedule = Literal["constant", "annealed", "scaled"]
Contradiction = Literal["learned", "newest", "never"]

_FOR_TEXTS: Mapping[str, float] = {
    "threshold": 0.5,
    "merge_threshold": 0.9,
    "min_support": 1,
    "newcomer_rate": 1.0,
}
_FOR_VECTORS: Mapping[str, float] = {
    "threshold": 0.7,
    "merge_threshold": 0.7,
    "min_support": 2,
    "newcomer_rate": 0.5,
}


@dataclass(frozen=True, slots=True)
class MemoryConfig:
    """Settings of Entropic Memory. The defaults are the best found, one for every stream.

    How near two messages are that say the same depends on what embeds them. Three settings
    therefore default to None, which stands for what fits: `for_texts` where the memory embeds
    sentences itself (`EntropicMemory` does this when it opens), `for_vectors` where vectors are
    given. A value that is set is used as it is.

    Attributes:
        hot_capacity: Items in the working store, per namespace.
        cold_capacity: Memories in the consolidated store, per namespace.
        sleep_every: Messages between two sleep phases (the paper's K).
        top_k: Memories that a recall returns at most.
        threshold: Least cosine for a memory to be recalled (the paper's tau). None: 0.5 for
            texts, 0.7 for given vectors.
        search: Which tiers a recall searches by default.
        on_add: ``merge`` a message into the hot item or cold memory that it repeats, or
            ``append`` it as it is (the paper).
        merge_threshold: Least cosine at which two observations are one memory; also the linking
            threshold of ``clustering="link"``. None: 0.9 for texts, 0.7 for given vectors.
        merge_guard: ``wording``: texts that differ in a negation, a number or a name are two
            memories however near they are (`wording`); where both carry a label, the labels
            decide. ``none``: the cosine alone decides.
        hot_eviction: Which item leaves a full hot store: the oldest (``fifo``, the paper), or
            the oldest among those that have not earned a proposal (``unsupported_first``).
        clustering: ``link`` items whose cosine reaches ``merge_threshold`` (as many clusters as
            there are), or ``kmeans`` with ``clusters`` centres (the paper).
        clusters: The paper's k.
        min_support: Observations and retrieval hits that a cluster needs before it is proposed.
            None: 1 for texts, which tell what they are worth; 2 for given vectors, which do not.
        proposal: The vector of a proposition: the ``centroid`` of its cluster, its ``medoid``,
            or a ``summary`` embedded anew.
        reinforce: A proposal that repeats a cold memory is merged into it, not inserted.
        fill: While the cold store has room, insert ``all`` (also items below ``min_support``;
            once it is full they compete only with older ones of the same kind), insert what is
            ``supported`` (the paper), or let it ``contest`` an empty slot of free energy 0.
        keep_hot: Proposed items stay in the hot store until they age out (the paper's FIFO),
            instead of moving to the cold store.
        utility: ``observed`` demand (log of the rate at which the memory is asked for or said
            again); ``informed``: the same and what its text has to tell (`information`), so
            without texts it is ``observed``; or cosine to the recent queries weighted by
            recency: their mean (``query_mean``) or their maximum (``query_max``).
        information_weight: Weight of the information in ``informed``.
        newcomer_rate: Demand expected of a memory of which nothing is known, relative to the mean
            of the store: the lower, the harder it is to displace what has been asked for. None:
            1 for texts; 0.5 for given vectors, which have been attested when they compete.
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
    threshold: float | None = None
    search: Literal["both", "cold"] = "both"
    on_add: Literal["merge", "append"] = "merge"
    merge_threshold: float | None = None
    merge_guard: Literal["wording", "none"] = "wording"
    hot_eviction: Literal["fifo", "unsupported_first"] = "unsupported_first"
    clustering: Clustering = "link"
    clusters: int = 5
    min_support: int | None = None
    proposal: ProposalKind = "centroid"
    reinforce: bool = True
    fill: Literal["all", "supported", "contest"] = "all"
    keep_hot: bool = False
    utility: UtilityKind = "informed"
    information_weight: float = 1.0
    newcomer_rate: float | None = None
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
            hint = hints[setting.name]
            choices = get_args(hint) if get_origin(hint) is Literal else ()
            value = getattr(self, setting.name)
            if choices and value not in choices:
                raise ConfigurationError(
                    f"{setting.name} is {value!r}; use one of {', '.join(map(repr, choices))}."
                )
        check_numbers(self)
        for name in ("hot_capacity", "cold_capacity", "sleep_every", "top_k", "clusters"):
            _require(name, getattr(self, name), 1, math.inf)
        for name in ("utility_window", "summary_tokens"):
            _require(name, getattr(self, name), 1, math.inf)
        _require("min_support", self.support_needed, 1, math.inf)
        _require("threshold", self.recalled_from, -1.0, 1.0)
        _require("merge_threshold", self.merged_from, -1.0, 1.0)
        for name in ("utility_decay", "annealing"):
            _require(name, getattr(self, name), 0.0, 1.0)
        for name in ("temperature", "final_temperature", "entropy_weight", "spread_weight"):
            _require(name, getattr(self, name), 0.0, math.inf)
        for name in ("summary_temperature", "information_weight"):
            _require(name, getattr(self, name), 0.0, math.inf)
        if not 0.0 < self.expected_of_newcomers < math.inf:
            raise ConfigurationError(
                f"newcomer_rate is {self.newcomer_rate}; use a positive number."
            )
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
            "threshold": 0.7,
            "search": "cold",
            "on_add": "append",
            "merge_threshold": 0.7,
            "merge_guard": "none",
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

    def for_texts(self) -> MemoryConfig:
        """Return a copy in which what is None is what fits sentence embeddings.

        Chosen on chat under all-MiniLM-L6-v2, where at 0.7 three turns in four have another turn
        to merge with, and the best turn's cosine to a question has a median of 0.6.
        """
        return self._filled(_FOR_TEXTS)

    def for_vectors(self) -> MemoryConfig:
        """Return a copy in which what is None is what fits the Infinite Room's vectors."""
        return self._filled(_FOR_VECTORS)

    def _filled(self, values: Mapping[str, float]) -> MemoryConfig:
        missing = {name: value for name, value in values.items() if getattr(self, name) is None}
        return self.replace(**missing) if missing else self

    @property
    def recalled_from(self) -> float:
        """``threshold``, or what it is for given vectors."""
        return _FOR_VECTORS["threshold"] if self.threshold is None else self.threshold

    @property
    def merged_from(self) -> float:
        """``merge_threshold``, or what it is for given vectors."""
        given = self.merge_threshold
        return _FOR_VECTORS["merge_threshold"] if given is None else given

    @property
    def support_needed(self) -> float:
        """``min_support``, or what it is for given vectors."""
        return _FOR_VECTORS["min_support"] if self.min_support is None else self.min_support

    @property
    def expected_of_newcomers(self) -> float:
        """``newcomer_rate``, or what it is for given vectors."""
        return _FOR_VECTORS["newcomer_rate"] if self.newcomer_rate is None else self.newcomer_rate

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
