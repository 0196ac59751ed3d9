"""Other people's selectors, run as they are on the same candidates with the same embedder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.evidence.candidates import Candidates
from benchmarks.evidence.methods import Ordered
from ecs_plugins.errors import MissingExtraError, ModelError
from ecs_plugins.ranking.base import Ranking
from ecs_plugins.ranking.embedder import Embedder

if TYPE_CHECKING:
    from llama_index.core.base.embeddings.base import BaseEmbedding

_MARK = "\x1e"
"""Mark before each unit in the text for `SentenceEmbeddingOptimizer`."""
_END = "\x1f"


class LangChainEmbeddingsFilter:
    """LangChain's ``EmbeddingsFilter``, keeping all documents in its order.

    Raises:
        MissingExtraError: It needs ``langchain-classic`` and ``langchain-community``.
    """

    def __init__(self, embedder: Embedder) -> None:
        try:
            import langchain_community  # type: ignore[import-not-found]
            from langchain_classic.retrievers.document_compressors import EmbeddingsFilter
            from langchain_core.documents import Document
            from langchain_core.embeddings import Embeddings
        except ImportError as error:
            raise MissingExtraError(
                "LangChain's EmbeddingsFilter", error.name or "langchain_community"
            ) from error
        del langchain_community
        own = embedder

        class Wrapped(Embeddings):
            def embed_documents(self, texts: list[str]) -> list[list[float]]:
                return own.embed_documents(texts).tolist()  # type: ignore[no-any-return]

            def embed_query(self, text: str) -> list[float]:
                return own.embed_query(text).tolist()  # type: ignore[no-any-return]

        self._document = Document
        self._filter = EmbeddingsFilter
        self._embeddings = Wrapped()

    def order(self, candidates: Candidates) -> Ordered:
        """Return the order of the filter."""
        units, pool = candidates.question.units, candidates.pool
        documents = [self._document(page_content=units[i], metadata={"unit": i}) for i in pool]
        kept = self._filter(embeddings=self._embeddings, k=len(pool)).compress_documents(
            documents, candidates.question.question
        )
        return Ordered(tuple(document.metadata["unit"] for document in kept))


class LlamaIndexSentenceOptimizer:
    """LlamaIndex' ``SentenceEmbeddingOptimizer``, keeping all units in its order.

    It returns the text of the chosen sentences, most similar first; the units are marked with
    their number on the way in, and the marks are taken off before anything is embedded.

    Raises:
        MissingExtraError: ``llama-index-core`` is not installed.
    """

    def __init__(self, embedder: Embedder) -> None:
        try:
            from llama_index.core.postprocessor import SentenceEmbeddingOptimizer
            from llama_index.core.schema import NodeWithScore, TextNode
        except ImportError as error:
            raise MissingExtraError(
                "SentenceEmbeddingOptimizer", error.name or "llama_index", "llama-index"
            ) from error
        self._node_type = NodeWithScore
        self._text_type = TextNode
        self._optimizer = SentenceEmbeddingOptimizer(
            embed_model=_unmarking(embedder),
            percentile_cutoff=1.0,
            context_before=0,
            context_after=0,
            tokenizer_fn=lambda text: [_MARK + part for part in text.split(_MARK)[1:]],
        )

    def order(self, candidates: Candidates) -> Ordered:
        """Return the order of the optimizer."""
        units = candidates.question.units
        text = "".join(f"{_MARK}{i}{_END}{_unmarked(units[i])}" for i in candidates.pool)
        given = self._node_type(node=self._text_type(text=text))
        asked = candidates.question.question
        (node,) = self._optimizer.postprocess_nodes([given], query_str=asked)
        parts = node.node.get_content().split(_MARK)[1:]
        return Ordered(tuple(int(part.partition(_END)[0]) for part in parts))


def _unmarked(text: str) -> str:
    return text.replace(_MARK, " ").replace(_END, " ")


def _unmarking(embedder: Embedder) -> BaseEmbedding:
    from llama_index.core.base.embeddings.base import BaseEmbedding

    def texts_of(texts: Sequence[str]) -> list[str]:
        return [text.partition(_END)[2] or text for text in texts]

    class Wrapped(BaseEmbedding):
        def _get_text_embedding(self, text: str) -> list[float]:
            return self._get_text_embeddings([text])[0]

        def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
            return embedder.embed_documents(texts_of(texts)).tolist()  # type: ignore[no-any-return]

        def _get_query_embedding(self, query: str) -> list[float]:
            return embedder.embed_query(query).tolist()  # type: ignore[no-any-return]

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return self._get_query_embedding(query)

    return Wrapped(model_name=embedder.name)


class CrossEncoderMethod:
    """A cross-encoder of the user's, from a directory on this machine.

    Args:
        path: A directory with safetensors weights; nothing is downloaded.

    Raises:
        ModelError: It cannot be loaded.
    """

    def __init__(self, path: Path) -> None:
        from sentence_transformers import CrossEncoder

        try:
            self._model: Any = CrossEncoder(
                str(path),
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"use_safetensors": True},
            )
        except (OSError, ValueError) as error:
            raise ModelError(
                f"{path} is no cross-encoder that can be loaded ({error}); name a directory with "
                "its configuration, tokenizer and safetensors weights"
            ) from error

    def order(self, candidates: Candidates) -> Ordered:
        """By its score of (question, unit); its tokens are another model's and not counted."""
        question, pool = candidates.question, candidates.pool
        pairs = [(question.question, question.units[index]) for index in pool]
        scores = self._model.predict(pairs, show_progress_bar=False)
        ranking = Ranking.from_scores(map(float, scores))
        order = tuple(pool[i] for i in ranking.order)
        return Ordered(order, tuple(ranking.scores[i] for i in ranking.order))
