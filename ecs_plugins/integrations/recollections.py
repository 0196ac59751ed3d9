"""The one translation of a recollection for the adapters: its data, and what was said behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ecs_plugins.common.text import one_line
from ecs_plugins.memory.entropic import EntropicMemory
from ecs_plugins.memory.records import Memory

_LATEST = 8  # messages behind a recollection whose texts are looked at, besides the first
_QUOTES = 3  # different texts that are quoted of one recollection


@dataclass(frozen=True, slots=True)
class Quote:
    """What was said, word for word.

    Attributes:
        id: Of the message, or of the memory whose text it is.
        speaker: Who said it, as far as that is known; else empty.
    """

    id: str
    speaker: str
    text: str


def as_metadata(recollection: Memory) -> dict[str, Any]:
    """Everything about a recollection but its id and text, as metadata of a document.

    The score is called ``relevance_score``, and its own metadata ``memory``. JSON types only.
    """
    data = recollection.to_dict()
    del data["id"], data["text"]
    data["relevance_score"] = data.pop("score")
    data["memory"] = data.pop("metadata")
    return data


def texts_behind(memory: EntropicMemory, recollection: Memory) -> list[str]:
    """The different texts of `quotes_behind`."""
    texts = [quote.text for quote in quotes_behind(memory, recollection)]
    return list(dict.fromkeys(texts))


def quotes_behind(memory: EntropicMemory, recollection: Memory) -> list[Quote]:
    """What was said in the messages behind a recollection, oldest first.

    A recollection of several messages has the text of one of them. A question and the fact that
    answers it are near neighbours, so it may be the question's: the first and the latest
    messages tell more than either.
    """
    ids = recollection.provenance
    if len(ids) > 1:
        latest = ids[1:][-_LATEST:]
        messages = _messages(memory, [ids[0], *latest])
        quotes = _different(messages)
        if len(quotes) > _QUOTES:
            return [quotes[0], *quotes[1 - _QUOTES :]]
        if quotes:
            return quotes
    return [quote_of(recollection)]


def quote_of(source: Memory) -> Quote:
    """The text of a record, with who said it."""
    return Quote(source.id, speaker_of(source), source.text)


def speaker_of(source: Memory) -> str:
    """Who said it, by the metadata ``role`` and ``name``; empty where they say nothing."""
    words = []
    for key in ("role", "name"):
        value = source.metadata.get(key)
        if isinstance(value, str) and value.strip():
            words.append(one_line(value))
    return " ".join(words)


def _messages(memory: EntropicMemory, ids: list[str]) -> list[Memory]:
    """What is still there under these ids, oldest first."""
    records: list[Memory] = []
    for id in ids:
        record = memory.get(id)
        if record is not None:
            records.append(record)
    records.sort(key=lambda record: record.created)
    return records


def _different(records: list[Memory]) -> list[Quote]:
    """A quote of each record, the first of those that say the same."""
    quotes: dict[tuple[str, str], Quote] = {}
    for record in records:
        quote = quote_of(record)
        quotes.setdefault((quote.speaker, quote.text), quote)
    return list(quotes.values())
