"""Learning of the numbers of `ecs_plugins.memory.relevance`, and figures about them.

A logistic regression tells the best evidence of an answerable question from the best item of a
question that nothing answers. Learned on own pairs and small talk, LongMemEval and MTRAG.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

import benchmarks.datasets
from benchmarks.bounded_chat.chats import Chat
from ecs_plugins.common.text import asks_only
from ecs_plugins.memory.relevance import Encounter, encounter, read, relevance
from ecs_plugins.memory.types import Floats
from ecs_plugins.ranking.coverage import CoverageIndex
from ecs_plugins.ranking.embedder import Embedder

FOLDER = Path(benchmarks.datasets.__file__).parent
SHARES: Mapping[str, float] = {
    "own pairs in other words": 300,
    "own pairs that share words": 60,
    "own questions about nothing": 250,
    "own small talk": 150,
    "LongMemEval": 100,
    "LongMemEval, of the other history": 150,
    "MTRAG": 80,
    "MTRAG, unanswerable": 40,
}
"""Weight of each kind of question in the regression."""


@dataclass(frozen=True)
class AskedQuestion:
    """A question in a namespace of texts.

    Attributes:
        kind: Where it comes from.
        cosines: Of the items [n].
        coverage: Of the items [n].
        met: The facts about the namespace.
        evidence: Positions of the items that answer it; none if nothing does.
    """

    kind: str
    cosines: Floats
    coverage: Floats
    met: Encounter
    evidence: tuple[int, ...]

    @property
    def fits(self) -> Floats:
        """Means of cosine and coverage [n]."""
        return (self.cosines + self.coverage) / 2

    @property
    def features(self) -> Floats:
        """Cosine, coverage, log of the items, unknown names, cosine if about somebody [n, 5]."""
        count = len(self.cosines)
        somebody = float(self.met.is_about_somebody)
        columns = [
            self.cosines,
            self.coverage,
            np.full(count, np.log(max(self.met.items, 1))),
            np.full(count, self.met.unknown),
            somebody * self.cosines,
        ]
        return np.stack(columns, axis=1)

    def recalled(self, threshold: float, k: int = 3) -> list[int]:
        """Return the positions that a recall gives."""
        scores = relevance(self.cosines, self.coverage, self.met)
        best = np.argsort(-self.fits, kind="stable")
        return [at for at in best.tolist() if scores[at] >= threshold][:k]


class _Texts:
    """A namespace of texts, without those that only ask."""

    def __init__(
        self, texts: Sequence[str], embedder: Embedder, read_as: Sequence[str] = ()
    ) -> None:
        told = [at for at, text in enumerate(texts) if not asks_only(text)]
        self._place = {at: place for place, at in enumerate(told)}
        self._embedder = embedder
        shown = [(read_as or texts)[at] for at in told]
        self._vectors = embedder.embed_documents(shown)
        self._words = CoverageIndex()
        for number, text in enumerate(shown):
            self._words.add(number, text)

    def asked(self, kind: str, question: str, evidence: Sequence[int]) -> AskedQuestion:
        """Return a question with its features."""
        query = read(question)
        known = [name for name in query.names if self._words.has(name)]
        numbers = np.arange(len(self._vectors))
        cosines = self._vectors @ self._embedder.embed_query(question)
        return AskedQuestion(
            kind=kind,
            cosines=cosines.astype(np.float64),
            coverage=self._words.coverage(query.content, numbers),
            met=encounter(query, items=len(numbers), known=known),
            evidence=tuple(self._place[at] for at in evidence if at in self._place),
        )


def own_questions(embedder: Embedder, rounds: int = 18, seed: int = 3) -> list[AskedQuestion]:
    """Return own pairs, questions about nothing and small talk in namespaces of 8 to 40 facts."""
    pairs = json.loads((FOLDER / "other_words.json").read_text(encoding="utf-8"))
    talk = json.loads((FOLDER / "small_talk.json").read_text(encoding="utf-8"))
    draw = random.Random(seed)
    asked = []
    for number in range(rounds):
        size = (22, 8, 12, 20, 40)[number % 5]
        others = draw.sample(pairs["other_words"]["English"], size)
        shared = draw.sample(pairs["shared_words"], 8) if size == 22 else []
        texts = _Texts([fact for fact, _ in (*others, *shared)], embedder)
        for place, (_, question) in enumerate((*others, *shared)):
            kind = "own pairs in other words" if place < size else "own pairs that share words"
            asked.append(texts.asked(kind, question, [place]))
        unanswered = {"own questions about nothing": pairs["nothing"], "own small talk": talk}
        for kind, questions in unanswered.items():
            asked += [texts.asked(kind, question, []) for question in questions]
    return asked


def chat_questions(name: str, chats: Sequence[Chat], embedder: Embedder) -> list[AskedQuestion]:
    """Return the questions of chats, each asked in its own chat and in another one."""
    spaces = [_Texts([turn.text for turn in chat.turns], embedder, chat.read) for chat in chats]
    asked = []
    for place, chat in enumerate(chats):
        other = spaces[(place + 1) % len(chats)]
        for question in chat.questions:
            asked.append(spaces[place].asked(name, question.text, question.evidence))
            asked.append(other.asked(f"{name}, of the other history", question.text, []))
    return asked


def mtrag_questions(path: Path, embedder: Embedder) -> list[AskedQuestion]:
    """Return the questions of MTRAG that are no follow-ups, among the passages of all of these."""
    data = json.loads(path.read_text(encoding="utf-8"))
    tasks = [task for task in data["tasks"] if "Follow-up" not in task["multi_turn"]]
    asked = []
    for collection in sorted({task["collection"] for task in tasks}):
        own = [task for task in tasks if task["collection"] == collection]
        wanted = {name for task in own for name in task["relevant"] if name in data["documents"]}
        names = sorted(wanted)
        place = {name: at for at, name in enumerate(names)}
        texts = _Texts([data["documents"][name] for name in names], embedder)
        for task in own:
            question = task["turns"][-1]["text"]
            evidence = [place[name] for name in task["relevant"] if name in place]
            if "UNANSWERABLE" in task["answerability"]:
                asked.append(texts.asked("MTRAG, unanswerable", question, []))
            elif evidence:
                asked.append(texts.asked("MTRAG", question, evidence))
    return asked


def learned_scores(asked: Sequence[AskedQuestion], rounds: int = 8) -> dict[str, float]:
    """Return bias and weights: the best evidence against the best item where nothing answers."""
    weights = np.array([20.0, 3.0, 0.0, 0.0, 0.0])
    count = {kind: sum(each.kind == kind for each in asked) for kind in SHARES}
    importance = np.array([SHARES[each.kind] / count[each.kind] for each in asked])
    target = [bool(each.evidence) for each in asked]
    for _ in range(rounds):
        rows = []
        for each in asked:
            features = each.features
            logits = features @ weights
            among = list(each.evidence) or range(len(logits))
            rows.append(features[max(among, key=lambda at: logits[at])])
        model = LogisticRegression(C=100, max_iter=5000)
        model.fit(np.array(rows), target, sample_weight=importance / importance.mean())
        weights = model.coef_[0]
    names = ("_COSINE", "_COVERAGE", "_ITEMS", "_UNKNOWN", "_PERSON")
    found = dict(zip(names, weights.round(2).tolist(), strict=True))
    return {"_BIAS": round(float(model.intercept_[0]), 2), **found}


NOTES = 3
"""Items that count as found."""


def figures(asked: Sequence[AskedQuestion], threshold: float) -> list[list[str]]:
    """Return a row for each kind: questions, those with a note and with evidence among three.

    The last two columns are of the cosine alone, from the value at which as many own questions
    about nothing get a note.
    """
    empty = [each for each in asked if each.kind == "own questions about nothing"]
    noted = np.mean([bool(each.recalled(threshold)) for each in empty])
    least = float(np.quantile([each.cosines.max() for each in empty], 1 - noted))
    rows = []
    for kind in dict.fromkeys(each.kind for each in asked):
        own = [each for each in asked if each.kind == kind]
        row = [kind, str(len(own))]
        for found in (
            [each.recalled(threshold) for each in own],
            [_nearest(each.cosines, least) for each in own],
        ):
            row.append(f"{np.mean([bool(each) for each in found]):.3f}")
            hits = [
                not set(each.evidence).isdisjoint(got) for each, got in zip(own, found, strict=True)
            ]
            row.append(f"{np.mean(hits):.3f}" if own[0].evidence else "")
        rows.append(row)
    return rows


def _nearest(cosines: Floats, least: float) -> list[int]:
    """Return the places of the nearest items whose cosine is above ``least``."""
    best = np.argsort(-cosines, kind="stable")[:NOTES]
    return [int(place) for place in best if cosines[place] > least]
