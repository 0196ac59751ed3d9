"""The adapters end to end on the bundled model: shaped, measured, routed, answered, settled."""

import asyncio

import pytest
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.retrievers import BaseRetriever
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.llms import MockLLM
from llama_index.core.schema import TextNode

from ecs_plugins.frontier import CalibrationQuestion, as_answer_model, calibrate
from ecs_plugins.frontier.strategies import StrategySet
from ecs_plugins.langchain import ECSDocumentCompressor, FrontierRouter
from ecs_plugins.langchain.context import as_context
from ecs_plugins.llama_index import ECSPostprocessor
from ecs_plugins.shaping import ShapingConfig

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("bundled_lm")]

QUESTION = "Who repaired the clock in the town hall?"
TEXTS = (
    "The town hall was painted green in spring, and the clock in it was not.",
    "The ferry carries forty passengers and two carts.",
    "Agnes Bright, a retired watchmaker, repaired the clock in the town hall over one winter.",
    "Bread is sold in the market hall on Saturdays.",
)
SHAPING = ShapingConfig(ranker="tfidf")


class EveryDocument(BaseRetriever):
    def _get_relevant_documents(self, query, *, run_manager):
        return [Document(page_content=text, id=f"doc-{n}") for n, text in enumerate(TEXTS)]


async def test_concurrent_calls_of_a_retriever_pick_the_evidence_as_single_calls_do():
    compressor = ECSDocumentCompressor(config=SHAPING, top_k=1)
    shaped = ContextualCompressionRetriever(
        base_compressor=compressor, base_retriever=EveryDocument()
    )
    (one,) = shaped.invoke(QUESTION)
    assert one.id == "doc-2"
    assert one.metadata["ecs"]["signal"] == "query_likelihood+bm25"
    for (several,) in await asyncio.gather(*(shaped.ainvoke(QUESTION) for _ in range(3))):
        assert several.id == "doc-2"
        score = several.metadata["relevance_score"]
        assert score == pytest.approx(one.metadata["relevance_score"], abs=1e-4)


async def test_a_query_engine_answers_from_what_the_postprocessor_picks():
    nodes = [TextNode(text=text, id_=f"node-{n}") for n, text in enumerate(TEXTS)]
    engine = VectorStoreIndex(nodes, embed_model=MockEmbedding(embed_dim=4)).as_query_engine(
        llm=MockLLM(),
        similarity_top_k=4,
        node_postprocessors=[ECSPostprocessor(config=SHAPING, top_k=1)],
    )
    for response in (engine.query(QUESTION), await engine.aquery(QUESTION)):
        (kept,) = response.source_nodes
        assert kept.node_id == "node-2"
        assert TEXTS[2] in str(response)
        assert TEXTS[0] not in str(response)


class Local(BaseChatModel):
    """The bundled model, laid out and decoded as calibration does."""

    inner: object

    @property
    def _llm_type(self):
        return "local"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        (reply,) = as_answer_model(self.inner).complete([messages[-1].text], max_new_tokens=24)
        read, written = reply.input_tokens, reply.output_tokens
        usage = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
        message = AIMessage(reply.text, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=message)])


async def test_what_calibration_measured_is_what_a_routed_query_costs(bundled_lm):
    documents = [
        Document("Hester Vane had the mill built in 1764.", metadata={"title": "The mill"}),
        Document("The oak wheel was made by Anton Brae.", metadata={"title": "The wheel"}),
        Document("Bread is baked on Sundays.", metadata={"title": "Bread"}),
    ]
    question = "Who made the oak wheel?"
    asked = [CalibrationQuestion("q", question, ("Anton Brae",), as_context(documents))]
    known = StrategySet()
    strategies = [known.get("full_context", {}), known.get("bm25", {"depth": 1})]
    llm = Local(inner=bundled_lm)
    frontier = calibrate(asked, strategies, llm)
    router = FrontierRouter.from_frontier(frontier, llm=llm, documents=documents, weight=0.0)

    message = await router.ainvoke(question)

    # The same prompt, layout and greedy decoding: the forecast of this question is exact.
    report = message.response_metadata["frontier"]
    assert report["label"] == "bm25(depth=1)"
    assert report["settlement"]["ratio"] == 1.0
    assert "Anton Brae" in message.text
