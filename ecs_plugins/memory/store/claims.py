"""Until when what messages claim held, and what corrected it.

Nothing is marked as superseded: a statement falls while a later one of the same speaker contradicts
it, so it holds again when that is erased, and what is said again holds again.

What was said of one thing may have been said thousands of times. So the first and the last message
behind an item are looked at first, each by one seek, which decides nearly every item. For the
others, the claims of the same keys are read once, in order.
"""

from __future__ import annotations

import json
import math
import sys
import time
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from ecs_plugins.common.files import statements
from ecs_plugins.memory.types import ColdMemory, HotItem
from ecs_plugins.storage.base import Connection

_BEHIND, _SAID, _FIRST_CORRECTIONS, _FALLING, _CORRECTIONS = statements(__package__, "claims.sql")

Item = TypeVar("Item", HotItem, ColdMemory)


@dataclass(frozen=True, slots=True)
class Validity:
    """Since and until when an item held; None where the log no longer knows, or not yet.

    Attributes:
        holds: Whether it does, at the time that was asked for.
        since: Unix time of the first of its messages that hold.
        until: Unix time of what corrected the last of them.
        by: Id of the message that did.
        behind: Ids of its messages, in the order of their joining.
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

    def holds(self, at: float) -> bool:
        return self.since <= at < self.until


class _Correction(NamedTuple):
    """A claim that corrects earlier ones of its key, ordered by when it was said."""

    at: float
    row: int
    value: int
    message: str


def validity(
    connection: Connection, ids: Collection[str], at: float | None = None, *, messages: bool = False
) -> dict[str, Validity]:
    """Whether items, or single messages, hold now or at a Unix time: something behind them does."""
    moment = sys.float_info.max if at is None else at
    behind = {name: [name] for name in ids} if messages else _behind(connection, ids)
    spans = _spans_of_ends(connection, behind)
    found: dict[str, Validity] = {}
    undecided: dict[str, list[str]] = {}
    for item, joined in behind.items():
        if _is_decided(joined, spans, at):
            found[item] = _validity(joined, spans, moment)
        else:
            found[item] = Validity()
            undecided[item] = joined
    if undecided:
        every = {message for joined in undecided.values() for message in joined}
        spans = _spans(connection, every, _corrections(connection, every))
        for item, joined in undecided.items():
            found[item] = _validity(joined, spans, moment)
    return found


def _spans_of_ends(connection: Connection, behind: Mapping[str, Sequence[str]]) -> dict[str, _Span]:
    """When the first and the last message behind each item held."""
    ends: set[str] = set()
    for joined in behind.values():
        ends.update(joined[:1])
        ends.update(joined[-1:])
    return _spans(connection, ends, _first_corrections(connection, ends))


def judged(connection: Connection, items: Sequence[Item]) -> list[Item]:
    """Items that know whether they are superseded."""
    found = validity(connection, [item.id for item in items])
    return [item if found[item.id].holds else replace(item, superseded=True) for item in items]


def _behind(connection: Connection, items: Collection[str]) -> dict[str, list[str]]:
    """The messages behind items, in the order of their joining."""
    behind: dict[str, list[str]] = {item: [] for item in items}
    for item, messages in connection.execute(_BEHIND, (json.dumps([*items]),)):
        behind[item] = messages.split(" ")
    return behind


def _is_decided(joined: Sequence[str], spans: Mapping[str, _Span], at: float | None) -> bool:
    """Whether the first and the last message behind an item say all of it."""
    if len(joined) <= 2:
        return True
    ends = (spans[joined[0]], spans[joined[-1]])
    return at is None and all(span.by is None for span in ends)


def _validity(joined: Sequence[str], spans: Mapping[str, _Span], at: float) -> Validity:
    if not joined:
        return Validity()
    times = [spans[message] for message in joined if message in spans]
    held = [span for span in times if span.holds(at)]
    since = min(span.since for span in held or times)
    last = max(held or times, key=lambda span: span.until)
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
    corrections: Mapping[str, tuple[float, str]],
) -> dict[str, _Span]:
    """Since and until when messages held, by what corrected each of them first."""
    spans: dict[str, _Span] = {}
    for message, since in connection.execute(_SAID, (json.dumps([*messages]),)):
        until, by = corrections.get(message, (math.inf, None))
        spans[message] = _Span(since, until, by)
    for message in messages:  # of some the log has nothing any more, and they claim nothing
        spans.setdefault(message, _Span())
    return spans


def _first_corrections(
    connection: Connection, messages: Collection[str]
) -> dict[str, tuple[float, str]]:
    """When and by what messages were first corrected, one seek for each of their claims."""
    rows = connection.execute(_FIRST_CORRECTIONS, (json.dumps([*messages]), time.time()))
    return _earliest((message, at, by) for message, at, by in rows if by is not None)


def _corrections(connection: Connection, messages: Collection[str]) -> dict[str, tuple[float, str]]:
    """When and by what messages were first corrected: every claim of their keys is read once."""
    falling = connection.execute(_FALLING, (json.dumps([*messages]),)).fetchall()
    keys: dict[int, set[int]] = {}
    for _, space, key, *_ in falling:
        keys.setdefault(space, set()).add(key)
    now = time.time()
    timelines: dict[tuple[int, int], list[_Correction]] = {}
    for space, own in keys.items():
        rows = connection.execute(_CORRECTIONS, (space, json.dumps([*own]), now))
        for key, at, row, value, message in rows:
            timelines.setdefault((space, key), []).append(_Correction(at, row, value, message))
    different = {key: _next_different(timeline) for key, timeline in timelines.items()}
    found = []
    for message, space, key, value, at, row in falling:
        claim = _Correction(at, row, value, message)
        timeline = timelines.get((space, key), [])
        first = _first_after(claim, timeline, different.get((space, key), []))
        if first is not None:
            found.append((message, first.at, first.message))
    return _earliest(found)


def _earliest(corrections: Iterable[tuple[str, float, str]]) -> dict[str, tuple[float, str]]:
    """The first of the corrections of each message."""
    earliest: dict[str, tuple[float, str]] = {}
    for message, at, by in corrections:
        if message not in earliest or at < earliest[message][0]:
            earliest[message] = (at, by)
    return earliest


def _next_different(timeline: Sequence[_Correction]) -> list[int]:
    """For each correction the place of the next one of another value."""
    places = [len(timeline)] * len(timeline)
    for place in range(len(timeline) - 2, -1, -1):
        follower = place + 1
        same = timeline[place].value == timeline[follower].value
        places[place] = places[follower] if same else follower
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
