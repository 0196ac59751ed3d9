"""Entropic Memory as a LangGraph store.

Operations become reads and writes of a memory file. Items stay verbatim until they are deleted or
expire.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, Self, TypeVar

from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
)
from typing_extensions import override

from ecs_plugins.common.aio import run_memory
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.langgraph.operations import (
    MINUTE,
    check_settings,
    checked,
    is_match,
    item_fields,
    new_item,
)
from ecs_plugins.memory.entropic import EntropicMemory
from ecs_plugins.memory.filters import matches
from ecs_plugins.memory.store.items import Address, ItemView, NewItem, StoredItem
from ecs_plugins.memory.types import Namespace, Vector
from ecs_plugins.ranking.embedder import as_embedder

_SWEEP_MINUTES = 5.0

_log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")
StoreT = TypeVar("StoreT", bound="EntropicStore")


class Sweeper(Future[None]):
    """Thread that sweeps at an interval; done when the thread is, and cancelling it stops it.

    Awaiting it returns it at once, as LangGraph's asynchronous stores give a task.

    Args:
        sweep: Function that erases expired items.
        memory: The memory that is swept, until it is closed.
        seconds: The interval.
    """

    def __init__(self, sweep: Callable[[], object], memory: EntropicMemory, seconds: float) -> None:
        super().__init__()
        self._stop = threading.Event()
        self.add_done_callback(lambda _: self._stop.set())

        def run() -> None:
            while not self._stop.wait(seconds) and not memory.closed:
                try:
                    sweep()
                except Exception:
                    _log.warning("what has expired could not be erased yet", exc_info=True)
            if self.set_running_or_notify_cancel():
                self.set_result(None)

        self._thread = threading.Thread(target=run, name="ecs-ttl-sweeper", daemon=True)
        self._thread.start()

    def __await__(self) -> Generator[None, None, Self]:
        yield from ()
        return self

    def stop(self, timeout: float | None = None) -> bool:
        """Stop the thread; return True if it ended within the timeout."""
        self._stop.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()


class StoreOpening(Generic[StoreT]):
    """Context of a store that opens when it is entered, sync or async."""

    def __init__(self, opened: Callable[[], StoreT]) -> None:
        self._opened = opened
        self._store: StoreT | None = None

    def __enter__(self) -> StoreT:
        self._store = self._opened()
        return self._store

    def __exit__(self, *error: object) -> None:
        assert self._store is not None
        self._store.__exit__(*error)

    async def __aenter__(self) -> StoreT:
        self._store = await run_memory(self._opened)
        return await self._store.__aenter__()

    async def __aexit__(self, *error: object) -> None:
        assert self._store is not None
        await self._store.__aexit__(*error)


class EntropicStore(BaseStore):
    """A LangGraph store in an Entropic Memory file. Thread-safe, sync and async.

    ```python
    memory = EntropicMemory.open("agent.db")
    agent = create_agent(model, tools, store=EntropicStore(memory))
    ```

    ``batch`` and ``abatch`` are its one core; everything else comes from `BaseStore`. Reads of a
    batch see the state before it, the last put of a key wins, and all its writes are one
    transaction. Returned values are copies. ``created_at`` survives an overwrite.

    A search with a query finds by the rule of `EntropicMemory.recall`, by words and vectors: the
    score of an item is the probability that it is evidence for the answer.

    It is closed by ``with`` and ``async with``, and its memory with it if it opened that itself.
    Within ``async with``, the sync methods are refused where they would block the event loop.

    Args:
        memory: The open memory; stays the caller's to close.
        index: LangGraph's settings of search, of which the memory has ``embed`` and ``dims``:
            ``fields`` are the paths of a value that it is found by, where ``put`` does not say;
            ``$`` is all.
        ttl: LangGraph's settings for times to live, in minutes. Expired items are never returned;
            every write, and `sweep_ttl`, erases them.

    Raises:
        ConfigurationError: A setting is unknown.
    """

    supports_ttl = True

    def __init__(
        self,
        memory: EntropicMemory,
        *,
        index: Mapping[str, Any] | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        if not isinstance(memory, EntropicMemory):
            raise ConfigurationError(
                f"memory is an open EntropicMemory, got {memory!r:.80}; write "
                f"EntropicStore.from_conn_string({memory!r:.80}) for a file or an address"
            )
        check_settings("index", index, ("fields",))
        check_settings("ttl", ttl, TTLConfig.__annotations__)
        fields = (index or {}).get("fields") or ("$",)
        if isinstance(fields, str):
            raise ConfigurationError(f"index: fields is a list of paths; write [{fields!r}]")
        self.memory = memory
        self.index_config = index
        self.ttl_config = ttl
        self._fields = tuple(fields)
        self._items = memory.items
        self._sweeper: Sweeper | None = None
        self._owned = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def from_conn_string(
        cls,
        conn_string: str | os.PathLike[str],
        *,
        pipeline: bool = False,
        pool_config: Mapping[str, Any] | None = None,
        index: IndexConfig | None = None,
        **settings: Any,
    ) -> StoreOpening[Self]:
        """Return a store with a memory of its own, for ``with`` or ``async with``.

        They open both and close both; ``async with`` opens them off the event loop.

        Args:
            conn_string: The file, ``":memory:"``, or a ``postgresql://`` address.
            pipeline: Taken for LangGraph's sake; the memory sends its statements in its own way.
            pool_config: Likewise; the memory has a pool of its own.
            index: As in LangGraph: ``embed`` is the embedder. None: the default one.
            **settings: Those of the class.
        """
        del pipeline, pool_config
        if index is not None:
            check_settings("index", index, IndexConfig.__annotations__)
        return StoreOpening(partial(cls._opened, conn_string, index, settings))

    @classmethod
    def _opened(
        cls,
        conn_string: str | os.PathLike[str],
        index: IndexConfig | None,
        settings: Mapping[str, Any],
    ) -> Self:
        """Open a memory and return the store that owns it."""
        settings = dict(settings)
        embedder = None
        if index is not None:
            embed: Any = index["embed"]
            if not hasattr(embed, "embed_documents"):
                embed = ensure_embeddings(embed)
            embedder = as_embedder(embed)
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
        store._owned = True
        store.index_config = index
        return store

    def setup(self) -> Awaitable[None] | None:
        """Do nothing: the memory made its tables when it was opened.

        Within ``async with`` it is to be awaited.
        """
        return self._as_called(lambda: None)

    def _as_called(self, work: Callable[[], ResultT]) -> ResultT | Awaitable[ResultT]:
        """Return the result of work; within ``async with`` a task, as LangGraph's stores do.

        The store is one class for both, and theirs are two.
        """
        if not self._is_in_loop():
            return work()
        return asyncio.ensure_future(run_memory(work))

    def _is_in_loop(self) -> bool:
        return self._loop is not None and self._loop is asyncio._get_running_loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_sweeper()
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
        if self._is_in_loop():
            raise asyncio.InvalidStateError("the event loop would wait; await the async methods")
        ops = [checked(op) for op in ops]
        puts, deletes = self._writes(ops)
        results, read = self._read(ops)
        touched = [item for item in read if item.ttl is not None]
        if puts or deletes or touched:
            self._items.write(puts, deletes=deletes, touched=touched)
        return results

    @override
    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Do as `batch`, with the embedder and the database off the event loop."""
        return await run_memory(self.batch, ops)

    def sweep_ttl(self) -> int | Awaitable[int]:
        """Erase expired items and return their number. Every write does it too.

        Within ``async with`` it is to be awaited.
        """
        return self._as_called(lambda: self.memory.admin.purge().items)

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> Future[None]:
        """Run `sweep_ttl` every few minutes in a thread, until it is stopped.

        Returns:
            A future that is done when the thread is; cancelling it stops the thread.
        """
        minutes = sweep_interval_minutes
        if not minutes and self.ttl_config is not None:
            minutes = self.ttl_config.get("sweep_interval_minutes")
        seconds = MINUTE * (minutes or _SWEEP_MINUTES)
        self._stop_sweeper()
        self._sweeper = Sweeper(lambda: self.sweep_ttl(), self.memory, seconds)
        return self._sweeper

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool | Awaitable[bool]:
        """Stop the sweeper; return True if it ended within the timeout.

        Within ``async with`` it is to be awaited.
        """
        return self._as_called(lambda: self._stop_sweeper(timeout))

    def _stop_sweeper(self, timeout: float | None = None) -> bool:
        return self._sweeper is None or self._sweeper.stop(timeout)

    def _writes(self, ops: Sequence[Op]) -> tuple[list[NewItem], list[Address]]:
        """Return the last put of each key; refuse bad values before anything is written."""
        last: dict[Address, PutOp] = {}
        for op in ops:
            if isinstance(op, PutOp):
                last[op.namespace, op.key] = op
        puts = [new_item(op, self._fields) for op in last.values() if op.value is not None]
        deletes = [address for address, op in last.items() if op.value is None]
        return puts, deletes

    def _read(self, ops: Sequence[Op]) -> tuple[list[Result], list[StoredItem]]:
        """Return the results of all operations, on one state, and the items to refresh."""
        searches = [op for op in ops if isinstance(op, SearchOp)]
        queries = {op.query for op in searches if op.query}
        vectors = {query: self._items.embed_query(query) for query in queries}
        results: list[Result] = []
        refreshed: list[StoredItem] = []
        with self._items.view(search=bool(vectors)) as view:
            for op in ops:
                result: Result = None
                pairs: list[tuple[StoredItem, float | None]] = []
                if isinstance(op, GetOp):
                    item = view.get(op.namespace, op.key)
                    if item is not None:
                        pairs = [(item, None)]
                        result = Item(**item_fields(item))
                elif isinstance(op, SearchOp):
                    pairs = _found(view, op, vectors)
                    result = [
                        SearchItem(**item_fields(item), score=score)
                        for item, score in pairs[op.offset :]
                    ]
                elif isinstance(op, ListNamespacesOp):
                    result = _namespaces(view, op)
                if getattr(op, "refresh_ttl", False):
                    refreshed += [item for item, _ in pairs]
                results.append(result)
        return results, refreshed


def _found(
    view: ItemView,
    op: SearchOp,
    vectors: Mapping[str, Vector],
) -> list[tuple[StoredItem, float | None]]:
    """Return the first ``offset + limit`` items of a search."""
    condition = None
    if op.filter:
        condition = partial(matches, condition=op.filter)
    prefix = op.namespace_prefix
    stop = op.offset + op.limit
    if op.query:
        vector = vectors[op.query]
        return view.search(prefix, op.query, vector, condition=condition, limit=stop)
    items = view.find(prefix, condition=condition, limit=stop)
    return [(item, None) for item in items]


def _namespaces(view: ItemView, op: ListNamespacesOp) -> list[Namespace]:
    namespaces = set(view.namespaces())
    for condition in op.match_conditions or ():
        namespaces = {each for each in namespaces if is_match(condition, each)}
    if op.max_depth is not None:
        namespaces = {each[: op.max_depth] for each in namespaces}
    ordered = sorted(namespaces)
    stop = op.offset + op.limit
    return ordered[op.offset : stop]
