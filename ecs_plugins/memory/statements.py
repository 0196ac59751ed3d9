"""Statements: the messages behind a recollection, as adapters show them."""

from __future__ import annotations

from typing import NamedTuple

from ecs_plugins.common.text import one_line
from ecs_plugins.memory.entropic import EntropicMemory
from ecs_plugins.memory.records import Memory

_LATEST = 8  # messages behind a recollection that are looked at, besides the first
_STATEMENTS = 3  # different texts that are shown of one recollection


class Statement(NamedTuple):
    """Text of a message, with who said it and when."""

    id: str
    text: str
    speaker: str
    role: str
    at: float
    asked: str
    is_outdated: bool


def statements_behind(memory: EntropicMemory, recollection: Memory) -> list[Statement]:
    """Return the different messages behind a recollection, oldest first.

    A recollection of several messages has the text of one of them. The first and the latest
    messages tell more.
    """
    ids = recollection.provenance
    if len(ids) < 2:
        return [statement_of(recollection)]
    records = [memory.get(id) for id in (ids[0], *ids[1:][-_LATEST:])]
    present = sorted(filter(None, records), key=lambda record: record.created)
    different: dict[tuple[str, str], Statement] = {}
    for record in present:
        statement = statement_of(record)
        different.setdefault((statement.speaker, statement.text), statement)
    statements = list(different.values()) or [statement_of(recollection)]
    if len(statements) > _STATEMENTS:
        statements = [statements[0], *statements[1 - _STATEMENTS :]]
    return statements


def statement_of(record: Memory) -> Statement:
    """Return the text of a record with who said it and when."""
    role = one_line(str(record.metadata.get("role") or record.role))
    name = record.metadata.get("name")
    speaker = f"{role} {one_line(name)}".strip() if isinstance(name, str) else role
    # A recollection of one message has the id of that message in its provenance.
    id = record.provenance[0] if len(record.provenance) == 1 else record.id
    is_outdated = record.outdated_by is not None
    return Statement(id, record.text, speaker, role, record.created, record.asked, is_outdated)


def texts_behind(memory: EntropicMemory, recollection: Memory) -> list[str]:
    """Return the different texts of `statements_behind`."""
    texts = [each.text for each in statements_behind(memory, recollection)]
    return list(dict.fromkeys(texts))
