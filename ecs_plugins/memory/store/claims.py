"""Until when what messages claim held, and what corrected it.

Nothing is marked as superseded: a statement falls while a later one of the same speaker contradicts
it, so it holds again when that is erased, and what is said again holds again.

What was said of one thing may have been said thousands of times. So the first and the last message
behind an item are looked at first, each by one seek, which decides nearly every item. Of the others
the last one of each claim decides: what was said again falls no earlier. Only for what held at an
earlier time are the claims of the same keys read, once, in order.
"""

from __future__ import annotations

import json
import math
import sys
import time
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NamedTuple, TypeVar

from ecs_plugins.common.files import statements
from ecs_plugins.memory.types import ColdMemory, HotItem
from ecs_plugins.storage.base import Connection

(
    _BEHIND,
    _ONE_BY_ONE,
    _ENDS,
    _SAID,
    _FIRST_CORRECTIONS,
    _FALLING,
    _CORRECTIONS,
    _SAID_SINCE,
    _LAST_WORDS,
) = statements(__package__, "claims.sql")

MOST_BEHIND = 100
"""Of so many messages behind an item a recollection tells, beside the first."""

_FEW = 8
"""Observations of an item of which each message is read at once with what tells its time."""

Item = TypeVar("Item", HotItem, ColdMemory)


_Timelines = dict[tuple[int, int], list["_Correction"]]
"""What was said of each key of a namespace, in its order."""


@dataclass(frozen=True, slots=True)
class Validity:
    """Since and until when an item held; None where the log no longer knows, or not yet.

    Attributes:
        holds: Whether it does, at the time that was asked for.
        since: Unix time of the first of its messages that hold.
        until: Unix time of what corrected the last of them.
        by: Id of the message that did.
        behind: Ids of its messages, in the order of their joining; of many, perhaps the first and
            the latest `MOST_BEHIND`.
    """

    holds: bool = True
    since: float | None = None
    until: float | None = None
    by: str | None = None
    behind: tuple[str, ...] = ()


class _Span(NamedTuple):
    """Since and until when one message held, infinite where unknown, and what ended it."""

    since: float = -math.inf
    until: float = math.inf
    by: str | None = None


_end = attrgetter("until")


class _Falling(NamedTuple):
    """A claim that a later one may correct, of a key of a namespace."""

    message: str
    space: int
    key: int
    value: int
    at: float
    row: int


class _Correction(NamedTuple):
    """A claim that corrects earlier ones of its key, ordered by when it was said."""

    at: float
    row: int
    value: int
    message: str


_UNKNOWN = Validity()
"""Of what the log knows nothing about."""


def validity(
    connection: Connection, ids: Collection[str], at: float | None = None
) -> dict[str, Validity]:
    """Whether items hold now or at a Unix time: something behind them does."""
    return _judged(connection, _behind(connection, ids), at, {})


def validity_of_live(
    connection: Connection, items: Collection[HotItem | ColdMemory], at: float | None = None
) -> dict[str, Validity]:
    """The same of items in a tier, of which only some of the messages are told."""
    many = [item.id for item in items if item.evidence.support > _FEW]
    few = [item.id for item in items if item.evidence.support <= _FEW]
    behind, spans = _one_by_one(connection, few)
    if many:
        behind |= _ends(connection, many)
    if at is not None:
        cut = [item for item, joined in behind.items() if len(joined) > MOST_BEHIND]
        behind |= _behind(connection, cut)
    return _judged(connection, behind, at, spans)


def validity_of_messages(connection: Connection, ids: Collection[str]) -> dict[str, Validity]:
    """Whether single messages hold now."""
    return _judged(connection, {name: [name] for name in ids}, None, {})


def _judged(
    connection: Connection,
    behind: Mapping[str, list[str]],
    at: float | None,
    known: Mapping[str, _Span],
) -> dict[str, Validity]:
    """Whether items hold, by the messages behind them, of which some spans are known."""
    moment = sys.float_info.max if at is None else at
    spans = _spans_of_ends(connection, behind, known)
    validities: dict[str, Validity] = {}
    undecided: dict[str, list[str]] = {}
    for item, joined in behind.items():
        validities[item] = _UNKNOWN
        if _is_decided(joined, spans, at):
            validities[item] = _validity(joined, spans, moment)
        else:
            undecided[item] = joined
    if not undecided:
        return validities
    if at is None:
        return validities | _judged_now(connection, undecided)
    every: set[str] = set()
    every.update(*undecided.values())
    spans = _spans(connection, every, _corrections(connection, every))
    for item, joined in undecided.items():
        validities[item] = _validity(joined, spans, moment)
    return validities


def _judged_now(connection: Connection, behind: Mapping[str, Sequence[str]]) -> dict[str, Validity]:
    """Whether items hold now, by the last message of each claim that is behind them."""
    said = _last_said(connection, behind)
    last: set[str] = set()
    last.update(*said.values())
    corrections = _first_corrections(connection, last)
    holding = last - corrections.keys()
    first = _said_since(connection, holding)
    spans = _spans(connection, last, corrections)
    validities = {}
    for item, messages in said.items():
        told = {message: spans[message] for message in messages}
        for message in holding.intersection(messages):
            told[message] = spans[message]._replace(since=first.get(message, spans[message].since))
        valid = _validity(messages, told, sys.float_info.max)
        validities[item] = replace(valid, behind=tuple(behind[item]))
    return validities


def _last_said(connection: Connection, behind: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Of the messages behind each item the last one that claims the same, in their order.

    What claims nothing that falls is one of them.
    """
    every: set[str] = set()
    every.update(*behind.values())
    rows = connection.execute(_FALLING, (json.dumps([*every]),))
    claimed: dict[str, list[_Falling]] = {}
    for row in rows:
        falling = _Falling(*row)
        claimed.setdefault(falling.message, []).append(falling)
    last: dict[str, list[str]] = {}
    for item, messages in behind.items():
        placed: dict[frozenset[tuple[int, int]], tuple[float, int, str]] = {}
        for message in messages:
            falling_of = claimed.get(message, [])
            said = frozenset((each.key, each.value) for each in falling_of)
            place = max(((each.at, each.row) for each in falling_of), default=(0.0, 0))
            placed[said] = max(placed.get(said, (*place, message)), (*place, message))
        last[item] = [message for _, _, message in sorted(placed.values())]
    return last


def _said_since(connection: Connection, messages: Collection[str]) -> dict[str, float]:
    """Since when what messages claim is said, and nothing else of the same things."""
    if not messages:
        return {}
    since: dict[str, float] = {}
    for message, created in connection.execute(_SAID_SINCE, (json.dumps([*messages]),)):
        since[message] = max(created, since.get(message, -math.inf))
    return since


def _spans_of_ends(
    connection: Connection, behind: Mapping[str, Sequence[str]], known: Mapping[str, _Span]
) -> dict[str, _Span]:
    """When the first and the last message behind each item held; what is known is not read."""
    ends: set[str] = set()
    for joined in behind.values():
        ends.update(joined[:1])
        ends.update(joined[-1:])
    ends.difference_update(known)
    if not ends:
        return {**known}
    return {**known, **_spans(connection, ends, _first_corrections(connection, ends))}


def judged(connection: Connection, items: Sequence[Item]) -> list[Item]:
    """Items that know whether they are superseded."""
    validities = validity_of_live(connection, items)
    known = []
    for item in items:
        holds = validities[item.id].holds
        known.append(item if holds else replace(item, superseded=True))
    return known


def _behind(connection: Connection, items: Collection[str]) -> dict[str, list[str]]:
    """The messages behind items, in the order of their joining."""
    behind: dict[str, list[str]] = {item: [] for item in items}
    rows = connection.execute(_BEHIND, (json.dumps([*items]),))
    for item, messages in rows:
        behind[item] = messages.split(" ")
    return behind


def _one_by_one(
    connection: Connection, items: Collection[str]
) -> tuple[dict[str, list[str]], dict[str, _Span]]:
    """The same of few messages each, and the spans of those that the log has and no claim ends."""
    behind: dict[str, list[str]] = {item: [] for item in items}
    spans: dict[str, _Span] = {}
    for item, message, created, claims in connection.execute(_ONE_BY_ONE, (json.dumps([*items]),)):
        behind[item].append(message)
        if created is not None and not claims:
            spans[message] = _Span(created)
    return behind, spans


def _ends(connection: Connection, items: Collection[str]) -> dict[str, list[str]]:
    """Of live items the first message behind each and the latest, in the order of their joining."""
    ends: dict[str, list[str]] = {item: [] for item in items}
    rows = connection.execute(_ENDS.format(most=MOST_BEHIND), (json.dumps([*items]),))
    for item, first, latest in rows:
        joined = (latest or "").split()[::-1]
        if first is not None and joined[0] != first:
            joined.insert(0, first)
        ends[item] = joined
    return ends


def last_words(
    connection: Connection, messages: Collection[str], at: float | None
) -> dict[str, list[int]]:
    """The rows of live items with the last word until a time on what each message corrects.

    A message that has it of one thing, and not of another, is no last word.
    """
    until = sys.float_info.max if at is None else at
    values = (json.dumps([*messages]), until, time.time())
    rows: dict[str, list[int]] = {}
    for message, row, is_own in connection.execute(_LAST_WORDS, values):
        if not is_own or message not in rows:
            rows.setdefault(message, []).append(row)
    return rows


def _is_decided(joined: Sequence[str], spans: Mapping[str, _Span], at: float | None) -> bool:
    """Whether the first and the last message behind an item say all of it."""
    if len(joined) <= 2:
        return True
    if at is not None:
        return False
    first = spans[joined[0]]
    last = spans[joined[-1]]
    return first.by is None and last.by is None


def _validity(joined: Sequence[str], spans: Mapping[str, _Span], at: float) -> Validity:
    if not joined:
        return _UNKNOWN
    known = [spans[message] for message in joined if message in spans]
    held = [span for span in known if span.since <= at < span.until]
    telling = held or known
    since = min(span.since for span in telling)
    last = max(telling, key=_end)
    return Validity(
        holds=bool(held),
        since=None if since == -math.inf else since,
        until=None if last.until == math.inf else last.until,
        by=last.by,
        behind=tuple(joined),
    )


def _spans(
    connection: Connection,
    messages: Collection[str],
    corrections: Mapping[str, _First],
) -> dict[str, _Span]:
    """Since and until when messages held, by what corrected each of them first."""
    spans: dict[str, _Span] = {}
    rows = connection.execute(_SAID, (json.dumps([*messages]),))
    for message, since in rows:
        until, by = corrections.get(message, _NEVER)
        spans[message] = _Span(since, until, by)
    for message in messages:  # of some the log has nothing any more, and they claim nothing
        spans.setdefault(message, _Span())
    return spans


_First = tuple[float, str | None]
"""When something was first corrected, and by which message."""

_NEVER: _First = (math.inf, None)


def _first_corrections(connection: Connection, messages: Collection[str]) -> dict[str, _First]:
    """When and by what messages were first corrected, one seek for each of their claims."""
    values = (json.dumps([*messages]), time.time())
    rows = connection.execute(_FIRST_CORRECTIONS, values)
    corrected = [(message, at, by) for message, at, by in rows if by is not None]
    return _earliest(corrected)


def _corrections(connection: Connection, messages: Collection[str]) -> dict[str, _First]:
    """When and by what messages were first corrected: every claim of their keys is read once."""
    rows = connection.execute(_FALLING, (json.dumps([*messages]),)).fetchall()
    falling = [_Falling(*row) for row in rows]
    timelines = _timelines(connection, falling)
    different = {key: _next_different(timeline) for key, timeline in timelines.items()}
    corrected = []
    for each in falling:
        key = (each.space, each.key)
        if key not in timelines:
            continue
        claim = _Correction(each.at, each.row, each.value, each.message)
        first = _first_after(claim, timelines[key], different[key])
        if first is not None:
            corrected.append((each.message, first.at, first.message))
    return _earliest(corrected)


def _timelines(connection: Connection, falling: Sequence[_Falling]) -> _Timelines:
    """What was said of the keys of some claims until now, in its order, by namespace and key."""
    keys: dict[int, set[int]] = {}
    for each in falling:
        keys.setdefault(each.space, set()).add(each.key)
    now = time.time()
    timelines: _Timelines = {}
    for space, own in keys.items():
        rows = connection.execute(_CORRECTIONS, (space, json.dumps([*own]), now))
        for key, at, row, value, message in rows:
            correction = _Correction(at, row, value, message)
            timelines.setdefault((space, key), []).append(correction)
    return timelines


def _earliest(corrections: Iterable[tuple[str, float, str]]) -> dict[str, _First]:
    """The first of the corrections of each message."""
    earliest: dict[str, _First] = {}
    for message, at, by in corrections:
        first, _ = earliest.get(message, _NEVER)
        if at < first:
            earliest[message] = (at, by)
    return earliest


def _next_different(timeline: Sequence[_Correction]) -> list[int]:
    """For each correction the place of the next one of another value."""
    count = len(timeline)
    places = [count] * count
    for place in reversed(range(count - 1)):
        follower = place + 1
        places[place] = follower
        if timeline[place].value == timeline[follower].value:
            places[place] = places[follower]
    return places


def _first_after(
    claim: _Correction, timeline: Sequence[_Correction], different: Sequence[int]
) -> _Correction | None:
    """The first correction after a claim that another message makes, with another value."""
    place = bisect_right(timeline, (claim.at, claim.row, math.inf))
    while place < len(timeline):
        correction = timeline[place]
        if correction.value == claim.value:
            place = different[place]
        elif correction.message == claim.message:
            place += 1
        else:
            return correction
    return None
