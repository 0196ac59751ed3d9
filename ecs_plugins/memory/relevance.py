"""Is there anything to recall? One rule for the memory, its store, retrievers, middlewares and MCP.

What a question is about are its words without those that every sentence has. A question that shares
no word with its answer ("I moved to Beijing." / "Where do I live?") is near it all the same; how
near tells other words from nothing better than any sum with shared words does. So a logistic
regression judges a question by what it meets: the largest cosine, the best sum of cosine and
coverage, how far the nearest item stands out, how many items there are, whether it names whom
nobody here knows, and whether it asks of a person. Items behind the best one are as much less
likely as they fit less.

The weights were learned on pairs of facts and questions of this project and on paragraphs and
questions of SQuAD (CC BY-SA 4.0), under all-MiniLM-L6-v2; LoCoMo was only measured. A cosine of
another embedder is brought to the units of that one first (`Scale`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from ecs_plugins.common.text import WORD, terms
from ecs_plugins.memory.near_texts import word_list
from ecs_plugins.memory.types import Floats

_ENGLISH = word_list(
    """a an the i my me mine we us our you your he his him she her it its they them their this that
    these those there here and but or so if as at by for from in into of off on onto out over to
    under up with about after again before then now also just really very since while because
    though although am is are was were be been being do does did have has had can could will would
    shall should might must may what when where which who whose whom why how not no yes"""
)
_GERMAN = word_list(
    """ich mein meine meinen meinem meiner mich mir wir unser unsere du dein deine er sie es ihr der
    die das den dem des ein eine einen einem einer und oder aber ist bin sind war waren hat habe
    haben wird werden kann muss was wann wo wohin woher welche welcher welches welchen wer wen wem
    wie warum zu in im am an auf aus bei mit von vom nach für man nicht kein keine"""
)
_ROMANCE = word_list(
    """je mon ma mes me moi nous notre nos tu ton ta tes il elle le la les un une des du de et ou
    mais est suis sont ai as avons que qui quel quelle quels quelles quand où comment pourquoi dans
    sur avec pour en au aux ce cette yo mi mis nosotros nuestro el los las una unos unas y o pero es
    soy son tengo tiene qué quién cuál cuáles cuándo dónde cómo por con para al del se io mio mia
    miei mie noi nostro lo gli uno e ma è sono ho hai ha che chi quale quali quando dove come perché
    di a da nel della dei"""
)
_FUNCTION: Final = _ENGLISH | _GERMAN | _ROMANCE
_GERMAN_ALONE: Final = _GERMAN - _ENGLISH - _ROMANCE
_PERSONAL: Final = word_list(
    """i me my mine myself we us our ours you your yours ich mein meine meinen meinem meiner mich
    mir wir unser unsere je j mon ma mes moi nous notre nos yo mi mis nosotros nuestro io mio mia
    miei mie noi nostro"""
)
_PERSONAL_SIGNS: Final = re.compile("[我私僕俺나저]")

_BIAS: Final = -3.0
_COSINE: Final = 24.5
_FIT: Final = 4.8
_GAP: Final = -12.2
_ITEMS: Final = -1.4
_UNKNOWN: Final = -11.4
_PERSON: Final = 5.4
_DECAY: Final = 2.0
"""By how many nats an item is less likely per unit of fit below the best one's."""

_SLOPE: Final = 18.8
_OFFSET: Final = -10.0
"""Nats per unit of fit, and at none, that an item is evidence: two numbers of a logistic regression
on LoCoMo's development half, whose licence (CC BY-NC 4.0) allows no commercial use."""

FOURTH: Final = 4
"""The item whose cosine the largest one is compared with."""


@dataclass(frozen=True, slots=True)
class QueryReading:
    """What is asked.

    Attributes:
        content: The question without the words that every sentence has; all of it if it has no
            others.
        names: Words in it that may name somebody, casefolded. Where nouns are written large, none.
        is_personal: Whether it asks of the speaker.
    """

    content: str
    names: tuple[str, ...]
    is_personal: bool


def read(query: str) -> QueryReading:
    """What a query asks.

    >>> read("Where does Ada's brother live?")
    QueryReading(content="ada's brother live", names=('ada',), is_personal=False)
    """
    words = terms(query)
    stems = {word.partition("'")[0] for word in words}
    content = [word for word in words if word.partition("'")[0] not in _FUNCTION]
    names = []
    if stems.isdisjoint(_GERMAN_ALONE):
        large = [word for word in WORD.findall(query)[1:] if word[0].isupper()]
        names = [word.casefold() for word in large if word.casefold() not in _FUNCTION]
    is_personal = not stems.isdisjoint(_PERSONAL) or bool(_PERSONAL_SIGNS.search(query))
    return QueryReading(" ".join(content) or query, tuple(dict.fromkeys(names)), is_personal)


class Scale(NamedTuple):
    """How near texts that have nothing to do with each other lie under an embedder.

    Attributes:
        mean: Of their cosines.
        deviation: The standard deviation of these.
    """

    mean: float = 0.094
    deviation: float = 0.092

    def to_default(self, cosines: Floats) -> Floats:
        """The cosines as all-MiniLM-L6-v2 would mean them."""
        if self == DEFAULT:
            return cosines
        standardised = (cosines - self.mean) / self.deviation
        return DEFAULT.mean + DEFAULT.deviation * standardised


DEFAULT: Final = Scale()


@dataclass(frozen=True, slots=True)
class Encounter:
    """What a question meets in a namespace.

    Attributes:
        cosine: The largest cosine.
        fourth: The cosine of the fourth nearest item, or of the last of fewer.
        fit: The largest mean of cosine and coverage.
        items: How many items there are.
        unknown: Share of the names asked for that no item has.
        is_about_somebody: Whether it asks of the speaker, or names somebody who is known here.
    """

    cosine: float
    fourth: float
    fit: float
    items: int
    unknown: float
    is_about_somebody: bool


def encounter(
    question: QueryReading, cosines: Floats, fits: Floats, *, items: int, known: Collection[str]
) -> Encounter:
    """What a question meets.

    Args:
        question: What is asked.
        cosines: Of the candidates [n], at least one, in the units of the default embedder.
        fits: Their means of cosine and coverage [n].
        items: How many items there are.
        known: The names asked for that any item has.
    """
    nearest = np.sort(cosines)[::-1][:FOURTH]
    unknown = 0.0
    if question.names:
        unknown = 1 - len(known) / len(question.names)
    return Encounter(
        cosine=float(nearest[0]),
        fourth=float(nearest[-1]),
        fit=float(fits.max()),
        items=items,
        unknown=unknown,
        is_about_somebody=question.is_personal or bool(known),
    )


def probability(met: Encounter) -> float:
    """That anything among the items is evidence for the answer."""
    logit = (
        _BIAS
        + _COSINE * met.cosine
        + _FIT * met.fit
        + _GAP * (met.cosine - met.fourth)
        + _ITEMS * float(np.log(max(met.items, 1)))
        + _UNKNOWN * met.unknown
        + _PERSON * met.is_about_somebody
    )
    return float(1.0 / (1.0 + np.exp(-logit)))


def relevance(fits: Floats, met: Encounter) -> Floats:
    """That each item is evidence for the answer, in the order of their fit.

    Args:
        fits: Means of cosine and coverage [n].
        met: What the question meets.
    """
    decayed = np.exp(-_DECAY * np.maximum(met.fit - fits, 0.0))
    scores: Floats = (probability(met) * decayed).round(9)
    return scores


def demands(similarities: Sequence[float], coverage: Sequence[float], scale: Scale) -> list[float]:
    """How much a recall asks for each item that it returns: were it evidence, seen by itself.

    `relevance` says whether anything answers, and is much the same for all that is returned.

    Args:
        similarities: Cosines of the items with the question [n].
        coverage: How much of the question each covers [n].
        scale: Of their embedder.
    """
    fits = (scale.to_default(np.array(similarities)) + np.array(coverage)) / 2
    asked: list[float] = (1.0 / (1.0 + np.exp(-(_SLOPE * fits + _OFFSET)))).tolist()
    return asked
