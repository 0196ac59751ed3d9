"""The adapters end to end on the bundled model: shaped, measured, routed, answered, settled."""

import pytest
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from ecs_plugins.frontier import CalibrationQuestion, as_answer_model, calibrate
from ecs_plugins.frontier.strategies import StrategySet
from ecs_plugins.langchain import FrontierRouter
from ecs_plugins.langchain.context import as_context
from ecs_plugins.shaping import ShapingConfig

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("bundled_lm")]

QUESTION = "Who repaired the clock in the town hall?"
TEXTS = (
    "The town hall was painted green in spring, and the clock in it was not.",
    "The ferry carries forty passengers and two carts.",
    "Agnes Bright, a retired watchmaker, repaired the clock in the town hall over one winter.",
    "Bread is sold in the market hall on Saturdays.",
)
SHAPING = ShapingConfig(ranker="tfidf")


class Local(BaseChatModel):
    """The bundled model, laid out and decoded as calibration does."""

    inner: object

    @property
    def _llm_type(self):
        return "local"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        (reply,) = as_answer_model(self.inner).complete([messages[-1].text], max_new_tokens=24)
        read, written = reply.input_tokens, reply.output_tokens
        usage = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
        message = AIMessage(reply.text, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=message)])


async def test_what_calibration_measured_is_what_a_routed_query_costs(bundled_lm):
    documents = [
        Document("Hester Vane had the mill built in 1764.", metadata={"title": "The mill"}),
        Document("The oak wheel was made by Anton Brae.", metadata={"title": "The wheel"}),
        Document("Bread is baked on Sundays.", metadata={"title": "Bread"}),
    ]
    question = "Who made the oak wheel?"
    asked = [CalibrationQuestion("q", question, ("Anton Brae",), as_context(documents))]
    known = StrategySet()
    strategies = [known.get("full_context", {}), known.get("bm25", {"depth": 1})]
    llm = Local(inner=bundled_lm)
    frontier = calibrate(asked, strategies, llm)
    router = FrontierRouter.from_frontier(frontier, llm=llm, documents=documents, weight=0.0)

    message = await router.ainvoke(question)

    # The same prompt, layout and greedy decoding: the forecast of this question is exact.
    report = message.response_metadata["frontier"]
    assert report["label"] == "bm25(depth=1)"
    assert report["settlement"]["ratio"] == 1.0
    assert "Anton Brae" in message.text
