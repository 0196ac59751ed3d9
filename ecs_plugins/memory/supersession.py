"""What a message claims, and so which newer one corrects it; rather misses one than invents one.

A statement claims a value (a number, a day, a name) for the rest of its words if its relation
plainly has one value at a time: "is", "lives in", "costs", and not "likes" or "met". And it claims
that it is so; negated, that it is not. Roles, attributes, states that exclude each other, what
somebody keeps to until it ends, plans, and statements that differ in one number or name are told of
in modules of their own. Questions, suppositions, the past and additions claim nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ecs_plugins.common.text import asks, sentence_spans
from ecs_plugins.memory.attributes import attributes
from ecs_plugins.memory.framing import resolved, unframed
from ecs_plugins.memory.keeping import keeping
from ecs_plugins.memory.oneself import of_oneself
from ecs_plugins.memory.plans import EVENTS, mover, plans
from ecs_plugins.memory.roles import roles
from ecs_plugins.memory.slots import slots
from ecs_plugins.memory.statements import (
    ASIDES,
    LINKS,
    UNREAL,
    Assertion,
    Statement,
    as_said,
    clauses,
    halves,
    is_name,
    is_number,
    names_in,
    spoken,
    statement,
    stem,
    without_tail,
)
from ecs_plugins.memory.states import employment, is_state, states
from ecs_plugins.memory.wording import IN_WORDS, word_list

_MOST_CHARACTERS = 300  # of a text that is looked at
_MOST_WORDS = 18  # of a sentence
_MOST_OF_VALUE = 4  # words
_MANY_WORDS = 2  # of a subject that says by itself what it is, "the wifi password"
_SHARE = 0.6  # of a text that a sentence makes up, so that the text falls with it

_SOFT_BREAK = re.compile(r"(?<=[^\s.!?;])[ \t]?\n[ \t]*(?=[a-z0-9])")
"""A line break within a sentence, as hard-wrapped text has it."""
_IS_COMING = re.compile(
    r"^ (?:(?:i|we|ich|wir|je|nous|yo|io) |.{0,80} (?:will be|starts|takes over) )"
    r"(?:.{0,120} )?(?:tomorrow|soon|morgen|bald|demain|bientôt|mañana|pronto|domani|presto"
    r"|(?:next|nächste[mnrs]?|kommende[mnrs]?|próxim[oa]|prossim[oa]) \w+|\w+ prochaine?) "
)
"""That somebody moves or begins on a day to come."""
_JOKE = re.compile(r"\b(?:just|only|was|i'm|am) (?:kidding|joking)\b", re.IGNORECASE)
_LIST_MARK = re.compile(r"^[-*\u2022] ")
_STAMP = re.compile(r"^\s*(?:[(\[][^)\]\n]*\d[^)\]\n]*[)\]]|\d[\d/.:, ]*(?:[ap]m )?-)\s+(?=\w)")
"""When a turn was said, before it, as chats are copied."""

_ONE_VALUE = word_list(
    """be moved live work have prefer cost costs weigh weighs starts ends opens closes begins
    departs leaves arrives meet kostet beginnt coûte commence cuesta empieza costa"""
)
_SEVERAL = word_list(  # subjects of "is" that are several
    """friend friends colleague brother sister cousin uncle aunt kid child son daughter neighbor
    neighbour hobby answer result score weather temperature question problem topic thing today"""
)
_REPEATED = word_list("meeting call appointment class lesson interview shift train bus flight")
_NAMES = word_list("name nom nombre nome")
_ADDRESSES = word_list("address adresse dirección indirizzo")
_ACCOUNTS = word_list("username login nickname handle")
_FAVORITES = word_list("favorite favourite lieblingsfarbe préféré favorito preferito")
_SETTINGS = word_list(
    """branch level mode theme layout format mascot title rank priority nickname motto brand default
    pronouns theme slogan codename greeting signature ringtone"""
)
_CALLED = word_list("called named")
_OWN = word_list("my mein meine unser unsere mon ma notre mi nuestro nuestra mio mia")
_PREPOSITIONS = word_list("at on in for am um à le el la")
_NO_VALUES = word_list("about for to in on at with by from not very so")

_UPGRADES = word_list("upgraded migrated updated switched moved")
_USES = word_list("use uses run runs using running on") | _UPGRADES
_NO_CONTEXT = _USES | word_list("we i in our my the to from have has be")

_STATUS_KEYS = ("status", "state", "stage")


class Claim(NamedTuple):
    """What a sentence says of something.

    Attributes:
        key: Of what; two claims of one key with different values contradict each other.
        value: What is said.
        corrects: Whether what was said before falls.
        falls: Whether its text falls with it: it makes up most of that.
    """

    key: str
    value: str
    corrects: bool
    falls: bool


def claims(text: str) -> list[Claim]:
    """What a text claims; nothing if it is long.

    >>> told = claims("Ada moved to Oslo last month.")
    >>> [claim.value for claim in told if claim.key == "ada live name"]
    ['oslo']
    """
    if len(text) > _MOST_CHARACTERS or _JOKE.search(text) is not None:
        return []
    record = _record(text)
    if record is not None:
        return [Claim(*assertion, falls=True) for assertion in _of_record(record)]
    text = _STAMP.sub("", _LIST_MARK.sub("", text))
    text = _SOFT_BREAK.sub(" ", text)
    made: list[Claim] = []
    length = text.count(" ") + 1
    for start, end in sentence_spans(text):
        sentence = text[start:end].strip()
        words = sentence.count(" ") + 1
        if words > _MOST_WORDS or asks(sentence):
            continue
        falls = words >= _SHARE * length
        made += _of_sentence(sentence, falls=falls)
    return list(dict.fromkeys(made))


def _of_sentence(sentence: str, *, falls: bool) -> list[Claim]:
    """What a sentence says, and its halves each by itself."""
    told = of_oneself(sentence)
    whole = spoken(sentence)
    words = {*whole.split()} - names_in(sentence)
    is_real = UNREAL.isdisjoint(words)
    if not told and is_real:
        told = _of_clauses(sentence, whole)
    made = [Claim(*assertion, falls) for assertion in told]
    if is_real and not LINKS.isdisjoint(words):
        made += [Claim(*assertion, falls=False) for assertion in _of_halves(sentence)]
    return made


def _of_clauses(sentence: str, whole: str) -> list[Assertion]:
    """What the clauses of a sentence say, of which `spoken` makes the ``whole``."""
    assertions: list[Assertion] = []
    parts = resolved(clauses(unframed(sentence)))
    for part in parts:
        clause = part if len(parts) == 1 else unframed(part)
        text = whole if clause == sentence else spoken(clause)
        assertions += _of_clause(text, clause)
    return assertions


def _of_halves(sentence: str) -> Iterator[Assertion]:
    """What the halves of a sentence say, each by itself."""
    for part in clauses(unframed(sentence)):
        for half in halves(part):
            straight = unframed(half)
            yield from _of_clause(spoken(straight), straight)


def _of_clause(text: str, clause: str) -> list[Assertion]:
    """What a clause says.

    Args:
        text: What `spoken` makes of it.
        clause: As it was written.
    """
    names = names_in(clause)
    said = as_said(clause)
    plain = statement(text, names)
    told = [*roles(text, names), *keeping(said, names), *attributes(text)]
    if plain is not None:
        told += _of_statement(plain)
    if _IS_COMING.match(said) is not None:
        # What is so until then still is.
        told = [assertion._replace(corrects=False) for assertion in told]
    return [*plans(text, names | mover(clause)), *told]


def _of_statement(plain: Statement) -> Iterator[Assertion]:
    """What a statement says by its words, of whatever kind it is."""
    if not plain.negations:
        yield from _values(plain)
        yield from states(plain)
        yield from _versions(plain)
        yield from slots(plain)
        yield from employment(plain)
    yield from _plain_truth(plain)


def _plain_truth(plain: Statement) -> Iterator[Assertion]:
    """That what is said is so; negated, that it is not."""
    content = plain.content
    corrects = len(content) > 2 or plain.has_ended or (plain.is_marked and not plain.negations)
    if 2 <= len(content) <= 6 and (corrects or not plain.negations):
        value = "no" if plain.negations % 2 else "yes"
        yield Assertion(" ".join(content), value, corrects)
    timeless = [word for word in content if word not in IN_WORDS]
    if not plain.negations and 2 < len(timeless) < len(content):
        yield Assertion(" ".join(timeless), "yes", corrects=False)


# Values


class _Predicate(NamedTuple):
    """What a statement says of its subject.

    Attributes:
        relation: Such as "be" or "live".
        place: The preposition before the value, where it tells relations apart.
        kind: Of the value: a number, a name, or a word.
        value: The value.
        after: What stands behind it and tells its subject from others.
    """

    relation: str
    place: str
    kind: str
    value: list[str]
    after: list[str]

    @property
    def has_one_value(self) -> bool:
        """Whether the relation has one value of this kind at a time."""
        dwells = self.relation in ("live", "work")
        if len(self.value) > 4:
            return False
        if self.kind == "number":
            return not dwells
        if self.after:
            return False
        if self.kind == "word":
            return self.relation == "prefer"
        return dwells or self.relation == "be"


def _values(plain: Statement) -> Iterator[Assertion]:
    """The value that a statement gives its subject, if the relation has one at a time."""
    words = plain.words
    at = _relation_at(words)
    if at is None:
        return
    may_be_another = words[at - 1] in _SEVERAL and not plain.is_marked
    subject = words[:at]
    rest = words[at + 1 :]
    if words[at] == "be" and _is_own_thing(subject):
        yield from _own_values(subject, rest, plain)
        return
    is_moved = words[at] == "moved"
    is_called = rest[0] in _CALLED
    if subject[-1] in EVENTS:
        rest = _as_one_time(rest, plain.names)
    predicate = _predicate(words[at], _without_called(rest), plain.names)
    if not predicate.has_one_value:
        return
    corrects = plain.is_marked or is_moved
    if not is_called and not may_be_another:  # of two dogs each is called something
        corrects = corrects or _is_replaced(subject, predicate)
    for key in _keys(subject, predicate, is_moved):
        filled = filter(None, [*key, *predicate.after])
        yield Assertion(" ".join(filled), " ".join(predicate.value), corrects)


def _relation_at(words: list[str]) -> int | None:
    """Where the relation stands that has one value; it has a subject and a value."""
    for at, word in enumerate(words[1:8], start=1):
        if word in _ONE_VALUE:
            return at if at + 1 < len(words) else None
    return None


def _predicate(relation: str, rest: list[str], names: set[str]) -> _Predicate:
    place = ""
    if len(rest) > 1 and rest[0] in _PREPOSITIONS:
        place = rest[0]
        rest = rest[1:]
    kinds = [_kind(word, names) for word in rest]
    kind = kinds[0]
    end = 1
    while end < len(rest) and kinds[end] == kind:
        end += 1
    if relation == "moved":
        relation = "live" if kind == "name" else "be"
    if relation in ("live", "work") or kind == "number":
        place = ""
    return _Predicate(relation, place, kind, rest[:end], _told_apart(rest[end:], names))


def _without_called(rest: list[str]) -> list[str]:
    """What something is called, without the word that says so."""
    return rest[1:] if rest[0] in _CALLED and len(rest) > 1 else rest


def _as_one_time(rest: list[str], names: set[str]) -> list[str]:
    """A day and an hour, "Tuesday at 3", as one value, without what stands between them."""
    numbers = [is_number(word, names) for word in rest]
    joined = []
    for at, word in enumerate(rest):
        is_between = 0 < at < len(rest) - 1 and numbers[at - 1] and numbers[at + 1]
        if word not in _PREPOSITIONS or not is_between:
            joined.append(word)
    return joined


def _keys(subject: list[str], predicate: _Predicate, is_moved: bool) -> Iterator[list[str]]:
    """Of what a value is claimed: of the subject, and where it moves, of where it is."""
    relation = predicate.relation
    kind = predicate.kind
    if subject[0] == "my" and subject[-1] in EVENTS:  # which others call "the wedding"
        subject = subject[1:]
    yield [*subject, relation, predicate.place, kind]
    if subject[0] == "my" and len(subject) > _MANY_WORDS and kind == "number":
        yield [*subject[1:], relation, predicate.place, kind]
    if relation == "live" and subject == ["we"]:
        yield ["i", relation, kind]
    if relation == "live" and is_moved:  # such as an office
        for place in ("in", "on", "at"):
            yield [*subject, "be", place, kind]


def _is_replaced(subject: list[str], predicate: _Predicate) -> bool:
    """Whether another value plainly takes the place of the one before, without a word of it."""
    if predicate.kind == "word":
        return False
    if predicate.kind == "number":
        return subject[-1] not in _REPEATED
    if predicate.relation != "be" or predicate.place:
        return True
    return not _OWN.isdisjoint(subject)


def _told_apart(after: list[str], names: set[str]) -> list[str]:
    """What stands behind a value and tells its subject from others; nothing if it is an aside."""
    if not after:
        return []
    is_place = after[0] == "in" and _kind(after[-1], names) == "name"
    if after[0] in ASIDES and not is_place:
        return []
    return after


def _is_own_thing(subject: list[str]) -> bool:
    is_setting = subject[-1] in _SETTINGS
    return is_setting or not (_NAMES | _ADDRESSES | _ACCOUNTS | _FAVORITES).isdisjoint(subject)


def _own_values(subject: list[str], rest: list[str], plain: Statement) -> Iterator[Assertion]:
    """A name, an address or something favorite.

    Who is called otherwise by friends has two names. An address has a number; an account too, or it
    is said to be new, or is one word and no state. What only describes ("is public", "is about") is
    none of them.
    """
    value = list(without_tail(rest, ASIDES))
    if not 0 < len(value) <= _MOST_OF_VALUE or value[0] in _NO_VALUES:
        return
    corrects = True
    is_plain = True
    if not _NAMES.isdisjoint(subject):
        corrects = plain.is_marked or "call" in subject
        is_plain = value == rest and _are_names(value, plain)
    elif not _ADDRESSES.isdisjoint(subject):
        is_plain = _has_number(value, plain)
    elif not _ACCOUNTS.isdisjoint(subject):
        corrects = plain.is_marked or _has_number(value, plain)
        is_plain = corrects or not (rest[1:] or is_state(rest[0]))
    if is_plain:
        key = " ".join([*subject, "be", "name"])
        yield Assertion(key, " ".join(value), corrects)


def _are_names(value: list[str], plain: Statement) -> bool:
    return all(is_name(word, plain.names) for word in value)


def _has_number(value: list[str], plain: Statement) -> bool:
    return any(is_number(word, plain.names) for word in value)


def _kind(word: str, names: set[str]) -> str:
    if is_number(word, names):
        return "number"
    return "name" if is_name(word, names) else "word"


# Versions and records


def _versions(plain: Statement) -> Iterator[Assertion]:
    """Which version of something is used, in one place."""
    words = plain.words
    if _USES.isdisjoint(words):
        return
    versions = [
        at
        for at in range(1, len(words))
        if words[at][0].isdigit() and is_name(words[at - 1], plain.names)
    ]
    if len(versions) != 1:
        return
    (at,) = versions
    thing = words[at - 1]
    around = words[: at - 1] + words[at + 1 :]
    where = sorted(stem(word) for word in around if word not in _NO_CONTEXT)
    corrects = plain.is_marked or not _UPGRADES.isdisjoint(words)
    key = " ".join(["version", thing, *where])
    yield Assertion(key, words[at], corrects)


def _record(text: str) -> Mapping[str, object] | None:
    """A JSON object, such as a tool's answer; None if the text is none."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        record = json.loads(text)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _of_record(record: Mapping[str, object]) -> Iterator[Assertion]:
    """The status of what the other fields of a record name."""
    about = {name: value for name, value in record.items() if name not in _STATUS_KEYS}
    are_names = [isinstance(value, str | int) for value in about.values()]
    if not about or not all(are_names):
        return
    for name in _STATUS_KEYS:
        status = record.get(name)
        if isinstance(status, str):
            key = json.dumps([name, about], sort_keys=True)
            yield Assertion(key, status)
