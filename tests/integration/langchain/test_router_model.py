"""The router end to end on the bundled model: measured, routed, answered, settled."""

import pytest
from langchain_core.documents import Document

from ecs_plugins.frontier.calibration import calibrate
from ecs_plugins.frontier.data import CalibrationQuestion
from ecs_plugins.frontier.strategies.plain import FullContext
from ecs_plugins.frontier.strategies.retrieval import bm25
from ecs_plugins.langchain import FrontierRouter, LocalChatModel
from ecs_plugins.langchain.context import as_context


@pytest.mark.model
async def test_what_calibration_measured_is_what_a_routed_query_costs(bundled_lm):
    documents = [
        Document("Hester Vane had the mill built in 1764.", metadata={"title": "The mill"}),
        Document("The oak wheel was made by Anton Brae.", metadata={"title": "The wheel"}),
        Document("Bread is baked on Sundays.", metadata={"title": "Bread"}),
    ]
    question = "Who made the oak wheel?"
    asked = [CalibrationQuestion("q", question, ("Anton Brae",), as_context(documents))]
    frontier = calibrate(asked, [FullContext(), bm25(1)], bundled_lm)
    llm = LocalChatModel(model=bundled_lm, max_tokens=24, open_reply=True)
    router = FrontierRouter.from_frontier(frontier, llm=llm, documents=documents, weight=0.0)

    message = await router.ainvoke(question)

    # The same prompt, layout and greedy decoding: the forecast of this question is exact.
    report = message.response_metadata["frontier"]
    assert report["label"] == "bm25(depth=1)"
    assert report["settlement"]["ratio"] == 1.0
    assert "Anton Brae" in message.text
