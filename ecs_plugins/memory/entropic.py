"""`EntropicMemory`: a bounded memory in one file that accounts for every decision.

A message is logged and stands in the hot tier at once; sleep phases consolidate the hot tier into
the cold tier, where memories compete by free energy (Entropic Memory, section 2 and A.1). What is
bounded is what is searched, hot and cold; the message log has its own retention.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from ecs_plugins._async import run_sync
from ecs_plugins.embedding import Embedder, as_embedder, default_embedder
from ecs_plugins.errors import ConfigurationError, InvalidInputError, StorageError
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.filters import Filter, checked_filter
from ecs_plugins.memory.namespaces import DEFAULT_NAMESPACE, Namespace, checked
from ecs_plugins.memory.records import (
    ErasureReceipt,
    Explanation,
    Memory,
    MemoryStats,
    Recollection,
    RecordedDecision,
    ReplayedDecision,
    SleepReport,
)
from ecs_plugins.memory.store import inspecting, spaces
from ecs_plugins.memory.store import messages as log
from ecs_plugins.memory.store.access import (
    FLUSH_AT,
    complete_query,
    insert_query,
    prune_queries,
    write_outcome,
)
from ecs_plugins.memory.store.admitting import Admitting
from ecs_plugins.memory.store.core import Core
from ecs_plugins.memory.store.database import MEMORY, Database
from ecs_plugins.memory.store.decisions import decisions, replayed
from ecs_plugins.memory.store.drafts import Draft, drafted
from ecs_plugins.memory.store.editing import Editing
from ecs_plugins.memory.store.index import Progress
from ecs_plugins.memory.store.maintenance import Maintenance
from ecs_plugins.memory.store.messages import Message
from ecs_plugins.memory.store.recalling import Request, recall
from ecs_plugins.memory.store.recorded import RecordedEmbedder
from ecs_plugins.memory.store.running import Running
from ecs_plugins.memory.store.store_config import StoreConfig
from ecs_plugins.memory.store.undoing import sleeps, undo
from ecs_plugins.memory.store.upkeep import is_due
from ecs_plugins.memory.store.verification import Verification
from ecs_plugins.memory.types import TIERS, Tier, UtilityFunction

if TYPE_CHECKING:
    from ecs_plugins.lm.base import LanguageModel

P = ParamSpec("P")
T = TypeVar("T")


def _bridged(
    method: Callable[Concatenate[EntropicMemory, P], T],
) -> Callable[Concatenate[EntropicMemory, P], Awaitable[T]]:
    """The async form of a method: the same call in a worker thread."""

    @wraps(method)
    async def call(self: EntropicMemory, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await run_sync(method, self, *args, **kwargs)

    return call


class EntropicMemory:
    """A bounded long-term memory. Thread-safe; several processes may use one file.

    Every method that computes or waits has an async form with an ``a`` before its name.

    Example:
        >>> from ecs_plugins.embedding import FakeEmbedder
        >>> with EntropicMemory.open(":memory:", embedder=FakeEmbedder()) as memory:
        ...     _ = memory.add("Ada lives in Paris.")
        ...     memory.recall("Ada lives where?", threshold=0.3)[0].text
        'Ada lives in Paris.'
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._editing = Editing(core)
        self._maintenance = Maintenance(core)
        self._running = Running(core, self._editing)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] = MEMORY,
        *,
        embedder: Embedder | None = None,
        model: LanguageModel | None = None,
        config: MemoryConfig | None = None,
        store: StoreConfig | None = None,
        utility: UtilityFunction | None = None,
        reembed: bool = False,
        progress: Progress | None = None,
    ) -> EntropicMemory:
        """Open a memory file, made if it is new, upgraded if it is old.

        Args:
            path: The file, or ``":memory:"``.
            embedder: Anything that `as_embedder` takes; None is the default embedder.
            model: Writes summaries, for ``MemoryConfig(proposal="summary")``.
            config: What is kept; it may differ from the one the file was used with before. What
                is None in it becomes what fits sentences (`MemoryConfig.for_texts`).
            store: How it is stored and run.
            utility: Replaces the configured utility, e.g. ``answer_utility(model)``.
            reembed: If the file was written with another embedder, embed everything anew.
            progress: Called with texts done and texts to do while re-embedding.

        Raises:
            ConfigurationError: Another embedder, or summaries without a model.
            StorageError: The file cannot be opened, is no memory file, or is of a newer version.
        """
        config, store = (config or MemoryConfig()).for_texts(), store or StoreConfig()
        if config.proposal == "summary" and model is None:
            raise ConfigurationError('proposal="summary" needs a language model: pass model=')
        embedder = default_embedder() if embedder is None else as_embedder(embedder)
        database = Database(path, synchronous=store.synchronous, busy_timeout=store.busy_timeout)
        try:
            core = Core(database, embedder, config, store, model, utility, adopt=reembed)
            memory = cls(core)
            if reembed and not core.is_current():
                memory._maintenance.reembed(embedder, progress)
        except BaseException:
            database.close()
            raise
        return memory

    @classmethod
    def inspect(
        cls, path: str | os.PathLike[str], *, config: MemoryConfig | None = None
    ) -> EntropicMemory:
        """Open an existing file without its embedder, for all that embeds nothing.

        Raises:
            StorageError: There is no such file.
        """
        if not Path(path).is_file():
            raise StorageError(f"there is no memory file {path}; check the path")
        database = Database(path)
        try:
            return cls.open(path, embedder=RecordedEmbedder.of(database), config=config)
        finally:
            database.close()

    @property
    def config(self) -> MemoryConfig:
        """What is kept."""
        return self._core.config

    @property
    def path(self) -> str:
        """The file."""
        return self._core.database.path

    def close(self) -> None:
        """Write what is pending and the index snapshots, and close the file."""
        self._core.close()

    def __enter__(self) -> EntropicMemory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Remembering

    def add(
        self,
        messages: Draft | Sequence[Draft],
        *,
        namespace: Sequence[str] = DEFAULT_NAMESPACE,
        role: str = "user",
        metadata: Mapping[str, object] | None = None,
        label: str | None = None,
        writer: str | None = None,
        at: float | None = None,
        ttl: float | None = None,
        pinned: bool = False,
    ) -> list[str]:
        """Remember messages. They are on disk when this returns.

        Args:
            messages: A text, a `NewMessage`, or a mapping with ``content`` (or ``text``) and
                optionally ``role``, ``metadata``, ``label``, ``writer``, ``at``, ``ttl``; or a
                sequence of these. Committed together, or in stretches between the sleep phases
                that fall due among them.
            namespace: Where.
            role: Who said it, for messages that do not say.
            metadata: JSON values to filter by, for messages that have none.
            label: What it says or led to, if known (`NewMessage.label`).
            writer: The agent that writes, where several share a namespace.
            at: Seconds since 1970; None is now.
            ttl: Seconds until the message, and what rests on it, is erased.
            pinned: Put it into the cold tier at once, where nothing displaces it.

        Returns:
            The ids of the messages.

        Raises:
            InvalidInputError: Empty text, bad metadata or namespace; nothing was written.
            ModelError: The embedder failed; nothing was written.
            StorageError: It could not be written; the stretch at hand was not.
        """
        namespace = checked(namespace)
        drafts = drafted(
            messages, role=role, metadata=metadata, label=label, writer=writer, at=at, ttl=ttl
        )
        if not drafts:
            return []
        vectors = self._core.embed([draft.text for draft in drafts])
        ids = log.new_ids(len(drafts))
        start = 0
        while start < len(drafts):
            with self._core.writing_to(namespace, create=True) as (connection, space):
                assert space is not None
                stop = start + self._stretch(space.since_sleep, len(drafts) - start)
                Admitting(
                    connection,
                    space,
                    config=self.config,
                    indexes=self._core.indexes,
                    now=time.time(),
                ).add(drafts[start:stop], ids[start:stop], vectors[start:stop], pinned=pinned)
                due = is_due(space, self.config, self._core.store)
                since = space.since_sleep
            if due:
                self._running.fall_asleep(namespace, since)
            start = stop
        self._core.tend()
        return ids

    def _stretch(self, since_sleep: int, left: int) -> int:
        """How many messages to commit together: up to the sleep phase that the caller runs."""
        if self._core.store.sleep != "caller":
            return left
        every = self.config.sleep_every
        return every - since_sleep % every

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
        record: bool = True,
    ) -> list[Recollection]:
        """What is remembered about a query, best first.

        Args:
            query: The question.
            namespace: Where to look.
            also: Other namespaces to look in, such as one that several agents share.
            k: How many at most; None is ``MemoryConfig.top_k``.
            threshold: Least cosine; None is ``MemoryConfig.threshold``, by default 0.5: a
                question seldom comes nearer than 0.6 to the message that answers it.
            filter: Metadata that an item must have (`filters`).
            tiers: ``both``, ``hot`` or ``cold``; None is ``MemoryConfig.search``.
            exclude: Ids of recollections that are not wanted, such as those in the prompt already;
                the next best take their places.
            record: Count it as a query and its results as hits, which is what utility is
                measured by.

        Returns:
            At most ``k`` recollections; none where nothing was ever stored.

        Raises:
            InvalidInputError: A blank query, or arguments out of range.
            ModelError: The embedder failed.
            StorageError: The file could not be read, or is damaged.
        """
        spaces_to_search = [checked(each) for each in (namespace, *also)]
        k = self.config.top_k if k is None else k
        if k < 1:
            raise InvalidInputError(f"k is {k}; it must be at least 1")
        request = Request(
            vector=self._core.embed_query(query),
            k=k,
            threshold=self.config.recalled_from if threshold is None else threshold,
            tiers=_tiers(tiers or self.config.search),
            condition=None if filter is None else checked_filter(filter),
            now=time.time(),
            exclude=_excluded(exclude),
        )
        found: list[Recollection] = []
        asked: list[tuple[Namespace, int]] = []
        for each in dict.fromkeys(spaces_to_search):
            with self._core.reading(each) as (connection, space):
                if space is None:
                    continue
                found += recall(connection, space, self._core.indexes, request)
                asked.append((each, space.step))
        found.sort(key=lambda item: -item.score)
        del found[k:]
        for each, step in asked if record else ():
            names = (item.id for item in found if item.namespace == each)
            if self._core.pending.note(each, step, request.vector, names) >= FLUSH_AT:
                self._core.flush(each)
        self._core.tend()
        return found

    def observe(
        self,
        query: str,
        answer: str,
        recalled_ids: Sequence[str] = (),
        outcome: str | bool | None = None,
        *,
        namespace: Sequence[str] = DEFAULT_NAMESPACE,
    ) -> None:
        """Tell the memory what was answered, and how that turned out.

        After a `recall` of the same query it completes what that recorded: the two are one query.

        Args:
            query: The question.
            answer: The answer really given; ``answer_utility`` learns from it.
            recalled_ids: Ids of the recollections that were used.
            outcome: True or False for success or failure, or a label: what the recollections
                should have said.
            namespace: Where.

        Raises:
            InvalidInputError: A blank query or answer.
        """
        namespace = checked(namespace)
        if not isinstance(answer, str) or not answer.strip():
            raise InvalidInputError("observe needs the answer that was given")
        vector = self._core.embed_query(query)
        with self._core.writing_to(namespace, create=True) as (connection, space):
            assert space is not None
            used = list(recalled_ids)
            if not complete_query(
                connection, space, vector=vector, items=used, text=query, answer=answer
            ):
                insert_query(
                    connection, space, step=space.step, at=time.time(), vector=vector,
                    items=used, text=query, answer=answer,
                )  # fmt: skip
            prune_queries(connection, space, self.config.utility_window)
            if outcome is not None:
                write_outcome(connection, space, used, outcome, self.config)

    # Sleeping

    def sleep(self, namespace: Sequence[str] = DEFAULT_NAMESPACE) -> SleepReport | None:
        """Run one sleep phase now; None if nothing was ever stored in the namespace.

        Raises:
            ModelError: The language model failed, with ``on_summary_error="raise"``.
            StorageError: It could not be written. In both cases nothing has changed.
        """
        return self._running.sleep(checked(namespace))

    def sleep_all(self) -> list[SleepReport]:
        """Run a sleep phase in every namespace to which something was added since its last one."""
        with self._core.database.read() as connection:
            waiting = [each.namespace for each in spaces.listed(connection) if each.since_sleep]
        return [report for each in waiting if (report := self.sleep(each)) is not None]

    def undo(self, sleep_id: int) -> None:
        """Put both tiers back to where they were before a namespace's latest sleep phase.

        Raises:
            InvalidInputError: There is no such sleep phase, it was undone, or a later one stands.
        """
        with self._core.writing() as connection:
            undo(
                connection,
                sleep_id,
                config=self.config,
                dimension=self._core.dimension,
                retention=self._core.store.log_retention,
                now=time.time(),
            )

    def sleeps(self, namespace: Sequence[str] = DEFAULT_NAMESPACE) -> list[SleepReport]:
        """The reports of a namespace's sleep phases, newest first."""
        with self._core.reading(checked(namespace)) as (connection, space):
            return [] if space is None else sleeps(connection, space.id)

    def replay(self, namespace: Sequence[str] = DEFAULT_NAMESPACE) -> list[ReplayedDecision]:
        """Recompute every decision of a namespace from what was recorded about it."""
        return replayed(self.decisions(namespace))

    def decisions(
        self,
        namespace: Sequence[str] = DEFAULT_NAMESPACE,
        *,
        sleep_id: int | None = None,
        item_id: str | None = None,
        limit: int | None = None,
    ) -> list[RecordedDecision]:
        """Recorded decisions, the newest sleep phase first; of one sleep phase or item if given."""
        with self._core.reading(checked(namespace)) as (connection, space):
            if space is None:
                return []
            return decisions(
                connection,
                space.id,
                sleep=sleep_id,
                item=item_id,
                limit=-1 if limit is None else limit,
            )

    # Looking

    def get(self, item_id: str) -> Message | Memory | None:
        """A message of the log, or the present version of a memory; None if there is none."""
        with self._core.database.read() as connection:
            message = log.get(connection, item_id)
            if message is not None:
                expired = message.expires is not None and message.expires <= time.time()
                return None if expired else message
            live = [each for each in inspecting.history(connection, item_id) if each.live]
            return live[0] if live else None

    def history(self, memory_id: str) -> list[Memory]:
        """Every stored version of a memory, oldest first."""
        with self._core.database.read() as connection:
            return inspecting.history(connection, memory_id)

    def messages(
        self,
        namespace: Sequence[str] = DEFAULT_NAMESPACE,
        *,
        limit: int | None = None,
        before: int | None = None,
    ) -> list[Message]:
        """The newest ``limit`` messages with a step below ``before``, oldest first."""
        with self._core.reading(checked(namespace)) as (connection, space):
            if space is None:
                return []
            return log.log(
                connection,
                space.id,
                now=time.time(),
                limit=-1 if limit is None else limit,
                before=before,
            )

    def memories(self, namespace: Sequence[str] = DEFAULT_NAMESPACE) -> list[Memory]:
        """The cold tier, oldest memory first."""
        with self._core.reading(checked(namespace)) as (connection, space):
            return [] if space is None else inspecting.cold(connection, space, time.time())

    def explain(self, item_id: str) -> Explanation:
        """Everything on record about a memory or a message.

        Raises:
            InvalidInputError: Nothing of this id is stored.
        """
        with self._core.database.read() as connection:
            return inspecting.explain(
                connection,
                item_id,
                config=self.config,
                dimension=self._core.dimension,
                utility=self._core.utility,
            )

    def namespaces(self, prefix: Sequence[str] | None = None) -> list[Namespace]:
        """All namespaces, or those equal to ``prefix`` or below it, label by label."""
        with self._core.database.read() as connection:
            found = spaces.listed(connection, None if prefix is None else checked(prefix))
        return [space.namespace for space in found]

    def stats(self, prefix: Sequence[str] | None = None) -> MemoryStats:
        """How full the memory is."""
        return self._maintenance.stats(None if prefix is None else checked(prefix))

    # Changing and erasing

    def update(
        self,
        item_id: str,
        *,
        text: str | None = None,
        metadata: Mapping[str, object] | None = None,
        pinned: bool | None = None,
    ) -> None:
        """Change a message, and with it what rests on it, or a memory.

        Args:
            item_id: Of a message or a memory.
            text: Its new text; the old one is erased.
            metadata: Its new metadata.
            pinned: Whether anything may displace it. Pinning a message moves the hot item that
                it stands in to the cold tier.

        Raises:
            InvalidInputError: Nothing of this id is stored, or there is no room to pin.
        """
        self._editing.update(item_id, text=text, metadata=metadata, pinned=pinned)

    def delete(self, item_id: str, *, evidence: bool = False) -> ErasureReceipt:
        """Erase a message and what rests on it alone, or a memory.

        Args:
            item_id: Of a message, or of a memory.
            evidence: For a memory: erase the messages behind it as well.

        Raises:
            InvalidInputError: Nothing of this id is stored.
        """
        return self._editing.delete(item_id, evidence=evidence)

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
        return self._editing.forget(checked(namespace), condition, below=below)

    def purge(self) -> ErasureReceipt:
        """Erase what has expired and end the log's retention; a sleep phase does it too."""
        return self._editing.purge()

    # Upkeep

    def export(
        self, path: str | os.PathLike[str], *, namespace: Sequence[str] | None = None
    ) -> int:
        """Write a JSON lines file; of one namespace and what is below it, if given.

        Returns:
            How many lines.
        """
        return self._maintenance.export(path, None if namespace is None else checked(namespace))

    def import_(
        self, path: str | os.PathLike[str], *, progress: Progress | None = None
    ) -> dict[str, int]:
        """Read a JSON lines file into namespaces that hold nothing yet, all of it or nothing.

        Returns:
            How many lines of each kind.

        Raises:
            InvalidInputError: It is no export, not whole, or a namespace is not empty.
        """
        return self._maintenance.import_(path, progress)

    def reembed(self, embedder: Embedder, *, progress: Progress | None = None) -> None:
        """Embed everything anew with another embedder (or the same one, after damage)."""
        self._maintenance.reembed(as_embedder(embedder), progress)

    def compact(self, *, progress: Progress | None = None) -> None:
        """Build, link and save every index that is large enough, and shrink the file."""
        self._maintenance.compact(progress)

    def verify(self) -> Verification:
        """Check every promise of the file that can be checked."""
        return self._maintenance.verify()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the background thread to have nothing to do; returns whether it has."""
        return self._core.upkeep.wait(timeout)

    aadd = _bridged(add)
    arecall = _bridged(recall)
    aobserve = _bridged(observe)
    asleep = _bridged(sleep)
    asleep_all = _bridged(sleep_all)
    aundo = _bridged(undo)
    asleeps = _bridged(sleeps)
    areplay = _bridged(replay)
    aget = _bridged(get)
    ahistory = _bridged(history)
    amessages = _bridged(messages)
    amemories = _bridged(memories)
    anamespaces = _bridged(namespaces)
    aupdate = _bridged(update)
    adelete = _bridged(delete)
    aforget = _bridged(forget)
    apurge = _bridged(purge)
    adecisions = _bridged(decisions)
    aexplain = _bridged(explain)
    astats = _bridged(stats)
    aexport = _bridged(export)
    aimport = _bridged(import_)
    areembed = _bridged(reembed)
    acompact = _bridged(compact)
    averify = _bridged(verify)
    await_ = _bridged(wait)
    aclose = _bridged(close)


def _excluded(ids: Collection[str]) -> frozenset[str]:
    if isinstance(ids, str):
        raise InvalidInputError(f"exclude is a collection of ids; write [{ids!r}]")
    return frozenset(ids)


def _tiers(name: str) -> tuple[Tier, ...]:
    if name == "both":
        return TIERS
    if name == "hot":
        return ("hot",)
    if name == "cold":
        return ("cold",)
    raise InvalidInputError(f"tiers is 'both', 'hot' or 'cold', got {name!r}")
