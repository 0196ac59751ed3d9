"""`EntropicMemory`: a bounded memory in one file that accounts for every decision.

A message is logged and stands in the hot tier at once. Sleep phases consolidate the hot tier into
the cold tier, where memories compete by free energy (Entropic Memory, section 2 and A.1). Both
tiers are bounded; the message log has its own retention.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal

from ecs_plugins.common.aio import bridged
from ecs_plugins.common.text import well_formed
from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.memory.admin import MemoryAdmin
from ecs_plugins.memory.config import MemoryConfig, StoreConfig
from ecs_plugins.memory.drafts import Draft, drafted
from ecs_plugins.memory.filters import Filter, checked_filter
from ecs_plugins.memory.outdating import OutdatingJudge, OutdatingRunner
from ecs_plugins.memory.records import (
    ErasureReceipt,
    Explanation,
    Memories,
    Memory,
    RecordedDecision,
    ReplayedDecision,
    SleepReport,
    Statement,
    statement_of,
)
from ecs_plugins.memory.relevance import SAME, read
from ecs_plugins.memory.sleep import SleepRunner
from ecs_plugins.memory.store import (
    changes,
    erasing,
    inspection,
    intake,
    namespaces,
    search,
    sleeps,
)
from ecs_plugins.memory.store import messages as log
from ecs_plugins.memory.store.embedder_record import RecordedEmbedder
from ecs_plugins.memory.store.engines import open_engine
from ecs_plugins.memory.store.items import Items
from ecs_plugins.memory.store.memory_store import FLUSH_AT, MemoryStore
from ecs_plugins.memory.store.namespaces import checked
from ecs_plugins.memory.store.outdated import outdating_ids
from ecs_plugins.memory.store.queries import Observation, write_observation
from ecs_plugins.memory.store.reembedding import Progress
from ecs_plugins.memory.store.search import RecallRequest, Shaper
from ecs_plugins.memory.store.tiers import Origin
from ecs_plugins.memory.types import (
    DEFAULT_NAMESPACE,
    TIERS,
    Namespace,
    Tier,
    UtilityFunction,
)
from ecs_plugins.ranking.embedder import Embedder, as_embedder, default_embedder
from ecs_plugins.storage.sqlite import MEMORY

if TYPE_CHECKING:
    from ecs_plugins.lm.base import LanguageModel


DEFAULT_K = 3
"""Memories that a recall returns at most (the paper's top 3)."""

_LATEST = 8  # messages behind a recollection that are looked at, besides the first
_STATEMENTS = 3  # different texts that are shown of one recollection
_FAR = 1e12  # seconds; beyond any date
_TIERS: Mapping[str, tuple[Tier, ...]] = {"both": TIERS, "hot": ("hot",), "cold": ("cold",)}


class EntropicMemory:
    """A bounded long-term memory. Thread-safe; several processes may use one file.

    Every method that computes or waits has an async form with an ``a`` before its name. A
    namespace given beside an id is whose item it must be: anybody else's is not found.

    Attributes:
        admin: Operations on the whole file: export, import, checks, statistics.
        items: Key-value items, kept verbatim beside the memories.

    Example:
        >>> from ecs_plugins.ranking.embedder import FakeEmbedder
        >>> with EntropicMemory.open(":memory:", embedder=FakeEmbedder()) as memory:
        ...     _ = memory.add("Ada lives in Paris.")
        ...     memory.recall("Ada lives where?", threshold=0.3)[0].text
        'Ada lives in Paris.'
    """

    def __init__(
        self,
        store: MemoryStore,
        *,
        model: LanguageModel | None = None,
        utility: UtilityFunction | None = None,
        judge: OutdatingJudge | None = None,
    ) -> None:
        self._store = store
        self._utility = utility
        store.forget_read = getattr(model, "clear_cache", store.forget_read)
        self._outdating = None if judge is None else OutdatingRunner(store, judge)
        self._sleeper = SleepRunner(store, model, utility, self._outdating)
        self.admin = MemoryAdmin(store, self._sleeper.background, self._sleeper.judging)
        self.items = Items(store, self._sleeper.background.submit)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] = MEMORY,
        *,
        embedder: Embedder | str | None = None,
        model: LanguageModel | None = None,
        config: MemoryConfig | Mapping[str, Any] | None = None,
        store: StoreConfig | Mapping[str, Any] | None = None,
        utility: UtilityFunction | None = None,
        judge: OutdatingJudge | None = None,
        reembed: bool = False,
        read_only: bool = False,
        progress: Progress | None = None,
    ) -> EntropicMemory:
        """Open a memory file, made if it is new, upgraded if it is old.

        Args:
            path: The file, ``":memory:"``, or the address of a PostgreSQL database with pgvector:
                ``postgresql://user:password@host/database?schema=name``.
            embedder: Anything that `as_embedder` takes, such as ``"multilingual"``; None is the
                default embedder, which knows English.
            model: Writes summaries, for ``MemoryConfig(proposal="summary")``; forgets what it has
                read when text is erased.
            config: What is kept, also as its JSON; it may differ from the one the file was used
                with before.
            store: How it is stored and run, also as its JSON.
            utility: Replaces the configured utility, e.g. ``answer_utility(model)``.
            judge: Says in the background which older statements a new one outdates, such as a
                `ChatModelJudge`; None asks nobody.
            reembed: If the file was written with another embedder, embed everything anew.
            read_only: Write nothing, not even that something was recalled; what would write
                raises `StorageError`. The file has to be there and of this version. Without
                ``embedder``, the one that it was written with if that is the default one, loaded
                when something is embedded.
            progress: Called with texts done and texts to do while re-embedding.

        Raises:
            ConfigurationError: Another embedder, unknown settings, or summaries without a model.
            StorageError: The file cannot be opened, is no memory file, or is of a newer version.
        """
        settings = StoreConfig.from_any(store)
        what = MemoryConfig.from_any(config)
        if what.proposal == "summary" and model is None:
            raise ConfigurationError('proposal="summary" needs a language model: pass model=')
        if embedder is None and not read_only:
            embedder = default_embedder()
        database, indexes = open_engine(path, settings, read_only=read_only)
        try:
            embedder = RecordedEmbedder(database) if embedder is None else as_embedder(embedder)
            if embedder.name in SAME and "merge_threshold" not in what.model_fields_set:
                what = what.replace(merge_threshold=SAME[embedder.name])
            opened = MemoryStore(database, embedder, what, settings, indexes, adopt=reembed)
            if reembed and not opened.is_current:
                opened.reembed(embedder, progress)
        except BaseException:
            database.close()
            raise
        return cls(opened, model=model, utility=utility, judge=judge)

    @property
    def config(self) -> MemoryConfig:
        """Return the settings."""
        return self._store.config

    @property
    def embedder(self) -> Embedder:
        """Embedder of the texts."""
        return self._store.embedder

    @property
    def path(self) -> str:
        """Return the file."""
        return self._store.database.path

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._store.closed

    def close(self) -> None:
        """Write pending hits and the links of large graphs, and close the file."""
        self._sleeper.judging.close()
        self._sleeper.background.close()
        self._store.close()

    def __enter__(self) -> EntropicMemory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # In use

    def add(
        self,
        messages: Draft | Sequence[Draft],
        *,
        namespace: Sequence[str] = DEFAULT_NAMESPACE,
        role: str = "user",
        metadata: Mapping[str, object] | None = None,
        writer: str | None = None,
        at: float | datetime | str | None = None,
        ttl: float | None = None,
        pinned: bool = False,
        idempotency_key: str | None = None,
    ) -> list[str]:
        """Remember messages. They are on disk when this returns.

        Args:
            messages: A text, a `NewMessage`, ``(role, text)``, a message of LangChain's, or a
                mapping with ``content`` (or ``text``; also in parts, as OpenAI has it) and
                optionally ``role``, ``name``, ``tool_calls``, ``metadata``, ``writer``, ``at``,
                ``ttl``; or a sequence of these. Committed together, or in stretches between the
                sleep phases that fall due among them.
            namespace: Where.
            role: Who said it, for messages that do not say.
            metadata: JSON values to filter by, for messages that have none.
            writer: The agent that writes, where several share a namespace.
            at: Unix time, a `datetime` or an ISO text, which say their zone; None is now, and so
                is a time more than a day ahead.
            ttl: Seconds until the message, and what rests on it, is erased.
            pinned: Put it into the cold tier at once, where nothing displaces it.
            idempotency_key: A text that nothing else is added under. Who does not know whether an
                ``add`` was done repeats it with the same key, within a day: what is stored is not
                stored again, and the ids are those of the first time.

        Returns:
            The ids of the messages.

        Raises:
            InvalidInputError: Empty text, bad metadata or namespace, or other messages under a
                known idempotency key; nothing was written.
            QuotaError: The namespace has no room for them (``StoreConfig.max_messages`` and
                ``max_bytes``); nothing was written.
            ModelError: The embedder failed; nothing was written.
            StorageError: It could not be written; the stretch at hand was not.
        """
        namespace = checked(namespace)
        drafts = drafted(messages, role=role, metadata=metadata, writer=writer, at=at, ttl=ttl)
        if not drafts:
            return []
        store = self._store
        if self._outdating is not None:
            self._outdating.follow(namespace)
        key = idempotency_key
        request = None if key is None else intake.request(key, drafts)
        while True:
            batch = intake.prepared(store, namespace, drafts, request, pinned=pinned)
            try:
                while batch.messages:
                    since = intake.add(store, namespace, batch)
                    self._sleep_if_due(namespace, since)
            except intake.OvertakenError:
                continue  # others stored a part of it meanwhile: add the rest
            self._sleeper.judge_later(namespace)
            self._tend()
            return batch.ids

    def _sleep_if_due(self, namespace: Namespace, since: int) -> None:
        """Sleep after the transaction if enough messages came since the last sleep phase."""
        is_due = since >= self.config.sleep_every
        if is_due and self._store.settings.sleep != "manual":
            asleep = partial(self._sleeper.fall_asleep, namespace, since)
            self._store.database.on_end(asleep)

    def _tend(self) -> None:
        """Hand work that no caller waits for to the background thread."""
        submit = self._sleeper.background.submit
        store = self._store
        for index in store.indexes.take_worn():
            submit(f"rebuilding index {id(index)}", index.rebuild)
        for namespace in store.pending.namespaces(FLUSH_AT):  # a recall waits for no writer
            submit(f"writing hits in {namespace}", partial(self._sleeper.write_hits, namespace))

    def recall(
        self,
        query: str,
        *,
        namespace: Sequence[str] = DEFAULT_NAMESPACE,
        also: Sequence[Sequence[str]] = (),
        k: int | None = None,
        threshold: float | None = None,
        filter: Filter | None = None,
        tiers: str | None = None,
        at: float | None = None,
        outdated: Literal["mark", "hide"] = "mark",
        record: bool = True,
        shaper: Shaper | None = None,
    ) -> list[Memory]:
        """Return the memories that fit a query, best first.

        Args:
            query: The question.
            namespace: Where to look.
            also: Other namespaces to look in, such as one that several agents share.
            k: How many at most; None is 3.
            threshold: Minimum score, in [0, 1]; None is ``MemoryConfig.threshold``. Under the
                paper's rule, the minimum cosine.
            filter: Metadata that an item must have (`filters`).
            tiers: ``both``, ``hot`` or ``cold``; None is both, or cold under the paper's rule.
            at: Unix time: recall among the messages said until then; None is now.
            outdated: ``mark`` returns memories that a judge says are outdated after the newer ones,
                with ``outdated_by``; ``hide`` leaves them out.
            record: Count it as a query and its results as hits, which is what utility is
                measured by.
            shaper: A second stage, such as a `ContextShaper`: it orders the best 40 by how much
                each helps to answer, and what it does not accept is not recalled.

        Returns:
            At most ``k`` recollections; none where nothing was ever stored.

        Raises:
            InvalidInputError: A blank query, or arguments out of range.
            ModelError: The embedder failed.
            StorageError: The file could not be read, or is damaged.
        """
        namespaces = [checked(namespace)]
        namespaces += [checked(each) for each in _listed(also, "also")]
        config = self._store.config
        _check_wanted(k, threshold, at)
        if tiers is None:
            tiers = "cold" if config.rule == "paper" else "both"
        if tiers not in _TIERS:
            raise InvalidInputError(f"tiers is 'both', 'hot' or 'cold', got {tiers!r}")
        if outdated not in ("mark", "hide"):
            raise InvalidInputError(f"outdated is 'mark' or 'hide', got {outdated!r:.80}")
        vector = self._store.embed_query(query)
        request = RecallRequest(
            query=query,
            question=None if config.rule == "paper" else read(query),
            vector=vector,
            k=DEFAULT_K if k is None else int(k),
            threshold=config.threshold if threshold is None else float(threshold),
            tiers=_TIERS[tiers],
            condition=None if filter is None else checked_filter(filter),
            now=time.time(),
            at=at,
            scale=self._store.scale,
            hides_outdated=outdated == "hide",
        )
        recalled = search.recall(self._store, namespaces, request, record=record, shaper=shaper)
        self._tend()
        return Memories(recalled)

    def observe(
        self,
        query: str,
        answer: str,
        *,
        used: Collection[str] | None = None,
        namespace: Sequence[str] = DEFAULT_NAMESPACE,
    ) -> None:
        """Record the answer to a query and the memories that it used.

        After a `recall` of the same query, both are one event. A memory that was recalled and used
        helped; one that was recalled and not used did not (`MemoryConfig.entropy`).

        Args:
            query: The question.
            answer: The answer that was given; ``answer_utility`` learns from it.
            used: Ids of the memories that the answer used; None if that is not known.
            namespace: Where the memories are.

        Raises:
            InvalidInputError: A blank query or answer.
        """
        namespace = checked(namespace)
        if not isinstance(answer, str) or not answer.strip():
            raise InvalidInputError("observe needs the answer that was given")
        ids = None
        if used is not None:
            ids = [well_formed(each) for each in _listed(used, "used")]
        text = well_formed(query)
        vector = self._store.embed_query(text)
        event = Observation(vector, text, well_formed(answer), ids)
        with self._store.writing_to(namespace, create=True) as (connection, space):
            assert space is not None
            write_observation(connection, space, event)

    # Asleep

    def sleep(self, namespace: Sequence[str] = DEFAULT_NAMESPACE) -> SleepReport | None:
        """Run one sleep phase now; None if nothing was ever stored in the namespace.

        Raises:
            ModelError: The language model failed, with ``on_summary_error="raise"``.
            StorageError: It could not be written. In both cases nothing has changed.
        """
        return self._sleeper.sleep(checked(namespace))

    def sleep_all(self, least: int = 1) -> list[SleepReport]:
        """Run a sleep phase in every namespace to which something was added since its last one.

        Several workers may do so at once: each leaves to the others what they are at.

        Args:
            least: How many messages must have been added, such as ``config.sleep_every``.
        """
        with self._store.database.read() as connection:
            spaces = namespaces.list_spaces(connection)
        due = [each.namespace for each in spaces if each.since_sleep >= least]
        reports = (self._sleeper.sleep(each, least) for each in due)
        return [report for report in reports if report is not None]

    # Corrected

    def update(
        self,
        item_id: str,
        *,
        text: str | None = None,
        pinned: bool | None = None,
        namespace: Sequence[str] | None = None,
    ) -> ErasureReceipt:
        """Change a message with the items made of it, or a memory.

        Args:
            item_id: Of a message or a memory.
            text: Its new text; the old one is erased. A message leaves the items that it shares
                with others, and gets an item of its own. Of a memory, a message with the new text
                takes the place of its messages, which stay in the log, and no repeat changes it
                again.
            pinned: Whether anything may displace it. Pinning a message moves the hot item that
                it stands in to the cold tier.
            namespace: Whose it must be.

        Raises:
            InvalidInputError: Nothing of this id is stored, or there is no room to pin.
        """
        item_id = self._required(item_id, namespace)
        return changes.update(self._store, item_id, text=text, pinned=pinned)

    def delete(
        self, *item_ids: str, evidence: bool = False, namespace: Sequence[str] | None = None
    ) -> ErasureReceipt:
        """Erase messages with the items made of them alone, or memories: all of them or nothing.

        Args:
            item_ids: Of messages, or of memories.
            evidence: For a memory: erase the messages behind it as well.
            namespace: Whose they must be.

        Raises:
            InvalidInputError: Nothing of such an id is stored.
        """
        own = [self._required(item_id, namespace) for item_id in item_ids]
        return erasing.delete(self._store, own, evidence=evidence)

    def forget(
        self,
        namespace: Sequence[str],
        *,
        filter: Filter | None = None,
        below: bool = False,
    ) -> ErasureReceipt:
        """Erase a namespace with everything in it, or the messages in it that a filter matches.

        Everything includes the key-value items of that namespace; a filter is for messages alone.

        Args:
            namespace: Where; matched whole, label by label.
            filter: Erase only the messages with such metadata, and what rests on them alone.
            below: The namespaces below it too.
        """
        condition = None if filter is None else checked_filter(filter)
        return erasing.forget(self._store, checked(namespace), condition, below=below)

    # Read

    def get(
        self,
        item_id: str,
        *,
        namespace: Sequence[str] | None = None,
    ) -> Memory | None:
        """Return a message of the log, or the live version of a memory; None if there is none."""
        own = self._own(item_id, namespace)
        if own is None:
            return None
        with self._store.database.read() as connection:
            message = log.get(connection, own)
            if message is not None:
                now = time.time()
                if message.expires is not None and message.expires <= now:
                    return None
                newer = outdating_ids(connection, {own: Origin((own,))}, now)
                return replace(message, outdated_by=newer.get(own))
            versions = inspection.history(connection, own)
        live = next((each for each in versions if each.live), None)
        if live is None or live.expires is None:
            return live
        # Something behind it may have expired: what is left of it is what is recalled.
        for memory in self.memories(live.namespace):
            if memory.id == own:
                return memory
        return None

    def history(
        self,
        memory_id: str,
        *,
        namespace: Sequence[str] | None = None,
    ) -> list[Memory]:
        """Return every stored version of a memory, oldest first."""
        own = self._own(memory_id, namespace)
        if own is None:
            return []
        with self._store.database.read() as connection:
            return inspection.history(connection, own)

    def messages(
        self,
        namespace: Sequence[str] = DEFAULT_NAMESPACE,
        *,
        limit: int | None = None,
        before: int | None = None,
    ) -> list[Memory]:
        """Return the newest ``limit`` messages with a step below ``before``, oldest first."""
        with self._store.reading(checked(namespace)) as (connection, space):
            if space is None:
                return []
            return log.log(connection, space.id, now=time.time(), limit=limit, before=before)

    def memories(self, namespace: Sequence[str] = DEFAULT_NAMESPACE) -> list[Memory]:
        """Return the cold tier, oldest memory first."""
        with self._store.reading(checked(namespace)) as (connection, space):
            if space is None:
                return []
            return inspection.cold(connection, space, self._store)

    def explain(
        self,
        item_id: str,
        *,
        namespace: Sequence[str] | None = None,
    ) -> Explanation:
        """Return everything on record about a memory or a message.

        Raises:
            InvalidInputError: Nothing of this id is stored.
        """
        item_id = self._required(item_id, namespace)
        with self._store.database.read() as connection:
            return inspection.explain(connection, item_id, self._store, self._utility)

    def namespaces(self, prefix: Sequence[str] | None = None) -> list[Namespace]:
        """Return all namespaces, or those equal to ``prefix`` or below it, label by label."""
        above = None if prefix is None else checked(prefix)
        with self._store.database.read() as connection:
            spaces = namespaces.list_spaces(connection, above)
        return [space.namespace for space in spaces]

    def sleeps(self, namespace: Sequence[str] = DEFAULT_NAMESPACE) -> list[SleepReport]:
        """Return the reports of a namespace's sleep phases, newest first."""
        with self._store.reading(checked(namespace)) as (connection, space):
            if space is None:
                return []
            return sleeps.reports(connection, space.id)

    def decisions(
        self,
        namespace: Sequence[str] = DEFAULT_NAMESPACE,
        *,
        sleep_id: int | None = None,
        item_id: str | None = None,
        limit: int | None = None,
    ) -> list[RecordedDecision]:
        """Return decisions, the newest sleep phase first; of one sleep phase or item if given."""
        with self._store.reading(checked(namespace)) as (connection, space):
            if space is None:
                return []
            return sleeps.decisions(
                connection,
                space.id,
                sleep=sleep_id,
                item=item_id,
                limit=limit,
            )

    def replay(self, namespace: Sequence[str] = DEFAULT_NAMESPACE) -> list[ReplayedDecision]:
        """Recompute every decision of a namespace from its record."""
        return sleeps.replayed(self.decisions(namespace))

    def _own(self, item_id: str, namespace: Sequence[str] | None) -> str | None:
        """Return an id in valid Unicode; None if it belongs to another namespace."""
        if not isinstance(item_id, str):
            raise InvalidInputError(f"an id is a text, got {item_id!r:.80}")
        item_id = well_formed(item_id)
        if namespace is None:
            return item_id
        with self._store.reading(checked(namespace)) as (connection, space):
            if space is not None and inspection.stands_in(connection, item_id, space):
                return item_id
        return None

    def _required(self, item_id: str, namespace: Sequence[str] | None) -> str:
        own = self._own(item_id, namespace)
        if own is None:
            raise erasing.unknown(item_id)
        return own

    aclose = bridged(close)
    aget = bridged(get)
    ahistory = bridged(history)
    amessages = bridged(messages)
    amemories = bridged(memories)
    aexplain = bridged(explain)
    anamespaces = bridged(namespaces)
    asleeps = bridged(sleeps)
    adecisions = bridged(decisions)
    areplay = bridged(replay)
    aadd = bridged(add)
    arecall = bridged(recall)
    aobserve = bridged(observe)
    asleep = bridged(sleep)
    asleep_all = bridged(sleep_all)
    aupdate = bridged(update)
    adelete = bridged(delete)
    aforget = bridged(forget)


def _check_wanted(
    k: int | None,
    threshold: float | None,
    at: float | None,
) -> None:
    """Refuse arguments of a recall that are out of range."""
    if k is not None and not (isinstance(k, Integral) and k >= 1):
        raise InvalidInputError(f"k is {k!r:.80}; it must be a number of at least 1")
    for name, value, limit in (("threshold", threshold, 1.0), ("at", at, _FAR)):
        if value is not None and not (isinstance(value, Real) and -limit <= value <= limit):
            raise InvalidInputError(f"{name} is {value!r:.80}; it must be a number up to {limit:g}")


def _listed(values: Collection[Any], name: str) -> Collection[Any]:
    """Return a collection as it is; refuse anything else, and a bare text."""
    if isinstance(values, str) or not isinstance(values, Collection):
        raise InvalidInputError(f"{name} is a collection, got {values!r:.80}; write [...]")
    return values


def statements_behind(memory: EntropicMemory, recollection: Memory) -> list[Statement]:
    """Return the different messages that a recollection was made from, oldest first.

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


def texts_behind(memory: EntropicMemory, recollection: Memory) -> list[str]:
    """Return the different texts of `statements_behind`."""
    texts = [each.text for each in statements_behind(memory, recollection)]
    return list(dict.fromkeys(texts))
