"""Entropic Memory as a LangGraph store.

A translation only: operations become reads and writes of a memory file. Items that are put by
key stay verbatim until they are deleted or expire; messages that are put below
``messages_under`` become a conversation, which hot tier, sleep phases and cold tier consolidate.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from functools import partial
from typing import Any, Self

from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
    get_text_at_path,
    validate_op_namespace,
)
from typing_extensions import override

from ecs_plugins.common.aio import run_memory
from ecs_plugins.common.config import strict_keywords, unknown
from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.integrations.conversation import Entry, append
from ecs_plugins.integrations.recall import traced_recall
from ecs_plugins.integrations.recollections import texts_behind
from ecs_plugins.memory.entropic import EntropicMemory
from ecs_plugins.memory.filters import checked_filter, matches
from ecs_plugins.memory.records import Memory, Recollection
from ecs_plugins.memory.store.items import ItemView, NewItem, StoredItem
from ecs_plugins.memory.store.messages import Message
from ecs_plugins.memory.store.namespaces import checked as checked_namespace
from ecs_plugins.memory.store.search import Shaper
from ecs_plugins.memory.types import Namespace
from ecs_plugins.ranking.embedder import as_embedder

_log = logging.getLogger(__name__)

_MINUTE = 60
_SWEEP_MINUTES = 5.0
_TEXT_KEYS = ("content", "text")
_FILTER_KEY = re.compile(r"[\w .-]+")


class EntropicStore(BaseStore):
    """A LangGraph store in an Entropic Memory file. Thread-safe, sync and async.

    ```python
    memory = EntropicMemory.open("agent.db")
    agent = create_agent(model, tools, store=EntropicStore(memory))
    ```

    ``batch`` and ``abatch`` are its one core; everything else comes from `BaseStore`. Reads of a
    batch see the state before it, the last put of a key wins, and all its writes are one
    transaction. Returned values are copies. ``created_at`` survives an overwrite.

    It is closed by ``with`` and ``async with``, and its memory with it if it opened that itself.
    Within ``async with``, the sync methods are refused where they would block the event loop.

    Args:
        memory: The open memory; stays the caller's to close.
        index: LangGraph's settings of search, of which the memory has ``embed`` and ``dims``:
            ``fields`` are the paths of a value that it is found by, where ``put`` does not say;
            ``$`` is all.
        ttl: LangGraph's settings for times to live, in minutes. Expired items are never returned;
            every write, and `sweep_ttl`, erases them.
        messages_under: What is put into namespaces below this one is a message, a mapping with
            ``content`` (or ``text``) and optionally ``role``. None: there are no messages.
        threshold: Minimum score of what a search below ``messages_under`` recalls; None is
            `MemoryConfig.threshold`.
        shaper: A second stage that orders what such a search recalls.

    Raises:
        ConfigurationError: A keyword or a setting is unknown.
    """

    supports_ttl = True

    @strict_keywords
    def __init__(
        self,
        memory: EntropicMemory,
        *,
        index: Mapping[str, Any] | None = None,
        ttl: TTLConfig | None = None,
        messages_under: Sequence[str] | None = None,
        threshold: float | None = None,
        shaper: Shaper | None = None,
    ) -> None:
        _check_settings("index", index, ("fields",))
        _check_settings("ttl", ttl, TTLConfig.__annotations__)
        fields = (index or {}).get("fields") or ("$",)
        if isinstance(fields, str):
            raise ConfigurationError(f"index: fields is a list of paths; write [{fields!r}]")
        self.memory = memory
        self.index_config = index
        self.ttl_config = ttl
        self._fields = tuple(fields)
        self._items = memory.items
        self._prefix = None if messages_under is None else checked_namespace(messages_under)
        self._threshold = threshold
        self._shaper = shaper
        self._owned = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sweeper: threading.Thread | None = None
        self._stop = threading.Event()

    @classmethod
    def from_conn_string(
        cls,
        conn_string: str | os.PathLike[str],
        *,
        index: IndexConfig | None = None,
        **settings: Any,
    ) -> Self:
        """A store in a memory file of its own, for ``with`` or ``async with``, which close both.

        Args:
            conn_string: The file, ``":memory:"``, or a ``postgresql://`` address.
            index: As in LangGraph: ``embed`` is the embedder. None: the default one.
            **settings: Those of the class.
        """
        embedder = None
        if index is not None:
            _check_settings("index", index, IndexConfig.__annotations__)
            embed: Any = index["embed"]
            is_one = hasattr(embed, "embed_documents")
            embedder = as_embedder(embed if is_one else ensure_embeddings(embed))
            if embedder.dimension != index["dims"]:
                raise ConfigurationError(
                    f"index: dims is {index['dims']}, but embed makes {embedder.dimension}"
                )
            settings["index"] = {"fields": index.get("fields")}
        memory = EntropicMemory.open(conn_string, embedder=embedder)
        try:
            store = cls(memory, **settings)
        except BaseException:
            memory.close()
            raise
        store._owned, store.index_config = True, index
        return store

    def setup(self) -> None:
        """Nothing: the memory made its tables when it was opened."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_ttl_sweeper()
        if self._owned:
            self.memory.close()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._loop = None
        await run_memory(self.__exit__)

    @override
    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations: the reads on the state before the batch, then the writes.

        Raises:
            InvalidNamespaceError: A label is empty, no string, or holds a period.
            InvalidInputError: A value is no JSON object, or an argument is out of range.
            ModelError: The embedder failed; nothing was written.
            InvalidStateError: It would block the event loop of ``async with``.
        """
        if self._loop is not None and self._loop is asyncio._get_running_loop():
            raise asyncio.InvalidStateError("the event loop would wait; await the async methods")
        ops = [_checked(op) for op in ops]
        puts = {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
        plain = [op for op in puts.values() if not self._is_message(op.namespace)]
        items = [self._new_item(op) for op in plain if op.value is not None]
        told = [(op, _entry(op)) for op in puts.values() if self._is_message(op.namespace)]
        results, touched = self._read(ops)
        deletes = [(op.namespace, op.key) for op in plain if op.value is None]
        if told:
            texts = [text for item in items for text in item.texts.values()]
            texts += [entry.text for _, entry in told if entry is not None]
            with self._items.together(texts):
                self._items.write(items, deletes=deletes, touched=touched)
                self._tell(told)
        elif items or deletes or touched:
            self._items.write(items, deletes=deletes, touched=touched)
        return results

    @override
    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """`batch` with the embedder and the database off the event loop."""
        return await run_memory(self.batch, ops)

    def sweep_ttl(self) -> int:
        """Erase what has expired; returns how many items. Every write does it too."""
        return self.memory.admin.purge().items

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> Future[None]:
        """`sweep_ttl` every few minutes, in a thread, until it is stopped.

        Returns:
            A future that is done when the thread is; cancelling it stops the thread.
        """
        self.stop_ttl_sweeper()
        configured = (self.ttl_config or {}).get("sweep_interval_minutes")
        seconds = _MINUTE * (sweep_interval_minutes or configured or _SWEEP_MINUTES)
        done: Future[None] = Future()
        stop = self._stop = threading.Event()

        def sweep() -> None:
            while not stop.wait(seconds) and not self.memory.closed:
                try:
                    self.sweep_ttl()
                except Exception:
                    _log.warning("what has expired could not be erased yet", exc_info=True)
            if done.set_running_or_notify_cancel():
                done.set_result(None)

        done.add_done_callback(lambda _: stop.set())
        self._sweeper = threading.Thread(target=sweep, name="ecs-ttl-sweeper", daemon=True)
        self._sweeper.start()
        return done

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Stop the sweeper, if there is one; whether it ended within so many seconds."""
        self._stop.set()
        if self._sweeper is not None:
            self._sweeper.join(timeout)
        return self._sweeper is None or not self._sweeper.is_alive()

    def _is_message(self, namespace: Namespace) -> bool:
        prefix = self._prefix
        return prefix is not None and tuple(namespace[: len(prefix)]) == prefix

    def _read(self, ops: Sequence[Op]) -> tuple[list[Result], list[StoredItem]]:
        """The results of all operations, and the items whose time to live a read refreshes."""
        searches = [op for op in ops if isinstance(op, SearchOp) and op.query]
        vectors = {op.query: self._items.embed_query(op.query) for op in searches if op.query}
        recalled: dict[int, list[SearchItem]] = {}
        if self._prefix is not None:
            recalled = {id(op): self._recalled(op) for op in searches}
        results: list[Result] = []
        touched: list[StoredItem] = []
        with self._items.view(search=bool(searches)) as view:
            for op in ops:
                if isinstance(op, GetOp):
                    found = view.get(op.namespace, op.key)
                    if found is not None and op.refresh_ttl and found.ttl is not None:
                        touched.append(found)
                    # A search may find under a key that nobody put: a memory, or a merged message.
                    stored = self._stored(op) if found is None else found
                    results.append(None if stored is None else Item(**_fields(stored)))
                elif isinstance(op, SearchOp):
                    pairs = self._search(view, op, vectors)
                    if op.refresh_ttl:
                        touched += [item for item, _ in pairs if item.ttl is not None]
                    hits = [SearchItem(**_fields(item), score=score) for item, score in pairs]
                    if id(op) in recalled:  # by score; what has none comes last
                        hits += recalled[id(op)]
                        hits.sort(key=lambda hit: (hit.score is None, -(hit.score or 0.0)))
                    results.append(hits[op.offset : op.offset + op.limit])
                elif isinstance(op, ListNamespacesOp):
                    results.append(self._namespaces(view, op))
                else:
                    results.append(None)
        return results, touched

    def _search(
        self, view: ItemView, op: SearchOp, vectors: Mapping[str, Any]
    ) -> list[tuple[StoredItem, float | None]]:
        """The first ``offset + limit`` items; with a query, without those of conversations."""
        test = partial(matches, condition=op.filter) if op.filter else None
        stop = op.offset + op.limit
        if not op.query:
            found = view.find(op.namespace_prefix, condition=test, limit=stop)
            return [(item, None) for item in found]
        limit = stop if self._prefix is None else None
        nearest = view.nearest(op.namespace_prefix, vectors[op.query], condition=test, limit=limit)
        return [pair for pair in nearest if not self._is_message(pair[0].namespace)][:stop]

    def _namespaces(self, view: ItemView, op: ListNamespacesOp) -> list[Namespace]:
        found = set(view.namespaces())
        if self._prefix is not None:
            found |= set(self.memory.namespaces(self._prefix))
        for condition in op.match_conditions or ():
            found = {namespace for namespace in found if _is_match(condition, namespace)}
        if op.max_depth is not None:
            found = {namespace[: op.max_depth] for namespace in found}
        return sorted(found)[op.offset : op.offset + op.limit]

    def _new_item(self, op: PutOp) -> NewItem:
        assert op.value is not None
        value = dict(op.value)
        NewItem(op.namespace, op.key, value)  # refused before its texts are looked for
        paths = self._fields if op.index is None else (op.index or ())
        texts: dict[str, str] = {}
        for path in paths:
            found = get_text_at_path(value, path)
            several = len(found) > 1
            texts |= {f"{path}.{n}" if several else path: text for n, text in enumerate(found)}
        ttl = None if op.ttl is None else op.ttl * _MINUTE
        return NewItem(op.namespace, op.key, value, texts, ttl)

    # Conversations: puts become messages, searches recollections.

    def _tell(self, puts: Sequence[tuple[PutOp, Entry | None]]) -> None:
        """Put messages, or delete those without one. An unchanged message is left as it is."""
        with self._items.view() as view:
            old = [view.get(op.namespace, op.key) for op, _ in puts]
        gone: list[StoredItem] = []
        unlogged: list[PutOp] = []
        new: dict[Namespace, list[Entry]] = {}
        for (op, entry), item in zip(puts, old, strict=True):
            if entry is not None:
                if item is not None and (item.value, item.ttl) == (entry.value, entry.ttl):
                    continue
                new.setdefault(op.namespace, []).append(entry)
            elif item is None:
                unlogged.append(op)
            if item is not None:
                gone.append(item)
        if messages := [item.message for item in gone if item.message is not None]:
            self.memory.delete(*messages)
        if blank := [(item.namespace, item.key) for item in gone if item.message is None]:
            self._items.write(deletes=blank)
        for op in unlogged:
            if self._stored(op) is not None:
                self.memory.delete(op.key, evidence=True)
        for namespace, entries in new.items():
            append(self.memory, namespace, entries)

    def _stored(self, op: GetOp | PutOp) -> Message | Memory | None:
        found = self.memory.get(op.key) if self._is_message(op.namespace) else None
        return found if found is not None and found.namespace == tuple(op.namespace) else None

    def _recalled(self, op: SearchOp) -> list[SearchItem]:
        """What is remembered in the conversations that a search reaches."""
        found = self.memory.namespaces(tuple(op.namespace_prefix) or None)
        spaces = [namespace for namespace in found if self._is_message(namespace)]
        count = op.offset + op.limit
        if not spaces or not op.query or not count:
            return []
        recollections = traced_recall(
            self.memory,
            op.query,
            namespace=spaces[0],
            also=spaces[1:],
            k=count,
            threshold=self._threshold,
            shaper=self._shaper,
            filter=op.filter or None,
        )
        messages = [name for each in recollections for name in each.provenance]
        with self._items.view() as view:
            items = view.of_messages(messages)
        hits = (self._hit(each, items) for each in recollections)
        return [hit for hit in hits if hit is not None]

    def _hit(self, recollection: Recollection, items: dict[str, StoredItem]) -> SearchItem | None:
        """One message as it was put; what was merged of several, under its own id."""
        ids = recollection.provenance
        only = items.get(ids[0]) if len(ids) == 1 else None
        if only is not None:
            return RecalledItem(recollection, _fields(only))
        stored = self.memory.get(recollection.id)
        if stored is None:  # erased since
            return None
        text = "\n".join(texts_behind(self.memory, recollection))
        value = {**recollection.metadata, "content": text}
        return RecalledItem(recollection, _fields(stored, value))


class RecalledItem(SearchItem):
    """An item that a search below ``messages_under`` has found: what was put, and its recollection.

    Attributes:
        recollection: All fields of the `Recollection`, JSON types only.
    """

    __slots__ = ("recollection",)

    def __init__(self, recollection: Recollection, fields: Mapping[str, Any]) -> None:
        super().__init__(**fields, score=recollection.score)
        self.recollection = recollection.to_dict()

    @override
    def dict(self) -> dict[str, Any]:
        """The item and its recollection as JSON types."""
        return {**super().dict(), "recollection": self.recollection}


def _checked(op: Op) -> Op:
    """Refuse what cannot be run before anything is; a namespace may be a list of labels."""
    if not isinstance(op, GetOp | SearchOp | PutOp | ListNamespacesOp):
        raise InvalidInputError(f"unknown operation {op!r}; use those of langgraph.store.base")
    if isinstance(op, ListNamespacesOp):
        named: list[object] = [condition.path for condition in op.match_conditions or ()]
    else:
        named = [op.namespace_prefix if isinstance(op, SearchOp) else op.namespace]
    for namespace in named:
        if isinstance(namespace, str):  # whose characters would pass for labels
            raise InvalidInputError(f"a namespace is a tuple of labels; write ({namespace!r},)")
    validate_op_namespace(op)
    if isinstance(op, PutOp):
        checked_namespace(op.namespace)
        if op.value is not None and not isinstance(op.value, Mapping):
            raise InvalidInputError(f"a value is a mapping, got {op.value!r:.80}")
    elif isinstance(op, SearchOp | ListNamespacesOp) and (op.limit < 0 or op.offset < 0):
        raise InvalidInputError(f"limit and offset must not be negative: {op.limit}, {op.offset}")
    if isinstance(op, SearchOp) and op.filter:
        checked_filter(op.filter)
        for key in op.filter:
            if not _FILTER_KEY.fullmatch(str(key)):  # LangGraph's stores put them into SQL
                raise InvalidInputError(f"Invalid filter key: {key!r}; use words, dots and hyphens")
    if isinstance(op, SearchOp):
        return op._replace(namespace_prefix=tuple(op.namespace_prefix))
    return op if isinstance(op, ListNamespacesOp) else op._replace(namespace=tuple(op.namespace))


def _check_settings(what: str, settings: Mapping[str, Any] | None, known: Collection[str]) -> None:
    for name in settings or ():
        if name not in known:
            raise ConfigurationError(f"{what}: {unknown(name, known)}")


def _is_match(condition: MatchCondition, namespace: Namespace) -> bool:
    path, kind = condition.path, condition.match_type
    if kind not in ("prefix", "suffix"):
        raise InvalidInputError(f"match_type is 'prefix' or 'suffix', got {kind!r}")
    beyond = len(namespace) - len(path)
    part = namespace if kind == "prefix" else namespace[max(beyond, 0) :]
    return beyond >= 0 and all(w in ("*", label) for w, label in zip(path, part, strict=False))


def _fields(
    found: StoredItem | Message | Memory, value: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The arguments of LangGraph's item; a ``value`` stands in place of a memory's own."""
    if isinstance(found, StoredItem):
        key, value, changed = found.key, found.value, found.updated
    else:
        key, value = found.id, value or {**found.metadata, "content": found.text}
        changed = found.changed if isinstance(found, Memory) else found.created
    times = [datetime.fromtimestamp(seconds, UTC) for seconds in (found.created, changed)]
    place = {"namespace": found.namespace, "key": key}
    return {**place, "value": value, "created_at": times[0], "updated_at": times[1]}


def _entry(op: PutOp) -> Entry | None:
    """The message that is put, refused before anything is written; None to delete it."""
    if op.value is None:
        return None
    value = dict(op.value)
    key = next((name for name in _TEXT_KEYS if isinstance(value.get(name), str)), None)
    if key is None or not value[key].strip():
        raise InvalidInputError(
            "a message in a conversation is a mapping with 'content' (or 'text'), and optionally "
            f"'role'; got {value!r:.80}. Put other values outside of messages_under"
        )
    role = value.get("role", "user")
    ttl = None if op.ttl is None else op.ttl * _MINUTE
    NewItem(op.namespace, op.key, value, ttl=ttl)
    return Entry(
        value=value,
        text=value[key],
        role=role if isinstance(role, str) else "user",
        text_key=key,
        metadata={name: part for name, part in value.items() if name != key},
        key=op.key,
        ttl=ttl,
    )
