"""LangChain: the bundled model as a chat model, on the weights that score passages.

    pip install ".[langchain]" langchain-huggingface
    ecs-plugins model install
    python examples/langchain_local_chat.py

Runs offline. `LocalLM.pair` returns the loaded model and its tokenizer, so that LangChain's own
classes for local models answer with them and nothing is loaded twice.
"""

from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langchain_huggingface import ChatHuggingFace, HuggingFacePipeline
from transformers import pipeline

from ecs_plugins.langchain import ECSDocumentCompressor
from ecs_plugins.lm import LocalLM

QUESTION = "Who repaired the clock in the town hall?"
TEXTS = (
    "The town hall was painted green in spring.",
    "Agnes Bright, a retired watchmaker, repaired the clock in the town hall over one winter.",
    "Bread is sold in the market hall on Saturdays.",
)


def chat_parts(model: LocalLM, max_tokens: int) -> dict:
    """Return the pipeline of a `ChatHuggingFace`."""
    weights, tokenizer = model.pair()
    writer = pipeline(
        "text-generation",
        model=weights,
        tokenizer=tokenizer,
        max_new_tokens=max_tokens,
        do_sample=False,
        return_full_text=False,
    )
    llm = HuggingFacePipeline(pipeline=writer, model_id=model.name)
    return {"llm": llm, "tokenizer": tokenizer, "model_id": model.name}


def main() -> None:
    """Choose the passages and answer with one model."""
    model = LocalLM.bundled()
    chat = ChatHuggingFace(**chat_parts(model, max_tokens=40))
    compressor = ECSDocumentCompressor(model=model, top_k=1)
    kept = compressor.compress_documents([Document(text) for text in TEXTS], QUESTION)
    context = "\n".join(document.page_content for document in kept)
    print(f"kept: {context}")
    answer = chat.invoke([HumanMessage(f"{context}\n\nQuestion: {QUESTION}")])
    print(f"answer: {answer.text.strip()}")


if __name__ == "__main__":
    main()
