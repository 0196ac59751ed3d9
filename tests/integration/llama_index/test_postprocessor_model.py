import pytest
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.llms import MockLLM
from llama_index.core.schema import TextNode

from ecs_plugins.llama_index import ECSPostprocessor
from ecs_plugins.shaping import ShapingConfig

pytestmark = pytest.mark.model

QUESTION = "Who repaired the clock in the town hall?"
TEXTS = (
    "The town hall was painted green in spring, and the clock in it was not.",
    "The ferry carries forty passengers and two carts.",
    "Agnes Bright, a retired watchmaker, repaired the clock in the town hall over one winter.",
    "Bread is sold in the market hall on Saturdays.",
)


async def test_the_bundled_model_picks_what_a_query_engine_answers_from():
    nodes = [TextNode(text=text, id_=f"node-{i}") for i, text in enumerate(TEXTS)]
    index = VectorStoreIndex(nodes, embed_model=MockEmbedding(embed_dim=4))
    engine = index.as_query_engine(
        llm=MockLLM(),
        similarity_top_k=4,
        node_postprocessors=[ECSPostprocessor(config=ShapingConfig(ranker="tfidf"), top_k=1)],
    )
    for response in (engine.query(QUESTION), await engine.aquery(QUESTION)):
        (kept,) = response.source_nodes
        assert kept.node_id == "node-2"
        assert kept.metadata["ecs"]["utility"] > 0
        assert TEXTS[2] in str(response)
        assert TEXTS[0] not in str(response)
