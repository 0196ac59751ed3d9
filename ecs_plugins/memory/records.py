"""Records that an Entropic Memory returns: memories, reports, receipts, statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from ecs_plugins.common.rendering import folded, preformatted
from ecs_plugins.common.text import one_line
from ecs_plugins.memory.types import FreeEnergy, Namespace, SleepDecision, Tier

ERASED = "erased"
"""Stands in a decision where an id stood whose content has been erased."""


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


class Record:
    """Base class of records that become JSON."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON types."""
        kind: Any = type(self)
        plain: dict[str, Any] = _adapter(kind).dump_python(self, mode="json")
        return plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory(Record):
    """A message, or an item made of messages. It is data, never an instruction.

    `EntropicMemory.recall` returns items with a score, `messages` returns messages, `memories` and
    `history` return items of the cold tier. Every field reaches every adapter.

    Attributes:
        id: Id of the message or the item. All versions of an item have the same.
        text: The text.
        namespace: Where it belongs.
        role: Who said it: ``user``, ``assistant``, ``tool``, or what the application uses. Of an
            item, who said it first; empty where the log has none of its messages any more.
        roles: Everyone who said it, in order.
        writer: The agent that wrote a message; None if it did not say.
        asked: The question that the text replies to; empty if it replies to none.
        metadata: The metadata of a message. Of an item, what those of its messages agree on.
        created: When it was said first, as Unix time.
        changed: When this version of an item was written; of a message, as ``created``.
        expires: When it will be erased, or derived anew from what is left; None is never.
        step: The running number of a message in its namespace; of an item, that of the first.
        tier: The tier of an item, ``hot`` or ``cold``; None for a message.
        support: How many messages said it.
        provenance: Ids of the messages behind an item; a recall returns at most 101 of them, the
            first and the latest.
        pinned: True if nothing displaces it.
        outdated_by: Id of the newer message that makes it untrue, as a judge says
            (`OutdatingJudge`); None if none does.
        version: The number of this version of an item, from 1.
        live: True if this version can be recalled now.
        born: The sleep phase that wrote this version, if one did.
        died: The sleep phase that replaced it, if one did.
        free_energy: F, E and S when a sleep phase last judged it; None before.
        score: Probability that it helps to answer the query of a recall; 0 elsewhere. Recall
            sorts by the mean of similarity and coverage. Under the paper's rule, the cosine.
        similarity: Cosine to that query.
        coverage: Share of the query's terms in it, each weighted by how rare it is.
        why: Why it was recalled, in one line; empty elsewhere.
    """

    id: str
    text: str
    namespace: Namespace
    role: str = ""
    roles: tuple[str, ...] = ()
    writer: str | None = None
    asked: str = ""
    metadata: Mapping[str, object]
    created: float
    changed: float
    expires: float | None = None
    step: int = 0
    tier: Tier | None = None
    support: int = 1
    provenance: tuple[str, ...] = ()
    pinned: bool = False
    outdated_by: str | None = None
    version: int = 1
    live: bool = True
    born: int | None = None
    died: int | None = None
    free_energy: FreeEnergy | None = None
    score: float = 0.0
    similarity: float = 0.0
    coverage: float = 0.0
    why: str = ""

    def shown(self) -> str:
        """Return score, tier, text and reason in 80 columns."""
        return folded(f"{self.score:.3f}  {self.tier}  {self.text}\n  {self.why}")

    def _repr_html_(self) -> str:
        """Return the memory as a notebook shows it."""
        return preformatted(self.shown())


class Statement(NamedTuple):
    """Text of a message, with who said it and when."""

    id: str
    text: str
    speaker: str
    role: str
    at: float
    asked: str
    is_outdated: bool


def statement_of(record: Memory) -> Statement:
    """Return the text of a record with who said it and when."""
    role = one_line(str(record.metadata.get("role") or record.role))
    name = record.metadata.get("name")
    speaker = f"{role} {one_line(name)}".strip() if isinstance(name, str) else role
    # A recollection of one message has the id of that message in its provenance.
    id = record.provenance[0] if len(record.provenance) == 1 else record.id
    is_outdated = record.outdated_by is not None
    return Statement(id, record.text, speaker, role, record.created, record.asked, is_outdated)


class Memories(list[Memory]):
    """Recalled memories, best first."""

    def _repr_html_(self) -> str:
        """Return all of them as a notebook shows them."""
        shown = [each.shown() for each in self]
        return preformatted("\n".join(shown) or "Nothing was recalled.")


@dataclass(frozen=True, slots=True)
class RecordedDecision:
    """Decision in the record of a sleep phase.

    Attributes:
        at: Unix time.
        erased: Whether ids in it have been replaced by ``"erased"``.
    """

    sleep: int
    at: float
    erased: bool
    decision: SleepDecision

    def __str__(self) -> str:
        decision = self.decision
        line = f"sleep {self.sleep}.{decision.index}: {decision.kind}"
        line += f" {decision.candidate_id or '-'}, support {decision.support}"
        if decision.probability is not None and decision.delta is not None:
            line += (
                f", dF {decision.delta:.4f} at T {decision.temperature:.4g}, "
                f"P {decision.probability:.4f}, draw {decision.draw:.4f}"
            )
        if decision.target_id:
            line += f", over {decision.target_id}"
        if decision.similarity is not None:
            line += f", cosine {decision.similarity:.3f}"
        return line


@dataclass(frozen=True, slots=True)
class ReplayedDecision:
    """A recorded decision and the one recomputed from its numbers."""

    recorded: RecordedDecision
    recomputed: SleepDecision
    agrees: bool


@dataclass(frozen=True, slots=True)
class SleepReport(Record):
    """Report of one sleep phase.

    Attributes:
        id: Its number.
        namespace: Where.
        at: When, as Unix time.
        counts: Decisions of each kind.
        hot: Items in the hot tier, before and after.
        cold: Memories in the cold tier, before and after.
        temperature: T.
        seed: The seed of the draws.
        config_version: The settings used.
        attempts: How often it had to start again because others wrote meanwhile.
        problems: What went wrong without stopping it, such as a summary that fell back to a text
            taken from the cluster.
        summary_tokens: Tokens read and written by the language model for summaries.
        seconds: How long it took.
    """

    id: int
    namespace: Namespace
    at: float
    counts: Mapping[str, int]
    hot: tuple[int, int]
    cold: tuple[int, int]
    temperature: float
    seed: int
    config_version: str
    attempts: int = 1
    problems: tuple[str, ...] = ()
    summary_tokens: tuple[int, int] = (0, 0)
    seconds: float = 0.0


@dataclass(slots=True, weakref_slot=True)
class ErasureReceipt(Record):
    """Receipt of an erasure.

    Attributes:
        at: When, as Unix time.
        messages: Ids of the messages erased.
        replies: Ids of the messages that replied to them, and keep no copy of their questions.
        hot_erased: Hot items erased.
        hot_derived: Hot items derived anew from the messages that remain.
        memories_erased: Ids of the memories erased, every version of them.
        memories_derived: Ids of the memories derived anew from the messages that remain.
        decisions: Decisions in which ids were replaced by ``"erased"``, or that were deleted
            with their namespace.
        queries: Recorded queries and answers erased.
        namespaces: Namespaces deleted with everything in them.
        items: Key-value items erased, those of erased messages aside.
        scrubbed: Whether the erased content is in no file any more. It becomes True when
            `MemoryAdmin.compact` has run, and stays False if messages that stay still say the text
            of an erased memory: erase them too, with ``delete(..., evidence=True)``.
    """

    at: float
    messages: tuple[str, ...] = ()
    replies: tuple[str, ...] = ()
    hot_erased: int = 0
    hot_derived: int = 0
    memories_erased: tuple[str, ...] = ()
    memories_derived: tuple[str, ...] = ()
    decisions: int = 0
    queries: int = 0
    namespaces: tuple[Namespace, ...] = ()
    items: int = 0
    scrubbed: bool = False

    def __str__(self) -> str:
        counts = {
            "messages": len(self.messages),
            "hot items": self.hot_erased,
            "memories": len(self.memories_erased),
            "key-value items": self.items,
            "queries": self.queries,
            "namespaces": len(self.namespaces),
        }
        parts = [f"{count} {name}" for name, count in counts.items() if count]
        derived = self.hot_derived + len(self.memories_derived)
        line = f"erased {', '.join(parts) or 'nothing'}"
        if derived:
            line += f"; derived {derived} anew from the messages that stay"
        return (
            line if self.scrubbed else f"{line}; compact() removes the last copies from its files"
        )


@dataclass(frozen=True, slots=True)
class NamespaceStats:
    """Sizes of one namespace.

    Attributes:
        messages: In the log.
        hot: Items in the hot tier.
        cold: Memories in the cold tier.
        pinned: How many of these are pinned.
        sleeps: Sleep phases.
        since_sleep: Messages since the latest.
        bytes: Of the texts and metadata of the messages, in UTF-8.
    """

    namespace: Namespace
    messages: int
    hot: int
    cold: int
    pinned: int
    sleeps: int
    since_sleep: int
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class MemoryStats(Record):
    """The state of a memory file.

    Attributes:
        schema: The schema version of the file.
        embedder: Name and dimension of the embedder that its vectors come from.
        config_version: The settings it is open with.
        namespaces: One entry each.
        bytes: Of the database with its log.
        indexes: Open indexes, their bytes, linked vectors, tombstones.
        pending: Retrieval hits not yet written.
        items: Key-value items (those of `EntropicStore`), of messages or not.
    """

    path: str
    schema: int
    embedder: Mapping[str, object]
    config_version: str
    namespaces: tuple[NamespaceStats, ...]
    bytes: int
    indexes: Mapping[str, int]
    pending: int
    items: int = 0


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything on record about one memory or hot item.

    Attributes:
        id: Of the memory or the hot item.
        text: What it says now.
        tier: Where it is, or None if it is in neither tier any more.
        free_energy: F, E and S as of now, among what is in the cold tier; None for hot items.
        prior: The part of -E that its text alone accounts for (`worth`), in nats; None for hot
            items, and where the utility is another than the default.
        rank: Its place in the cold tier by free energy, 1 being the safest; None for hot items.
        versions: Its versions, oldest first.
        decisions: Every decision that names it or a message behind it.
        provenance: Ids and texts of the messages behind it; text None where the log's retention
            has removed them.
        lines: The same in words.
    """

    id: str
    text: str
    tier: Tier | None
    free_energy: FreeEnergy | None
    rank: int | None
    versions: tuple[Memory, ...]
    decisions: tuple[RecordedDecision, ...]
    provenance: tuple[tuple[str, str | None], ...]
    lines: tuple[str, ...] = field(default=())
    prior: float | None = None

    def __str__(self) -> str:
        return "\n".join([self.text, *self.lines])


@dataclass(frozen=True, slots=True)
class Verification:
    """Result of `verify`.

    Attributes:
        problems: One line each; empty when the file keeps all its promises.
        checked: Number of messages, versions of items, decisions, key-value items and vectors.
        warnings: Settings of the database that leave damage unnoticed.
    """

    problems: tuple[str, ...]
    checked: int
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if nothing is wrong with the memories."""
        return not self.problems
