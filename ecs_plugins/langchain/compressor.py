"""ECS context shaping as a LangChain document compressor and, in one object, as a Runnable.

A translation only: `Document` in, `Document` out, with callbacks; `ecs_plugins.shaping` decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForChainRun, Callbacks, dispatch_custom_event
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.runnables import RunnableConfig, RunnableSerializable
from pydantic import ConfigDict
from typing_extensions import TypedDict, override

from ecs_plugins.common.aio import bridged, run_sync
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.integrations.fields import (
    ShapingFields,
    as_score,
    titles_of,
    verdict_metadata,
)
from ecs_plugins.shaping.result import ShapedContext

EVENT = "ecs_shaping"
"""Name of the custom event that carries ``ShapedContext.to_dict()``."""

SCORE_KEY = "relevance_score"
"""Metadata key of the probability that a document helps; LangChain's name for such a score."""
SCORE_KEYS = (SCORE_KEY, "score", "_score", "similarity_score")
"""Metadata keys under which retrievers put a score, of which more is better."""


class CompressionInput(TypedDict):
    """Input of the compressor as a Runnable."""

    documents: Sequence[Document]
    query: str


class ECSDocumentCompressor(
    ShapingFields,
    RunnableSerializable[CompressionInput, list[Document]],
    BaseDocumentCompressor,
):
    """Keeps the documents that help to answer the query, in the order they came in.

    ```python
    retriever = ContextualCompressionRetriever(
        base_compressor=ECSDocumentCompressor(top_k=5), base_retriever=vector_store.as_retriever()
    )
    ```

    Kept documents are copies with the same ids; their metadata gains ``ecs``, the verdict with its
    numbers, and ``relevance_score``, the probability that the document helps, where one was fitted
    to model and signal. With ``prune=True`` their text is what helps of it.
    When the model cannot score, all come back with the verdict ``unscored`` and the error, unless
    ``config.on_error`` is ``"raise"``.

    The fields are those of `ShapingFields`; ``embedder`` may be LangChain ``Embeddings``.
    """

    model_config = ConfigDict(protected_namespaces=())

    @override
    def compress_documents(
        self,
        documents: Sequence[Document],
        query: str,
        callbacks: Callbacks | None = None,
    ) -> list[Document]:
        """Return the documents that help, as copies, in their original order.

        Raises:
            InvalidInputError: The query is empty, or something is not a `Document`.
            ModelError: The model is missing, or cannot score and must raise.
        """
        input: CompressionInput = {"documents": documents, "query": query}
        return self.invoke(input, {"callbacks": callbacks})

    acompress_documents = bridged(compress_documents, asks_model=True)

    @override
    def invoke(
        self,
        input: CompressionInput,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Return the documents that help, as a traced run over ``{"documents", "query"}``."""
        return self._call_with_config(self._compress, input, config, **kwargs)

    @override
    async def ainvoke(
        self,
        input: CompressionInput,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Do as `invoke`, with the model off the event loop."""
        return await run_sync(self.invoke, input, config, **kwargs)

    def _compress(
        self,
        input: CompressionInput,
        run_manager: CallbackManagerForChainRun,
    ) -> list[Document]:
        if not isinstance(input, Mapping) or "documents" not in input or "query" not in input:
            raise InvalidInputError(
                'the compressor as a Runnable takes {"documents": [Document, ...], "query": str}'
            )
        documents = checked_documents(input["documents"])
        query = input["query"]
        if not documents:
            return []
        texts = [document.page_content for document in documents]
        metadata = [document.metadata for document in documents]
        scores = [_score_of(document) for document in documents]
        shaped = self.shape_passages(query, texts, titles_of(metadata), scores)
        config: RunnableConfig = {"callbacks": run_manager.get_child()}
        dispatch_custom_event(EVENT, shaped.to_dict(), config=config)
        return _kept(documents, shaped)

    @classmethod
    @override
    def is_lc_serializable(cls) -> bool:
        """Return True: it is serialised as its configuration."""
        return True

    @property
    @override
    def lc_attributes(self) -> dict[str, Any]:
        """Return the config as plain fields, because LangChain's JSON knows nothing of it."""
        return {"config": dict(self.config)}


def checked_documents(documents: Sequence[Document]) -> Sequence[Document]:
    """Return the documents; raise if something else is among them."""
    for document in documents:
        if not isinstance(document, Document):
            raise InvalidInputError(
                f"documents must be langchain_core Documents, got {type(document).__name__}"
            )
    return documents


def _kept(
    documents: Sequence[Document],
    shaped: ShapedContext,
) -> list[Document]:
    kept: list[Document] = []
    for verdict in shaped.kept:
        document = documents[verdict.index]
        score = _score_of(document)
        metadata = verdict_metadata(shaped, verdict, document.metadata, score)
        if verdict.probability is not None:
            metadata[SCORE_KEY] = verdict.probability
        changed = {"metadata": metadata, "page_content": verdict.kept_text}
        kept.append(document.model_copy(update=changed))
    return kept


def _score_of(document: Document) -> float | None:
    """Return the retriever's score from the metadata; a distance is no score."""
    for key in SCORE_KEYS:
        score = as_score(document.metadata.get(key))
        if score is not None:
            return score
    return None
