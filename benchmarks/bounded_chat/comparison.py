"""Bounded memory on real chat: the share of later evidence that a small memory keeps.

A chat is told to a memory turn by turn. After each session it is asked, and told the answers of,
those questions of the first half (`Chat.split`) whose evidence is complete; this is all that it
learns about what matters. At the end the other half is asked, and evidence recall@k is the share
of a question's evidence turns among the k items recalled. It is counted twice:

* ``words``: an item counts for the one turn whose words it holds. This is the strict count, and the
  one to compare stores by: a memory that merged twenty turns answers with one of them.
* ``provenance``: an item counts for every turn merged into it. It says what could be looked up
  in the log behind the memory, and grows without limit with the size of the clusters.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

import numpy as np

from benchmarks.bounded_chat.chats import Chat, ChatQuestion, Split
from benchmarks.bounded_chat.stores import ChatStore, Remembered, Room, StoreFactory
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.ranking.embedder import Embedder

Count = Literal["words", "provenance"]
COUNTS: tuple[Count, ...] = ("words", "provenance")
RESAMPLES = 4000

_TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class ChatProtocol:
    """Protocol of a chat.

    Attributes:
        capacities: Budgets, as shares of the turns.
        ks: Values of k.
        split: Which questions are asked on the way.
        recalls: Items that a recall returns on the way.
        seed: For the stores that draw.
    """

    capacities: tuple[float, ...] = (0.01, 0.02, 0.05, 0.10, 0.20, 0.50, 1.00)
    ks: tuple[int, ...] = (5, 10)
    split: Split = "interleaved"
    recalls: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        if not self.capacities or not all(0 < share <= 1 for share in self.capacities):
            raise InvalidInputError("capacities are shares of the turns in (0, 1]")
        if not self.ks or min(self.ks) < 1 or self.recalls < 1:
            raise InvalidInputError("every k, and the number of recalls, is at least 1")


@dataclass(slots=True)
class ChatRun:
    """One store at one capacity on one chat.

    Attributes:
        chat: Its id.
        budget: Items that it might search.
        size: Items that it did search at the end.
        words: Per k, the strict recall of each question.
        provenance: Per k, the recall of each question with all turns behind an item.
        milliseconds: To tell it one turn, without embedding; the questions on the way included.
        tokens: Words and punctuation marks recalled per question, per k.
    """

    chat: str
    budget: int
    size: int
    words: dict[int, list[float]] = field(default_factory=dict)
    provenance: dict[int, list[float]] = field(default_factory=dict)
    milliseconds: float = 0.0
    tokens: dict[int, float] = field(default_factory=dict)

    def recalls(self, k: int, count: Count) -> list[float]:
        """Recall of each question."""
        return (self.words if count == "words" else self.provenance)[k]


@dataclass(slots=True)
class ChatResults:
    """All runs: ``runs[capacity][store]`` lists one `ChatRun` per chat, in order."""

    protocol: ChatProtocol
    runs: dict[float, dict[str, list[ChatRun]]] = field(default_factory=dict)

    def mean(self, capacity: float, store: str, k: int, count: Count = "words") -> float:
        """Mean recall over all questions."""
        return float(np.mean(np.concatenate(self._values(capacity, store, k, count))))

    def difference(
        self, capacity: float, first: str, second: str, k: int, count: Count = "words"
    ) -> tuple[float, float, float]:
        """Mean of ``first - second`` over questions, with its 95 % interval; see `two_level`."""
        pairs = zip(
            self._values(capacity, first, k, count),
            self._values(capacity, second, k, count),
            strict=True,
        )
        differences = [a - b for a, b in pairs]
        low, high = two_level(differences, seed=self.protocol.seed)
        return float(np.mean(np.concatenate(differences))), low, high

    def cost(self, capacity: float, store: str, k: int) -> tuple[float, float]:
        """Milliseconds per turn told, and tokens that a recall of k items returns."""
        runs = self.runs[capacity][store]
        weights = [len(run.recalls(k, "words")) for run in runs]
        tokens = np.average([run.tokens[k] for run in runs], weights=weights)
        return float(np.mean([run.milliseconds for run in runs])), float(tokens)

    def best(self, capacity: float, stores: Sequence[str], k: int) -> str:
        """The store of highest mean recall by the strict count."""
        return max(stores, key=lambda name: self.mean(capacity, name, k))

    def to_json(self) -> dict[str, object]:
        """Return everything as plain JSON types."""
        return {
            "protocol": asdict(self.protocol),
            "runs": {
                str(capacity): {name: [asdict(run) for run in runs] for name, runs in table.items()}
                for capacity, table in self.runs.items()
            },
        }

    def _values(
        self, capacity: float, store: str, k: int, count: Count
    ) -> list[np.ndarray[tuple[int], np.dtype[np.float64]]]:
        return [np.asarray(run.recalls(k, count)) for run in self.runs[capacity][store]]


def two_level(
    groups: Sequence[np.ndarray[tuple[int], np.dtype[np.float64]]],
    *,
    seed: int,
    resamples: int = RESAMPLES,
) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the mean: chats are drawn, then questions in them.

    Questions about one chat are not independent, so that drawing questions alone would promise
    too much.
    """
    rng = np.random.default_rng(seed)
    sizes = np.array([len(group) for group in groups])
    sums = np.zeros((resamples, len(groups)))
    drawn = rng.integers(0, len(groups), (resamples, len(groups)))
    for at, group in enumerate(groups):
        times = (drawn == at).sum(axis=1)
        for row in np.flatnonzero(times):
            picked = rng.integers(0, len(group), (int(times[row]), len(group)))
            sums[row, at] = group[picked].sum()
    counts = sizes[drawn].sum(axis=1)
    low, high = np.percentile(sums.sum(axis=1) / counts, [2.5, 97.5])
    return float(low), float(high)


def play(store: ChatStore, chat: Chat, protocol: ChatProtocol) -> list[list[Remembered]]:
    """Tell a chat to a store and return its recalls for the questions at the end."""
    tell(store, chat, protocol)
    return [store.recall(each, max(protocol.ks)) for each in chat.split(protocol.split)[1]]


def tell(store: ChatStore, chat: Chat, protocol: ChatProtocol) -> None:
    """Tell a chat to a store, with the questions on the way."""
    seen, _ = chat.split(protocol.split)
    asked = chat.asked_after(seen)
    for position in range(len(chat.turns)):
        store.add(position)
        for question in asked.get(position, ()):
            store.ask(question)


def evidence_recall(question: ChatQuestion, recalled: Sequence[Remembered], count: Count) -> float:
    """Share of the question's evidence turns that the items recalled hold."""
    wanted = set(question.evidence)
    if count == "words":
        held = {item.representative for item in recalled if item.representative is not None}
    else:
        held = {position for item in recalled for position in item.provenance}
    return len(wanted & held) / len(wanted)


def session_recall(
    question: ChatQuestion, recalled: Sequence[Remembered], k: int, sessions: Sequence[int]
) -> float:
    """Share of the sessions of the evidence among the first ``k`` sessions that items come from.

    Args:
        question: The question.
        recalled: Items, best first; each counts for the turn whose words it holds.
        k: Sessions that count.
        sessions: Of each turn.
    """
    found = dict.fromkeys(
        sessions[item.representative] for item in recalled if item.representative is not None
    )
    wanted = {sessions[position] for position in question.evidence}
    return len(wanted.intersection(list(found)[:k])) / len(wanted)


def compare(
    chats: Sequence[Chat],
    stores: Mapping[str, StoreFactory],
    embedder: Embedder,
    protocol: ChatProtocol,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> ChatResults:
    """Play every chat at every capacity to every store.

    Args:
        chats: The chats.
        stores: What to compare, by name.
        embedder: Of turns and questions; each text is asked for many times.
        protocol: How.
        progress: Called with (runs done, runs in all).
    """
    results = ChatResults(protocol)
    total = len(chats) * len(stores) * len(protocol.capacities)
    done = 0
    for capacity in protocol.capacities:
        table = results.runs.setdefault(capacity, {name: [] for name in stores})
        for chat in chats:
            room = Room(
                chat=chat,
                vectors=embedder.embed_documents(chat.read),
                embedder=embedder,
                budget=max(2, round(capacity * len(chat.turns))),
                asked_later=chat.split(protocol.split)[1],
                recalls=protocol.recalls,
                seed=protocol.seed,
            )
            for name, make in stores.items():
                table[name].append(_run(make(room), room, protocol))
                done += 1
                if progress is not None:
                    progress(done, total)
    return results


def _run(store: ChatStore, room: Room, protocol: ChatProtocol) -> ChatRun:
    try:
        began = time.perf_counter()
        tell(store, room.chat, protocol)
        taken = 1000 * (time.perf_counter() - began) / len(room.chat.turns)
        turns, ks = room.chat.turns, protocol.ks
        depth = len(turns) if room.chat.by_session else max(ks)
        recalled = [store.recall(question, depth) for question in room.asked_later]
        run = ChatRun(room.chat.id, room.budget, store.size(), milliseconds=taken)
    finally:
        store.close()
    sessions = [turn.session for turn in turns]
    answered = list(zip(room.asked_later, recalled, strict=True))
    for k in ks:
        for count, values in zip(COUNTS, (run.words, run.provenance), strict=True):
            values[k] = [
                session_recall(question, items, k, sessions)
                if room.chat.by_session
                else evidence_recall(question, items[:k], count)
                for question, items in answered
            ]
        said = [turns[at].text for items in recalled for item in items[:k]
                if (at := item.representative) is not None]  # fmt: skip
        run.tokens[k] = sum(len(_TOKEN.findall(text)) for text in said) / len(recalled)
    return run
