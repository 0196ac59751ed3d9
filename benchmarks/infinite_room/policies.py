"""Interface of a memory policy, and the classical eviction policies.

The same code searches every policy (cosine, threshold, top-3). The policy only decides the contents
of the store. Each comes raw (every observation is inserted, as in the paper) and de-duplicated (an
observation within the threshold of a stored one refreshes it).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from benchmarks.infinite_room.worlds import (
    CAPACITY,
    DIMENSION,
    THRESHOLD,
    Stream,
)
from ecs_plugins.memory.types import Floats, Matrix, Vector


class Moment(NamedTuple):
    """Step of the stream as a policy sees it afterwards.

    Attributes:
        step: Its number.
        vector: The observation [d].
        label: Its label.
        similarities: Cosine of every memory to the observation [n].
        recalled: Positions recalled: at most three, above the threshold, most similar first.
    """

    step: int
    vector: Vector
    label: int
    similarities: Floats
    recalled: Sequence[int]


class Policy(Protocol):
    """Bounded memory in the Infinite Room."""

    @property
    def vectors(self) -> Matrix:
        """Return the normalised vectors for the search [n, d]."""
        ...

    def label(self, position: int) -> int:
        """Return the label that the memory at ``position`` predicts (-1: none)."""
        ...

    def observe(self, moment: Moment) -> None:
        """Learn from a step."""
        ...


class Guess:
    """Policy that remembers nothing; the paper's Random at 0.02."""

    vectors = np.zeros((0, DIMENSION), dtype=np.float32)

    def label(self, position: int) -> int:
        """Raise: nothing is ever recalled."""
        raise IndexError(position)

    def observe(self, moment: Moment) -> None:
        """Learn nothing."""


class CachePolicy:
    """Store of fixed capacity; subclasses choose the slot to overwrite.

    Args:
        deduplicate: Refresh a slot within the threshold of the observation, do not insert.
        seed: For the policies that draw.
        capacity: Number of slots.
    """

    def __init__(self, deduplicate: bool, seed: int, capacity: int = CAPACITY) -> None:
        self._slots = np.zeros((capacity, DIMENSION), dtype=np.float32)
        self._labels = [-1] * capacity
        self._capacity = capacity
        self._size = 0
        self._deduplicate = deduplicate
        self._rng = np.random.default_rng([seed, 977])
        self._step = 0

    @property
    def vectors(self) -> Matrix:
        """Return the occupied slots."""
        return self._slots[: self._size]

    def label(self, position: int) -> int:
        """Return the label stored in a slot."""
        return self._labels[position]

    def observe(self, moment: Moment) -> None:
        """Count hits, then refresh a slot or insert."""
        self._step = moment.step
        for recalled in moment.recalled:
            self.on_hit(recalled)
        if self._deduplicate and moment.recalled:
            self.on_repeat(moment.recalled[0], moment.label)
            return
        position = self._slot_to_fill()
        if position is None:
            return
        self._slots[position] = moment.vector
        self._labels[position] = moment.label
        self.on_insert(position)

    def on_hit(self, position: int) -> None:
        """Handle the recall of a slot."""

    def on_insert(self, position: int) -> None:
        """Handle an insertion into a slot."""

    def on_repeat(self, position: int, label: int) -> None:
        """Take the newest label of a slot that was observed again."""
        self._labels[position] = label

    def victim(self) -> int | None:
        """Return the slot to overwrite; None keeps the store as it is."""
        raise NotImplementedError

    def _slot_to_fill(self) -> int | None:
        if self._size < self._capacity:
            self._size += 1
            return self._size - 1
        return self.victim()


class RandomEviction(CachePolicy):
    """Evict a random slot."""

    def victim(self) -> int:
        """Return a uniform slot."""
        return int(self._rng.integers(self._capacity))


class Fifo(CachePolicy):
    """Evict the oldest insertion."""

    _next = -1

    def victim(self) -> int:
        """Return the slots in turn."""
        self._next = (self._next + 1) % self._capacity
        return self._next


class Lru(CachePolicy):
    """Evict the slot that was used longest ago."""

    def __init__(self, deduplicate: bool, seed: int, capacity: int = CAPACITY) -> None:
        super().__init__(deduplicate, seed, capacity)
        self._used = [0] * capacity

    def on_hit(self, position: int) -> None:
        """Refresh the slot."""
        self._used[position] = self._step

    on_insert = on_hit

    def victim(self) -> int:
        """Return the slot of the oldest use."""
        return self._used.index(min(self._used))


class Lfu(CachePolicy):
    """Evict the slot of the fewest hits; among equals, the oldest use.

    With a decay below 1 the hits fade: the paper's greedy Importance.
    """

    decay = 1.0

    def __init__(self, deduplicate: bool, seed: int, capacity: int = CAPACITY) -> None:
        super().__init__(deduplicate, seed, capacity)
        self._score = [0.0] * capacity
        self._used = [0] * capacity

    def on_hit(self, position: int) -> None:
        """Count the hit."""
        self._score[position] = self._now(position) + 1.0
        self._used[position] = self._step

    def on_insert(self, position: int) -> None:
        """Start to count."""
        self._score[position] = 1.0
        self._used[position] = self._step

    def victim(self) -> int:
        """Return the slot of the lowest score."""
        return min(range(self._capacity), key=lambda i: (self._now(i), self._used[i]))

    def _now(self, position: int) -> float:
        age = self._step - self._used[position]
        return float(self._score[position] * self.decay**age)


class VotingLfu(Lfu):
    """LFU that votes: an observation with the slot's label counts for it, another label against.

    A slot answers with the label that it was observed with most often.
    """

    def __init__(self, deduplicate: bool, seed: int, capacity: int = CAPACITY) -> None:
        super().__init__(deduplicate, seed, capacity)
        self._votes: list[Counter[int]] = [Counter() for _ in range(capacity)]

    def on_insert(self, position: int) -> None:
        """Forget the votes for the previous content."""
        super().on_insert(position)
        self._votes[position] = Counter([self._labels[position]])

    def on_repeat(self, position: int, label: int) -> None:
        """Count the vote; of equals, the label that was there first."""
        self._votes[position][label] += 1
        self._labels[position] = self._votes[position].most_common(1)[0][0]

    def victim(self) -> int:
        """Return the slot of the fewest votes for less votes against; of equals, the oldest use."""
        return min(range(self._capacity), key=lambda slot: (self._net(slot), self._used[slot]))

    def _net(self, slot: int) -> int:
        votes = self._votes[slot]
        return 2 * max(votes.values()) - votes.total()


class Importance(Lfu):
    """Greedy importance: hits that fade by 1 % per step."""

    decay = 0.99


class Reservoir(CachePolicy):
    """Keep a uniform sample of the insertions (algorithm R)."""

    _overflowed = 0

    def victim(self) -> int | None:
        """Return a slot with probability capacity / seen."""
        self._overflowed += 1
        position = int(self._rng.integers(self._capacity + self._overflowed))
        return position if position < self._capacity else None


class Sieve(CachePolicy):
    """SIEVE: a queue with a hand that spares slots visited since it passed."""

    def __init__(self, deduplicate: bool, seed: int, capacity: int = CAPACITY) -> None:
        super().__init__(deduplicate, seed, capacity)
        self._queue: list[int] = []
        self._visited = [False] * capacity
        self._hand = 0

    def on_hit(self, position: int) -> None:
        """Mark the slot."""
        self._visited[position] = True

    def on_insert(self, position: int) -> None:
        """Join the queue at its young end."""
        self._queue.append(position)
        self._visited[position] = False

    def victim(self) -> int:
        """Move the hand from old to young until it meets an unvisited slot."""
        if self._hand >= len(self._queue):
            self._hand = 0
        while self._visited[self._queue[self._hand]]:
            self._visited[self._queue[self._hand]] = False
            self._hand = (self._hand + 1) % len(self._queue)
        return self._queue.pop(self._hand)


class Arc(CachePolicy):
    """ARC: recency and frequency lists whose balance follows hits on ghosts of the evicted.

    A ghost is hit by an observation within the threshold. As many ghosts as slots.
    """

    def __init__(self, deduplicate: bool, seed: int, capacity: int = CAPACITY) -> None:
        super().__init__(deduplicate, seed, capacity)
        self._recent: list[int] = []
        self._frequent: list[int] = []
        self._ghosts: tuple[list[Vector], list[Vector]] = ([], [])
        self._target = 0.0
        self._returning = False
        self._from_frequent_ghost = False

    def observe(self, moment: Moment) -> None:
        """Adapt to a ghost hit before inserting."""
        inserts = not (self._deduplicate and moment.recalled)
        self._returning = inserts and self._ghost_hit(moment.vector)
        super().observe(moment)

    def on_hit(self, position: int) -> None:
        """Move the slot to the young end of the frequency list."""
        owner = self._recent if position in self._recent else self._frequent
        owner.remove(position)
        self._frequent.append(position)

    def on_insert(self, position: int) -> None:
        """Join the recency list, or the frequency list after a ghost hit."""
        (self._frequent if self._returning else self._recent).append(position)

    def victim(self) -> int:
        """Evict from the list that exceeds its target, leaving a ghost."""
        recent = len(self._recent)
        full = recent > self._target or (
            self._from_frequent_ghost and self._returning and recent == int(self._target)
        )
        side = 0 if (recent and full) or not self._frequent else 1
        position = (self._recent, self._frequent)[side].pop(0)
        self._ghosts[side].append(self._slots[position].copy())
        if len(self._ghosts[0]) + len(self._ghosts[1]) > self._capacity:
            larger = 0 if len(self._ghosts[0]) >= len(self._ghosts[1]) else 1
            self._ghosts[larger].pop(0)
        return position

    def _ghost_hit(self, vector: Vector) -> bool:
        sizes = len(self._ghosts[0]), len(self._ghosts[1])
        for side, ghosts in enumerate(self._ghosts):
            if not ghosts:
                continue
            similarities = np.stack(ghosts) @ vector
            nearest = int(np.argmax(similarities))
            if similarities[nearest] < THRESHOLD:
                continue
            ghosts.pop(nearest)
            self._from_frequent_ghost = side == 1
            change = max(1.0, sizes[1 - side] / sizes[side])
            signed = change if side == 0 else -change
            self._target = min(float(self._capacity), max(0.0, self._target + signed))
            return True
        return False


class Oracle:
    """Oracle that knows concept, noise and current popularity, but not the future.

    Keeps the most popular of the concepts seen, with the label last seen; among equally popular
    ones those seen last, whose labels are the freshest.
    """

    def __init__(self, source: Stream, capacity: int = CAPACITY) -> None:
        self._source = source
        self._capacity = capacity
        self._held: list[int] = []
        self._label_of: dict[int, int] = {}

    @property
    def vectors(self) -> Matrix:
        """Return the noise-free vectors of the held concepts."""
        return self._source.centres[self._held]

    def label(self, position: int) -> int:
        """Return the label last seen with the concept."""
        return self._label_of[self._held[position]]

    def answer(self, concept: int) -> int:
        """Return the label for a concept, or -1; the oracle needs no similarity."""
        return self._label_of[concept] if concept in self._held else -1

    def observe(self, moment: Moment) -> None:
        """Keep the concept if it is among the most popular ones so far."""
        concept = int(self._source.concepts[moment.step])
        if concept < 0:
            return
        self._label_of[concept] = moment.label
        if concept in self._held:
            self._held.remove(concept)
        self._held.append(concept)
        if len(self._held) > self._capacity:
            popularity = self._source.popularity[moment.step]
            self._held.remove(min(self._held, key=lambda held: float(popularity[held])))


CACHES: dict[str, type[CachePolicy]] = {
    "Random eviction": RandomEviction,
    "FIFO": Fifo,
    "LRU": Lru,
    "LFU": Lfu,
    "Importance": Importance,
    "Reservoir": Reservoir,
    "SIEVE": Sieve,
    "ARC": Arc,
}
