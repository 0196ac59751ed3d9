"""Asks the cases of a memory with the settings that ship."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.memory_words.cases import Change, Pair, Questions
from ecs_plugins.memory import EntropicMemory, StoreConfig
from ecs_plugins.ranking.embedder import Embedder

FACTS = 30
"""Facts in a memory, of which eight share words with their questions."""
_SHARING = 8
_DAY = 86_400.0
_FIRST = 1_700_000_000.0


@dataclass(frozen=True, slots=True)
class Share:
    """So many of so many."""

    what: str
    hits: int
    of: int

    def __str__(self) -> str:
        return f"{self.hits / self.of:.2f} ({self.hits} of {self.of})"


def opened(embedder: Embedder) -> EntropicMemory:
    """A memory in the process that sleeps when it is told to."""
    return EntropicMemory.open(embedder=embedder, store=StoreConfig(sleep="manual"))


def answered(memory: EntropicMemory, question: str, namespace: tuple[str, ...]) -> list[str]:
    """The texts of what a recall with the settings that ship gives."""
    recalled = memory.recall(question, namespace=namespace, record=False)
    return [each.text for each in recalled]


def in_other_words(embedder: Embedder, questions: Questions, rounds: int, seed: int) -> list[Share]:
    """How many facts are recalled, of some drawn anew in each round; and how much for nothing."""
    draw = random.Random(seed)
    english = questions.other_words["English"]
    counts = dict.fromkeys(("other words", "shared words", "nothing"), 0)
    with opened(embedder) as memory:
        for number in range(rounds):
            namespace = ("round", str(number))
            other = draw.sample(english, FACTS - _SHARING)
            shared = draw.sample(questions.shared_words, _SHARING)
            memory.add([pair.fact for pair in (*other, *shared)], namespace=namespace)
            counts["other words"] += _recalled(memory, other, namespace)
            counts["shared words"] += _recalled(memory, shared, namespace)
            for question in questions.nothing:
                counts["nothing"] += bool(answered(memory, question, namespace))
    return [
        Share("other words", counts["other words"], rounds * (FACTS - _SHARING)),
        Share("shared words", counts["shared words"], rounds * _SHARING),
        Share("about nothing, answered", counts["nothing"], rounds * len(questions.nothing)),
    ]


def in_other_languages(embedder: Embedder, questions: Questions) -> list[Share]:
    """How many facts are recalled in each language, with twenty English ones beside them."""
    shares = []
    english = questions.other_words["English"]
    with opened(embedder) as memory:
        for language, pairs in questions.other_words.items():
            if language == "English":
                continue
            memory.add([pair.fact for pair in (*pairs, *english[:20])], namespace=(language,))
            hits = _recalled(memory, pairs, (language,))
            shares.append(Share(language, hits, len(pairs)))
    return shares


def _recalled(memory: EntropicMemory, pairs: Iterable[Pair], namespace: tuple[str, ...]) -> int:
    return sum(pair.fact in answered(memory, pair.question, namespace) for pair in pairs)


def of_changes(
    embedder: Embedder, changed: Sequence[Change], holding: Sequence[Change], others: Sequence[str]
) -> list[Share]:
    """What is superseded, and whether the valid statement is recalled first.

    Each case stands in a namespace of its own, among ``others``, its statements ten days apart.
    """
    fell = 0
    first = 0
    wrongly = 0
    with opened(embedder) as memory:
        for number, case in enumerate((*changed, *holding)):
            namespace = ("case", str(number))
            memory.add([{"content": text, "at": _FIRST} for text in others], namespace=namespace)
            (earlier,) = memory.add(case.earlier, namespace=namespace, at=_FIRST + _DAY)
            memory.add(case.later, namespace=namespace, at=_FIRST + 11 * _DAY)
            message = memory.get(earlier)
            assert message is not None
            has_fallen = message.superseded_by is not None
            if not case.question:
                wrongly += has_fallen
                continue
            fell += has_fallen
            texts = answered(memory, case.question, namespace)
            first += bool(texts) and texts[0] == case.later
    return [
        Share("must fall, fell", fell, len(changed)),
        Share("must hold, fell", wrongly, len(holding)),
        Share("changed, the valid one first", first, len(changed)),
    ]
