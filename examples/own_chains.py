"""LangChain: your chains, measured on your questions, chosen by the questions per context."""

from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda

from ecs_plugins.frontier import CalibrationQuestion, Context, calibrate
from ecs_plugins.langchain import FrontierRouter, RoutedChain

DOCUMENTS = [Document("Hester Vane built the mill. " * 20), Document("The wheel is of oak. " * 20)]
QUESTION = "Who built the mill?"


def main() -> None:
    """Measure three chains, then let N choose among them."""
    llm = FakeListChatModel(responses=["Hester Vane"])  # yours
    ask = ChatPromptTemplate.from_template
    read = RunnableLambda(lambda given: {**given, "text": str(given["documents"])})
    find = RunnableLambda(lambda given: {**given, "text": str(given["documents"][0])})  # yours
    shorten = read | ask("Shorten: {text}") | llm  # once per context
    count = {"count_tokens": lambda texts: [len(text.split()) for text in texts]}  # for a fake
    chains = [
        RoutedChain("full", answer=read | ask("{text} {question}") | llm, **count),
        RoutedChain("top", answer=find | ask("{text} {question}") | llm, **count),
        RoutedChain("notes", prepare=shorten, answer=ask("{prepared} {question}") | llm, **count),
    ]
    context = Context.of([document.page_content for document in DOCUMENTS])
    asked = [CalibrationQuestion("q1", QUESTION, ("Hester Vane",), context)]  # yours, about 50
    frontier = calibrate(asked, chains, metric="f1")
    router = FrontierRouter(frontier=frontier, chains=chains, documents=DOCUMENTS, target_f1=0.9)
    for reuse in (1, 40):
        report = router.invoke({"question": QUESTION, "reuse": reuse}).response_metadata["frontier"]
        print(reuse, report["label"], report["settlement"]["actual"])


if __name__ == "__main__":
    main()
