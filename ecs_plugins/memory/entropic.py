"""`EntropicMemory`: a bounded memory in one file that accounts for every decision.

A message is logged and stands in the hot tier at once. Sleep phases consolidate the hot tier into
the cold tier, where memories compete by free energy (Entropic Memory, section 2 and A.1). Both
tiers are bounded; the message log has its own retention.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from ecs_plugins.common.aio import bridged
from ecs_plugins.common.text import well_formed
from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.memory.adding import Adder
from ecs_plugins.memory.admin import MemoryAdmin
from ecs_plugins.memory.arguments import check_outdated, check_wanted, listed, searched_tiers
from ecs_plugins.memory.config import MemoryConfig, StoreConfig
from ecs_plugins.memory.drafts import Draft, drafted
from ecs_plugins.memory.filters import Filter, checked_filter
from ecs_plugins.memory.outdating import OutdatingJudge, OutdatingRunner
from ecs_plugins.memory.reader import MemoryReader
from ecs_plugins.memory.records import (
    ErasureReceipt,
    Memories,
    Memory,
    SleepReport,
)
from ecs_plugins.memory.relevance import SAME, read
from ecs_plugins.memory.sleep import SleepRunner
from ecs_plugins.memory.store import changes, erasing, namespaces, search
from ecs_plugins.memory.store.embedder_epoch import RecordedEmbedder
from ecs_plugins.memory.store.engines import open_engine
from ecs_plugins.memory.store.items import Items
from ecs_plugins.memory.store.memory_store import MemoryStore
from ecs_plugins.memory.store.namespaces import checked
from ecs_plugins.memory.store.queries import Observation, write_observation
from ecs_plugins.memory.store.recalled import RecallRequest
from ecs_plugins.memory.store.reembedding import Progress
from ecs_plugins.memory.store.search import Shaper
from ecs_plugins.memory.types import DEFAULT_NAMESPACE, UtilityFunction
from ecs_plugins.ranking.embedder import Embedder, as_embedder, default_embedder
from ecs_plugins.storage.sqlite import MEMORY

if TYPE_CHECKING:
    from ecs_plugins.lm.base import LanguageModel


DEFAULT_K = 3
"""Memories that a recall returns at most (the paper's top 3)."""


class EntropicMemory(MemoryReader):
    """A bounded long-term memory. Thread-safe; several processes may use one file.

    Every method that computes or waits has an async form with an ``a`` before its name.

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
        super().__init__(store, utility)
        store.forget_read = getattr(model, "clear_cache", store.forget_read)
        self._outdating = None if judge is None else OutdatingRunner(store, judge)
        self._sleeper = SleepRunner(store, model, utility, self._outdating)
        self.admin = MemoryAdmin(store, self._sleeper.background, self._sleeper.judging)
        self.items = Items(store, self._sleeper.background.submit)
        self._adder = Adder(store, self._sleeper, self._outdating)

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
            at: Unix time, a `datetime` or an ISO text, which say their zone; None is now.
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
        return self._adder.add(namespace, drafts, key=idempotency_key, pinned=pinned)

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
        exclude: Collection[str] = (),
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
            exclude: Ids of recollections that are not wanted, such as those in the prompt already;
                the next best take their places.
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
        namespaces += [checked(each) for each in listed(also, "also")]
        config = self._store.config
        check_wanted(k, threshold, at)
        searched = searched_tiers(tiers, config)
        excluded = frozenset(listed(exclude, "exclude"))
        vector = self._store.embed_query(query)
        request = RecallRequest(
            query=query,
            question=None if config.rule == "paper" else read(query),
            vector=vector,
            k=DEFAULT_K if k is None else int(k),
            threshold=config.threshold if threshold is None else float(threshold),
            tiers=searched,
            condition=None if filter is None else checked_filter(filter),
            now=time.time(),
            exclude=excluded,
            at=at,
            scale=self._store.scale,
            hides_outdated=check_outdated(outdated) == "hide",
        )
        recalled = search.recall(self._store, namespaces, request, record=record, shaper=shaper)
        self._adder.tend()
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
            ids = [well_formed(each) for each in listed(used, "used")]
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
        metadata: Mapping[str, object] | None = None,
        pinned: bool | None = None,
        namespace: Sequence[str] | None = None,
    ) -> ErasureReceipt:
        """Change a message with the items made of it, or a memory.

        Args:
            item_id: Of a message or a memory.
            text: Its new text; the old one is erased. A message that no longer says what others
                said is kept apart from them. Of a memory, a message with the new text takes the
                place of those behind it, which stay in the log, and no repeat changes it again.
            metadata: Its new metadata.
            pinned: Whether anything may displace it. Pinning a message moves the hot item that
                it stands in to the cold tier.
            namespace: Whose it must be.

        Raises:
            InvalidInputError: Nothing of this id is stored, or there is no room to pin.
        """
        item_id = self._required(item_id, namespace)
        return changes.update(self._store, item_id, text=text, metadata=metadata, pinned=pinned)

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
        self, namespace: Sequence[str], *, filter: Filter | None = None, below: bool = False
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

    aclose = bridged(close)
    aadd = bridged(add)
    arecall = bridged(recall)
    aobserve = bridged(observe)
    asleep = bridged(sleep)
    asleep_all = bridged(sleep_all)
    aupdate = bridged(update)
    adelete = bridged(delete)
    aforget = bridged(forget)
