"""Entropic Memory as a LangChain retriever: recollections as documents."""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import Field
from typing_extensions import override

from ecs_plugins.common.aio import run_memory, run_sync
from ecs_plugins.common.inert import inert
from ecs_plugins.integrations.recall import RecallFields, as_metadata, traced_recall
from ecs_plugins.memory.entropic import EntropicMemory, texts_behind


class EntropicMemoryRetriever(RecallFields, BaseRetriever):
    """Retriever that returns the memories about a question as documents, best first.

    ```python
    retriever = EntropicMemoryRetriever(memory=memory, namespace=("memories", "u1"), k=5)
    retriever.invoke("Where does Ada live?", k=3)
    ```

    The text of a document is that of the messages behind it, the first and the latest ones, with
    special tokens and invisible characters made inert. It is data from earlier conversations: show
    it to a model as such. Its metadata
    hold every field of a `Memory`, such as ``tier``, ``support``, ``provenance`` (ids of the
    messages behind it), ``created`` and ``why``; its score (0 to 1) as ``relevance_score``, and
    under ``memory`` what those messages agree on.

    The fields are those of `RecallFields`, of which ``k`` may be given per call, the open memory,
    which stays the caller's to close, and:

    Attributes:
        filter: Metadata that a recollection must have.
        tiers: ``both``, ``hot`` or ``cold``; None is the memory's own setting.
    """

    memory: EntropicMemory = Field(exclude=True, repr=False, description="The open memory.")
    filter: dict[str, Any] | None = None
    tiers: str | None = None

    @override
    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        k: int | None = None,
    ) -> list[Document]:
        recollections = traced_recall(
            self.memory,
            query,
            namespace=self.namespace,
            k=self.k if k is None else k,
            threshold=self.threshold,
            shaper=self.shaper,
            filter=self.filter,
            tiers=self.tiers,
        )
        return [
            Document(
                page_content=inert("\n".join(texts_behind(self.memory, each))),
                id=each.id,
                metadata=as_metadata(each),
            )
            for each in recollections
        ]

    @override
    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        k: int | None = None,
    ) -> list[Document]:
        run = run_memory if self.shaper is None else run_sync
        return await run(
            self._get_relevant_documents, query, run_manager=run_manager.get_sync(), k=k
        )
