"""Stores of the comparison: the shipped `EntropicMemory`, and stores of whole turns.

All of them see the same turns and the same questions in the same order, on the same embeddings, and
find what they hold by the memory's recall: meaning and words, each turn read as the reply that it
is. The classical policies are those of the Infinite Room. ``Hindsight`` knows the
questions to come: no store of that size can hold more of their evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from benchmarks.bounded_chat.chats import Chat, ChatQuestion
from benchmarks.infinite_room.policies import (
    CachePolicy,
    Fifo,
    Importance,
    Lru,
    Moment,
    Reservoir,
)
from benchmarks.infinite_room.worlds import DIMENSION
from ecs_plugins.memory.config import MemoryConfig, StoreConfig
from ecs_plugins.memory.consolidation import kmeans_labels, medoid
from ecs_plugins.memory.entropic import EntropicMemory
from ecs_plugins.memory.relevance import encounter, read, relevance
from ecs_plugins.memory.types import Floats, Matrix, Vector
from ecs_plugins.ranking.coverage import CoverageIndex
from ecs_plugins.ranking.embedder import Embedder

NOWHERE: Vector = np.zeros(DIMENSION, dtype=np.float32)
_DAY = 86400.0
"""Seconds between two sessions, so that no turn replies to another session."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """One item of an answer to a recall.

    Attributes:
        provenance: Positions of all turns behind it.
        representative: Position of the turn whose words it holds; None if a model wrote it.
    """

    provenance: frozenset[int]
    representative: int | None


class ChatStore(Protocol):
    """A memory that a chat is told to, turn by turn."""

    def add(self, position: int) -> None:
        """The turn at ``position`` is said."""
        ...

    def ask(self, question: ChatQuestion) -> None:
        """A question is asked and answered while the chat goes on."""
        ...

    def recall(self, question: ChatQuestion, k: int) -> list[Remembered]:
        """The ``k`` most similar items, best first, without a threshold."""
        ...

    def size(self) -> int:
        """Items that a recall searches."""
        ...

    def close(self) -> None:
        """Close the store."""
        ...


@dataclass(frozen=True, slots=True)
class Room:
    """Chat, budget and tools of a store.

    Attributes:
        chat: The chat; its questions are for ``Hindsight`` alone.
        vectors: Embeddings of its turns as they are read [n, d].
        embedder: Of the questions.
        budget: Items that may be searched.
        asked_later: The questions to be asked at the end.
        recalls: Items that a recall returns while the chat goes on.
        seed: For what draws.
    """

    chat: Chat
    vectors: Matrix
    embedder: Embedder
    budget: int
    asked_later: tuple[ChatQuestion, ...]
    recalls: int
    seed: int


class TurnStore:
    """A store of whole turns; subclasses decide which."""

    def __init__(self, room: Room) -> None:
        self._vectors = room.vectors
        self._embedder = room.embedder
        self._budget = room.budget
        self._recalls = room.recalls
        self._read = room.chat.read
        self._words = CoverageIndex()
        self._worded: set[int] = set()

    def kept(self) -> list[int]:
        """Positions of the turns in the store."""
        raise NotImplementedError

    def add(self, position: int) -> None:
        """Keep or drop it."""
        raise NotImplementedError

    def ask(self, question: ChatQuestion) -> None:
        """Tell the store the recalled items."""
        self.hit(self._found(question, self._recalls, MemoryConfig().threshold))

    def hit(self, places: Sequence[int]) -> None:
        """Items at these places of ``kept`` were recalled."""

    def recall(self, question: ChatQuestion, k: int) -> list[Remembered]:
        """Search by meaning and words, as the memory does."""
        kept = self.kept()
        found = (kept[place] for place in self._found(question, k, 0.0))
        return [Remembered(frozenset({at}), at) for at in found]

    def _found(self, question: ChatQuestion, k: int, threshold: float) -> list[int]:
        """Places of ``kept``, best first."""
        kept = self.kept()
        if not kept:
            return []
        words = self._words
        for gone in self._worded - set(kept):
            words.discard(gone)
        for new in set(kept) - self._worded:
            words.add(new, self._read[new])
        self._worded = set(kept)
        asked = read(question.text)
        coverage = words.coverage(asked.content, np.array(kept, dtype=np.int64))
        near = self._vectors[kept] @ self._embedder.embed_query(question.text)
        cosines: Floats = near.astype(np.float64)
        fits: Floats = (cosines + coverage) / 2
        known = [name for name in asked.names if words.has(name)]
        met = encounter(asked, items=len(kept), known=known)
        scores = relevance(cosines, coverage, met)
        best = np.argsort(-fits, kind="stable")[:k].tolist()
        return [place for place in best if scores[place] >= threshold]

    def size(self) -> int:
        """Turns kept."""
        return len(self.kept())

    def close(self) -> None:
        """Nothing to let go of."""


class Everything(TurnStore):
    """Keeps every turn."""

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        self._kept: list[int] = []

    def kept(self) -> list[int]:
        """All of them."""
        return self._kept

    def add(self, position: int) -> None:
        """Keep it."""
        self._kept.append(position)


class Hindsight(Everything):
    """Keeps the turns that the questions to come need most: a ceiling, not a method."""

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        need: dict[int, float] = {}
        for question in room.asked_later:
            for position in question.evidence:
                need[position] = need.get(position, 0.0) + 1 / len(question.evidence)
        self._wanted = set(sorted(need, key=lambda at: -need[at])[: room.budget])

    def add(self, position: int) -> None:
        """Keep the turns that will be needed."""
        if position in self._wanted:
            super().add(position)


class Evicting(TurnStore):
    """One of the Infinite Room's classical policies; its labels are positions of turns."""

    def __init__(self, room: Room, policy: type[CachePolicy]) -> None:
        super().__init__(room)
        self._policy = policy(False, room.seed, room.budget)

    def kept(self) -> list[int]:
        """Return the contents of the slots."""
        return [self._policy.label(slot) for slot in range(len(self._policy.vectors))]

    def add(self, position: int) -> None:
        """Insert it."""
        # The policy never looks at vectors: whom a query hits is found here.
        self._policy.observe(Moment(position + 1, NOWHERE, position, np.zeros(0), ()))

    def hit(self, places: Sequence[int]) -> None:
        """Count them."""
        for place in places:
            self._policy.on_hit(place)


class KMeansMedoids(TurnStore):
    """A full store is clustered by k-means and keeps the medoids of half as many clusters."""

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        self._kept: list[int] = []
        self._seed = room.seed

    def kept(self) -> list[int]:
        """Medoids, then the turns since the last clustering."""
        return self._kept

    def add(self, position: int) -> None:
        """Keep it, after making room."""
        if len(self._kept) >= self._budget:
            self._kept = medoids(self._vectors, self._kept, self._budget // 2, self._seed)
        self._kept.append(position)


class HindsightMedoids(Everything):
    """Keeps every turn until the end, and then the medoids of ``budget`` clusters."""

    def __init__(self, room: Room) -> None:
        super().__init__(room)
        self._seed = room.seed
        self._last = len(room.chat.turns) - 1

    def add(self, position: int) -> None:
        """Keep it; after the last one, cluster."""
        super().add(position)
        if position == self._last:
            self._kept = medoids(self._vectors, self._kept, self._budget, self._seed)


def medoids(vectors: Matrix, kept: Sequence[int], clusters: int, seed: int) -> list[int]:
    """Return the members of ``kept`` nearest to the centres of their k-means clusters, in order."""
    if clusters < 1:
        return []
    labels = np.asarray(kmeans_labels(vectors[list(kept)], clusters, seed))
    out = []
    for label in range(int(labels.max()) + 1):
        members = [kept[at] for at in np.flatnonzero(labels == label).tolist()]
        out.append(members[medoid(vectors[members])])
    return sorted(out)


class Entropic:
    """The shipped memory, told and asked through its public methods.

    Args:
        room: What it is made for.
        config: Its settings; the tiers that it searches hold ``room.budget`` items together.
    """

    def __init__(self, room: Room, config: MemoryConfig) -> None:
        self._turns = room.chat.turns
        self._recalls = room.recalls
        self._position: dict[str, int] = {}
        self._memory = EntropicMemory.open(
            embedder=room.embedder,
            config=config,
            store=StoreConfig(summary_deadline=600.0, seed=room.seed),
        )

    @property
    def memory(self) -> EntropicMemory:
        """The memory itself."""
        return self._memory

    def add(self, position: int) -> None:
        """Add the turn."""
        turn = self._turns[position]
        (name,) = self._memory.add([{"text": turn.text, "at": turn.session * _DAY}])
        self._position[name] = position

    def ask(self, question: ChatQuestion) -> None:
        """Recall and report the answer, without feedback on the items."""
        self._memory.recall(question.text, k=self._recalls)
        self._memory.observe(question.text, question.answer)

    def recall(self, question: ChatQuestion, k: int) -> list[Remembered]:
        """Recall without a threshold and without leaving a trace."""
        found = self._memory.recall(question.text, k=k, threshold=0.0, record=False)
        return [self._remembered(item.text, item.provenance) for item in found]

    def size(self) -> int:
        """Items in the tiers that are searched."""
        stats = self._memory.admin.stats().namespaces
        if not stats:
            return 0
        hot = stats[0].hot if self._memory.config.rule == "default" else 0
        return stats[0].cold + hot

    def close(self) -> None:
        """Close the memory."""
        self._memory.close()

    def _remembered(self, text: str, provenance: Sequence[str]) -> Remembered:
        behind = frozenset(self._position[name] for name in provenance)
        verbatim = (at for at in sorted(behind, reverse=True) if self._turns[at].text == text)
        return Remembered(behind, next(verbatim, None))


StoreFactory = Callable[[Room], ChatStore]


def baselines() -> dict[str, StoreFactory]:
    """Return the bounded stores that do not know the future."""
    return {
        "FIFO": lambda room: Evicting(room, Fifo),
        "LRU": lambda room: Evicting(room, Lru),
        "Reservoir": lambda room: Evicting(room, Reservoir),
        "Importance": lambda room: Evicting(room, Importance),
        "k-means medoids": KMeansMedoids,
    }


def references() -> dict[str, StoreFactory]:
    """Return the unbounded stores and those that know the future."""
    return {
        "k-means medoids at the end": HindsightMedoids,
        "Hindsight": Hindsight,
        "Unbounded": _unbounded,
    }


def _unbounded(room: Room) -> ChatStore:
    """Shipped memory without a bound."""
    turns = len(room.chat.turns)
    return Entropic(room, MemoryConfig(hot_capacity=turns, sleep_every=turns + 1))
