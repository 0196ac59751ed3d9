import asyncio
import json

import pytest
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from ecs_plugins.langchain import ECSDocumentCompressor
from ecs_plugins.shaping import ShapingConfig

pytestmark = pytest.mark.model

QUESTION = "Who repaired the clock in the town hall?"
TEXTS = (
    "The town hall was painted green in spring, and the clock in it was not.",
    "The ferry carries forty passengers and two carts.",
    "Agnes Bright, a retired watchmaker, repaired the clock in the town hall over one winter.",
    "Bread is sold in the market hall on Saturdays.",
)


class EveryDocument(BaseRetriever):
    def _get_relevant_documents(self, query, *, run_manager):
        return [Document(page_content=text, id=f"doc-{i}") for i, text in enumerate(TEXTS)]


def retriever(**fields) -> ContextualCompressionRetriever:
    compressor = ECSDocumentCompressor(config=ShapingConfig(ranker="tfidf"), **fields)
    return ContextualCompressionRetriever(
        base_compressor=compressor, base_retriever=EveryDocument()
    )


def test_the_bundled_model_picks_the_evidence_from_the_question_alone():
    (kept,) = retriever(top_k=1).invoke(QUESTION)
    assert kept.id == "doc-2"
    assert kept.metadata["ecs"]["signal"] == "query_likelihood+bm25"
    assert json.dumps(kept.metadata)


async def test_concurrent_calls_give_what_single_calls_give():
    shaped = retriever(top_k=1, answer=lambda query: "Agnes Bright")
    one = shaped.invoke(QUESTION)
    assert [document.id for document in one] == ["doc-2"]
    several = await asyncio.gather(*(shaped.ainvoke(QUESTION) for _ in range(3)))
    for documents in several:
        assert [document.id for document in documents] == ["doc-2"]
        assert documents[0].metadata["relevance_score"] == pytest.approx(
            one[0].metadata["relevance_score"], abs=1e-4
        )
