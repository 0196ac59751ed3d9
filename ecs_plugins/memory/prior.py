"""How likely a text is to be asked for, seen by the text alone: the prior of its utility.

In a chat most turns carry little: greetings, applause, questions back. Few have been asked for by
the time when they must be judged. What a text looks like says something at once: names, numbers,
times and statements about oneself are asked for later, questions back are not.

`worth` is a logistic regression on plain features. ``python -m benchmarks memory-prior`` learns it
on public dialogue (LoCoMo, Maharana et al., 2024) and prints what ``prior.json`` holds.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping
from importlib import resources
from typing import Final, Literal

from ecs_plugins.common.text import UNSPACED, WORD, asks, sentence_spans, terms
from ecs_plugins.memory.wording import word_list

Known = Literal["english", "cased", "any"]
"""What is known of a language: its words, else whether its script has capitals."""

_LEARNED = json.loads(resources.files(__package__).joinpath("prior.json").read_bytes())
WEIGHTS: Final[Mapping[Known, Mapping[str, float]]] = _LEARNED["weights"]
"""Nats per unit of each feature. Each row is learned without the features that it lacks, so that
what a language does not show neither helps nor harms its texts."""

MOST: Final[Mapping[str, float]] = _LEARNED["most"]
"""The largest value met where the weights were learned; a larger one counts as this."""

UNFORESEEN: Final = 0.02
"""Odds that a text is asked for whatever it looks like: 0.044 of those that look least like it."""

_SPEAKER = re.compile(
    r"\A\s*(?:[(\[][^)\]\n]{1,60}[)\]]\s*)?[^\W\d_]\w*(?: [A-Z]\w*)?[^\S\n]?(?::\s|：)"
)
_UNSPACED = re.compile(rf"[{UNSPACED}]")
_WORDS_PER_BIGRAM = 0.6  # where words are not set apart
_LONG = 5


_FIRST_PERSON = word_list("i me my mine myself we us our ours ourselves")
_SECOND_PERSON = word_list("you your yours yourself yourselves")
_ENGLISH = word_list(
    "the and you your it i that this these with for have been they she there are how "
    "what when where of his her my"
)
_TIMES = word_list(
    "yesterday today tomorrow tonight last next ago since recently morning evening day days week "
    "weeks weekend month months year years spring summer fall autumn winter monday tuesday "
    "wednesday thursday friday saturday sunday january february march april june july august "
    "september october november december"
)
_PAST = word_list(
    "was were had went did got took made gave saw came found bought won met told said left felt "
    "thought knew became began kept lost ran wrote"
)


def worth(text: str) -> float:
    """Return the log-odds, in nats, that a text will be asked for.

    Args:
        text: With or without ``name:`` in front.

    >>> worth("I moved to Lisbon in May 2019.") > worth("Wow! How are you?")
    True
    """
    known, values = features(text)
    return log_odds(values, WEIGHTS[known], MOST)


def log_odds(
    values: Mapping[str, float], weights: Mapping[str, float], most: Mapping[str, float]
) -> float:
    """Return what features are worth under given weights; those without a weight do not count."""
    told = ((name, min(value, most[name])) for name, value in values.items() if name in weights)
    seen = weights["bias"] + sum(weights[name] * value for name, value in told)
    return math.log(math.exp(seen) + UNFORESEEN)


def features(text: str) -> tuple[Known, dict[str, float]]:
    """Return what is known of a text's language, and every feature by name; all are 0 or more."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).replace("’", "'")
        text = "".join(each for each in text if unicodedata.category(each)[0] != "M")  # vowel signs
    said = _SPEAKER.sub("", text)
    lines = (WORD.findall(said[start:end]) for start, end in sentence_spans(said))
    sentences = [line for line in lines if line]
    words = terms(said)
    distinct = set(words)
    bigrams = {word for word in distinct if _UNSPACED.match(word)}
    stems = [word.partition("'")[0] for word in words]
    names = [word for sentence in sentences for word in sentence[1:] if word[0].isupper()]
    counts = {
        "words": len(distinct) - (1 - _WORDS_PER_BIGRAM) * len(bigrams),
        "numbers": sum(any(each.isdigit() for each in word) for word in words),
        "sentences": len(sentences),
        "long words": sum(len(word) >= _LONG for word in distinct),
        "capitals": sum(word.casefold() not in _FIRST_PERSON for word in names),
        "times": sum(stem in _TIMES for stem in stems),
        "past tense": sum(
            stem in _PAST or (stem.endswith("ed") and len(stem) >= _LONG) for stem in stems
        ),
    }
    values = {name: math.log1p(count) for name, count in counts.items()} | {
        "asks": float(asks(said)),
        "first person": float(not _FIRST_PERSON.isdisjoint(stems)),
        "second person": sum(stem in _SECOND_PERSON for stem in stems) / (len(stems) or 1),
    }
    return _known(said, stems), values


def _known(said: str, stems: list[str]) -> Known:
    if not _ENGLISH.isdisjoint(stems):
        return "english"
    letters = [each for each in said if each.isalpha()]
    capitals = sum(each.isupper() for each in letters)
    lower = sum(each.islower() for each in letters)
    return "cased" if capitals and 2 * (capitals + lower) > len(letters) else "any"
