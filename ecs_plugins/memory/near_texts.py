"""Comparison of near texts: are they one memory, and which text stays?

For a sentence embedder "I am allergic to nuts" and "I am not allergic to nuts" are neighbours,
and so are a question and the statement that answers it. So the cosine only nominates:

* texts that differ in a negation, a number or a name are two memories (`difference`);
* a question never replaces a statement (`may_replace`).

A negation is known in English only, and so are numbers and days in words. In a script without
capitals every word may be a name, so there only texts of the same words are one memory. A name
written in small letters is not noticed.
"""

from __future__ import annotations

import re
from typing import Literal

from ecs_plugins.common.text import WORD, asks, names_and_numbers

Difference = Literal["negation", "number", "name"]

_NUMBER = re.compile(r"\d+(?:[.,:/]\d+)*")
_SPOKEN = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)?")


def word_list(words: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(words.split())


# The second line: typed without the apostrophe.
_NEGATIONS = word_list(
    """
    no not never none nobody nothing nowhere neither nor without cannot hardly unable
    dont wont doesnt didnt isnt arent wasnt werent cant couldnt wouldnt shouldnt hasnt havent hadnt
    """
)

_COUNTED = """
    two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen twenty
"""
_DATED = word_list(
    """
    thirty forty fifty sixty seventy eighty ninety hundred thousand million billion dozen half
    twice first second third noon midnight last today tonight tomorrow yesterday
    monday tuesday wednesday thursday friday saturday sunday
    january february april june july august september october november december
    montag dienstag mittwoch donnerstag freitag samstag sonntag
    lundi mardi mercredi jeudi vendredi samedi dimanche
    lunes martes miércoles jueves viernes sábado domingo
    lunedì martedì mercoledì giovedì venerdì sabato domenica
    """
)
IN_WORDS = {word: str(value) for value, word in enumerate(_COUNTED.split(), start=2)}
IN_WORDS |= {word: word for word in _DATED}

# Words that begin sentences, or are written large, without naming anything.
_NO_NAMES = word_list(
    """
    a an the i my mine me we our us you your he his him she her it its they their them
    this that these those here there and but or so if as at by for from in into of off on onto
    out over to under up with about after again before then now also just really very since
    while because though although am is are was were be been being do does did have has had can
    could will would shall should might must what when where which who whose whom why how
    yes yeah yep ok okay oh ah well hi hello hey wow thanks thank please sorry sure actually
    maybe s t d m ll re ve
    """
)

# Negations and numbers in words are compared as such.
_NAME_NOTHING = _NO_NAMES | _NEGATIONS | IN_WORDS.keys()


def may_replace(new: str, old: str) -> bool:
    """Return True if ``new`` may replace ``old``."""
    return asks(old) or not asks(new)


def difference(one: str, other: str) -> Difference | None:
    """Return the difference that keeps near texts apart; None if there is none.

    An empty text contradicts nothing. A question asserts nothing: it differs from a statement only
    by a name or a number that the statement does not have. The order of names counts, and so does
    that of numbers: who told whom is not the same either way round.

    >>> difference("I am allergic to nuts.", "I'm not allergic to nuts.")
    'negation'
    >>> difference("The code is 4711.", "The code is 4712.")
    'number'
    >>> difference("The code is 4711.", "What is the code?") is None
    True
    """
    if one == other or not (one and other):
        return None
    if asks(other) and not asks(one):
        one, other = other, one
    if asks(one) and not asks(other):
        return _beyond(one, other)
    negations, numbers = _counted(one)
    other_negations, other_numbers = _counted(other)
    if negations != other_negations:
        return "negation"
    if numbers != other_numbers:
        return "number"
    if _names(one, beside=other) != _names(other, beside=one):
        return "name"
    return None


def _beyond(question: str, statement: str) -> Difference | None:
    """Return the numbers and names of a question that a statement lacks."""
    if {*_counted(question)[1]} - {*_counted(statement)[1]}:
        return "number"
    words = {word.casefold() for word in WORD.findall(statement)}
    if {*_names(question)} - words:
        return "name"
    return None


def _counted(text: str) -> tuple[int, list[str]]:
    """Return the number of negations of a text, and its numbers and days in order."""
    negations = 0
    placed = [(each.start(), each.group()) for each in _NUMBER.finditer(text)]
    for each in _SPOKEN.finditer(text.replace("\u2019", "'")):
        word = each.group().casefold()
        negations += word in _NEGATIONS or word.endswith("n't")
        if word in IN_WORDS:
            placed.append((each.start(), IN_WORDS[word]))
    return negations, [number for _, number in sorted(placed)]


def _names(text: str, beside: str = "") -> list[str]:
    """Return the words that may be names, in order, casefolded.

    A word that the other text writes in lower case is no name: it only began a sentence.
    """
    small = {word for word in WORD.findall(beside) if word.islower()}
    no_names = small | _NAME_NOTHING
    words = names_and_numbers(text)
    return [word for word in words if word not in no_names and not word[0].isdigit()]
