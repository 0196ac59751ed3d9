"""`EntropicMemory` in use: what is said, what is asked, what came of it."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.facade.opened import Opened, bridged
from ecs_plugins.memory.filters import Filter, checked_filter
from ecs_plugins.memory.namespaces import DEFAULT_NAMESPACE, Namespace, checked
from ecs_plugins.memory.records import Recollection
from ecs_plugins.memory.store import messages as log
from ecs_plugins.memory.store.access import (
    FLUSH_AT,
    complete_query,
    insert_query,
    prune_queries,
    write_outcome,
)
from ecs_plugins.memory.store.admitting import Admitting
from ecs_plugins.memory.store.drafts import Draft, drafted
from ecs_plugins.memory.store.recalling import Request, recall
from ecs_plugins.memory.store.upkeep import is_due
from ecs_plugins.memory.types import TIERS, Tier


class Remembering(Opened):
    """Adds, recalls and observes."""

    def add(
        self,
        messages: Draft | Sequence[Draft],
        *,
        namespace: Sequence[str] = DEFAULT_NAMESPACE,
        role: str = "user",
        metadata: Mapping[str, object] | None = None,
        writer: str | None = None,
        at: float | None = None,
        ttl: float | None = None,
        pinned: bool = False,
    ) -> list[str]:
        """Remember messages. They are on disk when this returns.

        Args:
            messages: A text, a `NewMessage`, or a mapping with ``content`` (or ``text``) and
                optionally ``role``, ``metadata``, ``writer``, ``at``, ``ttl``; or a
                sequence of these. Committed together, or in stretches between the sleep phases
                that fall due among them.
            namespace: Where.
            role: Who said it, for messages that do not say.
            metadata: JSON values to filter by, for messages that have none.
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
        drafts = drafted(messages, role=role, metadata=metadata, writer=writer, at=at, ttl=ttl)
        if not drafts:
            return []
        vectors = self._core.embed([draft.text for draft in drafts])
        ids = log.new_ids(len(drafts))
        start = 0
        while start < len(drafts):
            with self._core.writing_to(namespace, create=True) as (connection, space):
                assert space is not None
                stop = start + self._stretch(space.since_sleep, len(drafts) - start)
                admitting = Admitting(
                    connection,
                    space,
                    config=self.config,
                    indexes=self._core.indexes,
                    now=time.time(),
                )
                admitting.add(
                    drafts[start:stop], ids[start:stop], vectors[start:stop], pinned=pinned
                )
                due = is_due(space, self.config, self._core.store)
                since = space.since_sleep
            admitting.committed()
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
            tiers: ``both``, ``hot`` or ``cold``; None is both, or cold under the paper's rule.
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
            threshold=self.config.threshold if threshold is None else threshold,
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
        outcome: bool | None = None,
        *,
        namespace: Sequence[str] = DEFAULT_NAMESPACE,
    ) -> None:
        """Tell the memory what was answered, and how that turned out.

        After a `recall` of the same query it completes what that recorded: the two are one query.

        Args:
            query: The question.
            answer: The answer really given; ``answer_utility`` learns from it.
            recalled_ids: Ids of the recollections that were used.
            outcome: Whether using the recollections was a success; None says nothing.
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
            prune_queries(connection, space)
            if outcome is not None:
                write_outcome(connection, space, used, outcome)

    aadd = bridged(add)
    arecall = bridged(recall)
    aobserve = bridged(observe)


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
