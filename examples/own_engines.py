"""LlamaIndex: your engines, measured on your questions, chosen by the questions per context."""

from llama_index.core import Document, SummaryIndex
from llama_index.core.llms import MockLLM

from ecs_plugins.frontier import CalibrationQuestion, Context, calibrate
from ecs_plugins.llama_index import (
    FrontierQuery,
    FrontierQueryEngine,
    FrontierSelector,
    RoutedChain,
)

TEXTS = ["Hester Vane built the mill. " * 20, "The wheel is of oak. " * 20]  # yours
QUESTION = "Who built the mill?"


def main() -> None:
    """Measure three engines, then let N choose among them."""
    llm = MockLLM(max_tokens=2)  # yours; this one answers "text text" to everything

    def read(nodes):
        return SummaryIndex(nodes).as_query_engine(llm=llm)

    def shorten(nodes):  # once per context
        return llm.complete("Shorten: " + " ".join(node.text for node in nodes)).text

    count = {"count_tokens": lambda texts: [len(text.split()) for text in texts]}  # for a fake
    own = {"nodes": [Document(text=text) for text in TEXTS], **count}
    engines = [
        RoutedChain("full", answer=read, **own),
        RoutedChain("top", answer=lambda nodes: read(nodes[:1]), **own),  # retrieve
        RoutedChain("notes", prepare=shorten, answer=lambda n: read([Document(text=n)]), **own),
    ]
    asked = [CalibrationQuestion("q1", QUESTION, ("text text",), Context.of(TEXTS))]
    frontier = calibrate(asked, engines, metric="f1")
    router = FrontierQueryEngine(FrontierSelector(frontier, target_f1=0.9), engines)
    for reuse in (1, 40):
        report = router.query(FrontierQuery(QUESTION, reuse=reuse)).metadata["frontier"]
        print(reuse, report["label"], report["settlement"]["actual"])


if __name__ == "__main__":
    main()
