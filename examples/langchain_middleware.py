"""LangChain: an agent whose retriever tool returns only the passages that help.

    pip install ".[langchain,offline]" langchain-huggingface
    ecs-plugins model install
    python examples/langchain_middleware.py

Runs offline, on one model for everything: it judges the passages and it answers.
"""

import json
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import create_retriever_tool
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_huggingface import ChatHuggingFace
from langchain_local_chat import chat_parts

from ecs_plugins.langchain import ECSContextMiddleware, ECSDocumentCompressor
from ecs_plugins.lm import LocalLM
from ecs_plugins.ranking.embedder import default_embedder

DATA = Path(__file__).parent / "data" / "documents.json"
QUESTION = "In which year did the sea break through the dam?"


class OfflineEmbeddings(Embeddings):
    """Offline embedder as LangChain embeddings."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one vector per text."""
        return default_embedder().embed_documents(texts).tolist()

    def embed_query(self, text: str) -> list[float]:
        """Return one vector."""
        return default_embedder().embed_query(text).tolist()


class SearchThenAnswer(ChatHuggingFace):
    """Chat model that searches once with its tool and then answers."""

    def bind_tools(self, *_: Any, **__: Any) -> "SearchThenAnswer":
        """Return itself; it knows its tool by name."""
        return self

    def _generate(self, messages: list, *args: Any, **kwargs: Any) -> ChatResult:
        if isinstance(messages[-1], HumanMessage):
            call = {"name": "search", "args": {"query": messages[-1].text}, "id": "call-1"}
            return ChatResult(
                generations=[ChatGeneration(message=AIMessage("", tool_calls=[call]))]
            )
        # The bundled model knows no tool messages, so it reads the result and the question as one.
        asked = HumanMessage(f"{messages[-1].text}\n\n{messages[0].text}")
        return super()._generate([asked], *args, **kwargs)


def main() -> None:
    """Ask one question with and without the middleware."""
    documents = [
        Document(page_content=entry["text"], id=entry["id"])
        for entry in json.loads(DATA.read_text(encoding="utf-8"))["documents"]
    ]
    store = InMemoryVectorStore(OfflineEmbeddings())
    store.add_documents(documents)
    search = create_retriever_tool(
        store.as_retriever(search_kwargs={"k": 8}),
        "search",
        "Search the archive.",
        response_format="content_and_artifact",
    )
    local = LocalLM.bundled()
    model = SearchThenAnswer(**chat_parts(local, max_tokens=16))
    shaping = ECSContextMiddleware(ECSDocumentCompressor(model=local, top_k=2))
    print(f"Question: {QUESTION}\n")
    for name, middleware in (("everything", []), ("shaped", [shaping])):
        agent = create_agent(model, [search], middleware=middleware)
        messages = agent.invoke({"messages": [HumanMessage(QUESTION)]})["messages"]
        (result,) = (message for message in messages if isinstance(message, ToolMessage))
        (tokens,) = local.count_tokens([result.text])
        print(f"{name}: the model reads {len(result.artifact)} passages, {tokens} tokens")
        for document in result.artifact:
            ecs = document.metadata.get("ecs")
            note = (
                f"  utility {ecs['utility']:+.3f}, retrieved {ecs['original_rank']}" if ecs else ""
            )
            print(f"  {document.id}{note}")
        print(f"  it answers: {messages[-1].text}\n")


if __name__ == "__main__":
    main()
