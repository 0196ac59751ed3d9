"""LangChain: your own chains, measured on your questions and routed by how often they are asked.

    pip install "ecs-plugins[langchain]"
    python examples/own_chains.py

Runs offline: a scripted model stands for yours.
"""

from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda

from ecs_plugins.frontier import CalibrationQuestion, Context, calibrate
from ecs_plugins.langchain import FrontierRouter, RoutedChain

TEXTS = ["Hester Vane built the mill. " * 20, "The wheel is of oak. " * 20]


def count(texts: list[str]) -> list[int]:
    """Tokens of each text; only for a model that does not report them."""
    return [len(text.split()) for text in texts]


def joined(given: dict) -> dict:
    """The input with the text of its documents."""
    return {**given, "text": "\n".join(each.page_content for each in given["documents"])}


def main() -> None:
    """Measure two chains, then route between them."""
    llm = FakeListChatModel(responses=["Hester Vane"])  # yours
    full = RunnableLambda(joined) | ChatPromptTemplate.from_template("{text} {question}") | llm
    summarise = RunnableLambda(joined) | ChatPromptTemplate.from_template("Shorten: {text}") | llm
    from_notes = ChatPromptTemplate.from_template("{prepared} {question}") | llm
    chains = [
        RoutedChain("full", answer=full, count_tokens=count),
        RoutedChain("notes", prepare=summarise, answer=from_notes, count_tokens=count),
    ]
    context = Context.of(TEXTS)
    question = CalibrationQuestion("q1", "Who built the mill?", ("Hester Vane",), context)
    frontier = calibrate([question], chains, metric="f1")
    for point in frontier.points:
        print(f"{point.label}: F1 {point.f1:.2f}, {point.stage1:.0f} once, {point.stage2:.0f} each")
    router = FrontierRouter(
        frontier=frontier,
        chains=chains,
        documents=[Document(text) for text in TEXTS],
        count_tokens=count,
        target_f1=0.9,
    )
    for reuse in (1, 40):
        answer = router.invoke({"question": "Who built the mill?", "reuse": reuse})
        report = answer.response_metadata["frontier"]
        print(f"N = {reuse}: {report['label']}, {report['settlement']['actual']}")


if __name__ == "__main__":
    main()
