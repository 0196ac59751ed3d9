"""LlamaIndex: the bundled model as an LLM, on the weights that score passages.

    pip install ".[llama-index]" llama-index-llms-huggingface
    ecs-plugins model install
    python examples/llama_index_local_llm.py

Runs offline. `LocalLM.pair` returns the loaded model and its tokenizer, so that LlamaIndex's own
class for local models answers with them and nothing is loaded twice.
"""

from llama_index.core import MockEmbedding, SummaryIndex
from llama_index.core.schema import TextNode
from llama_index.llms.huggingface import HuggingFaceLLM

from ecs_plugins.llama_index import ECSPostprocessor
from ecs_plugins.lm import LocalLM

QUESTION = "Who repaired the clock in the town hall?"
TEXTS = (
    "The town hall was painted green in spring.",
    "Agnes Bright, a retired watchmaker, repaired the clock in the town hall over one winter.",
    "Bread is sold in the market hall on Saturdays.",
)


def local_llm(model: LocalLM, max_tokens: int) -> HuggingFaceLLM:
    """Return an LLM that writes with the model of a `LocalLM`."""
    weights, tokenizer = model.pair()
    return HuggingFaceLLM(
        model=weights,
        tokenizer=tokenizer,
        model_name=model.name,
        tokenizer_name=model.name,
        context_window=model.max_tokens,
        max_new_tokens=max_tokens,
        generate_kwargs={"do_sample": False},
        is_chat_model=True,
    )


def main() -> None:
    """Choose the passages and answer with one model."""
    model = LocalLM.bundled()
    index = SummaryIndex([TextNode(text=text) for text in TEXTS], embed_model=MockEmbedding(4))
    engine = index.as_query_engine(
        llm=local_llm(model, max_tokens=40),
        node_postprocessors=[ECSPostprocessor(model=model, top_k=1)],
    )
    response = engine.query(QUESTION)
    (kept,) = response.source_nodes
    print(f"kept: {kept.text}")
    print(f"answer: {str(response).strip()}")


if __name__ == "__main__":
    main()
