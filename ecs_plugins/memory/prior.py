"""Prior of a text's utility: the odds that it will be asked for, from the text alone.

In a chat most turns carry little: greetings, applause, questions back. Few have been asked for by
the time when they must be judged. What a text looks like says something at once: names, numbers,
times and statements about oneself are asked for later, questions back are not.

`worth` is a logistic regression on plain features. ``python -m benchmarks memory-prior`` learns it
on chats that were written for this project, and prints the content of ``prior.json``.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Final, Literal, NamedTuple

from ecs_plugins.common.text import UNSPACED, WORD, asks, sentence_spans, terms
from ecs_plugins.memory.near_texts import word_list

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
    (only,) = worths([text])
    return only


_known: dict[int, float] = {}
"""Worth of texts that were read, by hash, so that no erased text stays in memory."""

_MOST_KNOWN = 1 << 18


def worths(texts: Sequence[str]) -> list[float]:
    """Return `worth` of each of several texts, computed once per text."""
    found = [_known.get(hash(text), math.nan) for text in texts]
    new = {at: texts[at] for at, value in enumerate(found) if math.isnan(value)}
    if len(_known) + len(new) > _MOST_KNOWN:
        _known.clear()
    for at, statement in zip(new, _read([*new.values()]), strict=True):
        known, values = _features(statement)
        found[at] = _known[hash(texts[at])] = log_odds(values, WEIGHTS[known], MOST)
    return found


def log_odds(
    values: Mapping[str, float],
    weights: Mapping[str, float],
    most: Mapping[str, float],
) -> float:
    """Return the weighted sum of features; features without a weight do not count."""
    seen = weights["bias"]
    for name, value in values.items():
        if name in weights:
            seen += weights[name] * min(value, most[name])
    return math.log(math.exp(seen) + UNFORESEEN)


def features(text: str) -> tuple[Known, dict[str, float]]:
    """Return the known traits of a text's language, and its features by name, all at least 0."""
    (statement,) = _read([text])
    return _features(statement)


class _Statement(NamedTuple):
    """A text without its speaker, and how it reads.

    Attributes:
        text: In its simplest characters.
        words: Its words, casefolded.
        sentences: Where each of its sentences begins and ends.
        asks: Whether it ends with a question.
    """

    text: str
    words: list[str]
    sentences: Sequence[tuple[int, int]]
    asks: bool


def _read(texts: Sequence[str]) -> list[_Statement]:
    """Return texts as they read; each step is taken for all of them."""
    plain = [_SPEAKER.sub("", _plain(text)) for text in texts]
    words = [terms(text) for text in plain]
    sentences = [[*sentence_spans(text)] for text in plain]
    asking = [asks(text) for text in plain]
    return [*map(_Statement, plain, words, sentences, asking)]


def _features(statement: _Statement) -> tuple[Known, dict[str, float]]:
    stems = [word.partition("'")[0] for word in statement.words]
    counts = _sizes(statement.words) | _looks(statement) | _tenses(stems)
    values = {name: math.log1p(count) for name, count in counts.items()}
    values["asks"] = float(statement.asks)
    speaks_of_oneself = not _FIRST_PERSON.isdisjoint(stems)
    values["first person"] = float(speaks_of_oneself)
    addressed = _count(stems, _SECOND_PERSON)
    values["second person"] = addressed / max(len(stems), 1)
    return _language(statement.text, stems), values


def _plain(text: str) -> str:
    """Return a text in its simplest characters, without vowel signs."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", text)
    text = text.replace("’", "'")
    letters = [each for each in text if not unicodedata.category(each).startswith("M")]
    return "".join(letters)


def _sizes(words: list[str]) -> dict[str, float]:
    distinct = set(words)
    bigrams = [word for word in distinct if _UNSPACED.match(word)]
    numbers = [word for word in words if any(map(str.isdigit, word))]
    long = [word for word in distinct if len(word) >= _LONG]
    spaced = len(distinct) - len(bigrams)
    return {
        "words": spaced + _WORDS_PER_BIGRAM * len(bigrams),
        "numbers": len(numbers),
        "long words": len(long),
    }


def _looks(statement: _Statement) -> dict[str, float]:
    """Return the numbers of sentences and of capitalised words."""
    sentences = 0
    capitals = 0
    for start, end in statement.sentences:
        words = WORD.findall(statement.text[start:end])
        sentences += bool(words)
        names = [word for word in words[1:] if word[0].isupper()]
        capitals += sum(word.casefold() not in _FIRST_PERSON for word in names)
    return {"sentences": sentences, "capitals": capitals}


def _tenses(stems: list[str]) -> dict[str, float]:
    regular = [stem for stem in stems if stem.endswith("ed") and len(stem) >= _LONG]
    irregular = [stem for stem in stems if stem in _PAST]
    return {
        "times": _count(stems, _TIMES),
        "past tense": len(regular) + len(irregular),
    }


def _count(stems: list[str], among: frozenset[str]) -> int:
    return sum(stem in among for stem in stems)


def _language(statement: str, stems: list[str]) -> Known:
    """Return the known traits of a text's language: words, capitals, or none."""
    if not _ENGLISH.isdisjoint(stems):
        return "english"
    letters = sum(map(str.isalpha, statement))
    capitals = sum(map(str.isupper, statement))
    lower = sum(map(str.islower, statement))
    if capitals and 2 * (capitals + lower) > letters:
        return "cased"
    return "any"
