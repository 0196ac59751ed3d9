"""Part 3: the same turns through LangChain, LlamaIndex and the engine itself."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from ecs_plugins.errors import EcsPluginsError, MissingExtraError
from ecs_plugins.ranking.registry import make_ranker
from ecs_plugins.shaping import ContextShaper, ShapingConfig
from examples.demo.context import Demo, table
from examples.demo.data import Turn

RETRIEVED = 8
"""Turns that the frameworks' retriever returns."""
KEPT = 3
QUESTION = "q10"
CONFIG = ShapingConfig(ranker=None, top_k=KEPT, redundancy_similarity=None, on_error="raise")


def run(demo: Demo) -> None:
    """Ask one question three ways and compare which turns come back."""
    question = next(q for q in demo.data.questions if q.id == QUESTION)
    passages = [turn.passage for turn in demo.data.turns]
    found = make_ranker("bm25").rank(question.question, passages).top(RETRIEVED)
    turns = [demo.data.turns[i] for i in found]
    kept: dict[str, list[str]] = {}
    title = f"{question.question}  {RETRIEVED} turns retrieved, {KEPT} kept"
    shown = table(title, ["through", "kept turns"])
    for name, way in (
        ("ContextShaper", with_engine),
        ("LangChain ContextualCompressionRetriever", with_langchain),
        ("LlamaIndex RetrieverQueryEngine", with_llama_index),
    ):
        try:
            kept[name] = way(demo, question.question, turns)
        except MissingExtraError as error:
            shown.add_row(name, Text(str(error), style="yellow"))
        else:
            marked = [f"{t} (evidence)" if t in question.evidence else t for t in kept[name]]
            shown.add_row(name, ", ".join(marked))
    demo.console.print(shown)
    demo.results["frameworks"] = {"question": question.id, "kept": kept}
    if len({tuple(ids) for ids in kept.values()}) > 1:
        raise EcsPluginsError(f"the integrations disagree: {kept}. Please report this as a bug.")


def with_engine(demo: Demo, query: str, turns: Sequence[Turn]) -> list[str]:
    """Ids of the turns that `ContextShaper` keeps."""
    shaped = ContextShaper(demo.model, CONFIG).shape(query, [t.passage for t in turns])
    return [turns[verdict.index].id for verdict in shaped.kept]


def with_langchain(demo: Demo, query: str, turns: Sequence[Turn]) -> list[str]:
    """Ids of the turns that a LangChain retriever returns with ECS as its compressor."""
    try:
        from langchain_classic.retrievers import ContextualCompressionRetriever
        from langchain_core.documents import Document
        from langchain_core.runnables import RunnableLambda
    except ModuleNotFoundError as error:
        raise MissingExtraError("LangChain's part", "langchain_classic", "langchain") from error
    from ecs_plugins.langchain import ECSDocumentCompressor

    documents = [Document(page_content=turn.passage, id=turn.id) for turn in turns]
    retriever = ContextualCompressionRetriever(
        base_compressor=ECSDocumentCompressor(model=demo.model, config=CONFIG),
        base_retriever=RunnableLambda(lambda _: documents),
    )
    return [str(document.id) for document in retriever.invoke(query)]


def with_llama_index(demo: Demo, query: str, turns: Sequence[Turn]) -> list[str]:
    """Ids of the turns that a LlamaIndex query engine passes on with ECS as postprocessor."""
    try:
        from llama_index.core.base.base_retriever import BaseRetriever
        from llama_index.core.llms import MockLLM
        from llama_index.core.query_engine import RetrieverQueryEngine
        from llama_index.core.response_synthesizers.no_text import NoText
        from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
    except ModuleNotFoundError as error:
        raise MissingExtraError("LlamaIndex's part", "llama_index", "llama-index") from error
    from ecs_plugins.llama_index import ECSPostprocessor

    class Found(BaseRetriever):
        """Returns the turns that were found."""

        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            del query_bundle
            return [NodeWithScore(node=TextNode(id_=t.id, text=t.passage)) for t in turns]

    engine = RetrieverQueryEngine(
        Found(),
        # No answer is written: which nodes reach the writer is what is shown.
        response_synthesizer=NoText(llm=MockLLM()),
        node_postprocessors=[ECSPostprocessor(model=demo.model, config=CONFIG)],
    )
    return [node.node.node_id for node in engine.query(query).source_nodes]
