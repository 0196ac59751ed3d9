"""The installed default model: right, still the one that the package carries, and of use."""

import json
import subprocess
import sys

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from ecs_plugins.frontier import CalibrationQuestion, calibrate
from ecs_plugins.frontier.answering import as_answer_model
from ecs_plugins.frontier.strategies import StrategySet
from ecs_plugins.langchain import FrontierRouter
from ecs_plugins.langchain.chains import as_context
from ecs_plugins.lm.base import ScoreRequest
from ecs_plugins.lm.bundled import state_of
from ecs_plugins.lm.encoding import encode_request
from ecs_plugins.lm.prompts import PromptTemplate
from ecs_plugins.lm.scoring.profile import ScoringPath

pytestmark = pytest.mark.model


def test_the_weights_are_the_pinned_ones():
    assert state_of() == "installed"


VALUES = {"context": "", "question": "Where does Ann live?", "answer": "Paris"}
PASSAGES = ("Ann moved to Paris in 2019.", "Bob likes green tea.", "Ann lives in Rome.")


def asked(lm):
    template = PromptTemplate()
    return ScoreRequest(
        template.prefix(lm.layout, VALUES),
        ((), *(template.candidate(passage) for passage in PASSAGES)),
        (
            template.continuation(lm.layout, VALUES),
            template.continuation(lm.layout, {**VALUES, "answer": "Rome"}),
        ),
    )


def test_the_fast_path_equals_the_reference(bundled_lm) -> None:
    runtime = bundled_lm.warmup()._load()
    request = encode_request(runtime.encoder, asked(bundled_lm))
    everything = range(len(request.candidates))
    wanted, _ = runtime.engine.run(ScoringPath.REFERENCE, request, everything)
    got, _ = runtime.engine.run(ScoringPath.CASCADE, request, everything)
    assert max(np.abs(wanted[key] - got[key]).max() for key in wanted) < 1e-4


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


async def test_a_routed_query_costs_the_calibrated_amount(bundled_lm):
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
    router = FrontierRouter.from_frontier(
        frontier, llm=llm, documents=documents, routing={"weight": 0.0}
    )

    message = await router.ainvoke(question)

    # The same prompt, layout and greedy decoding: the forecast of this question is exact.
    report = message.response_metadata["frontier"]
    assert report["label"] == "bm25(depth=1)"
    assert report["settlement"]["ratio"] == 1.0
    assert "Anton Brae" in message.text


def test_a_pipe_of_passages_is_shaped_and_json_alone_goes_to_standard_output(bundled_lm) -> None:
    passages = (
        "Gulls nest on the roof of the harbour office.",
        "The ferry to the island leaves at nine in the morning.",
        "Tickets can be paid in cash only.",
    )
    question = "When does the boat to the island depart?"
    options = ["--query", question, "-p", "-", "--top-k", "1", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "ecs_plugins", "shape", *options],
        input="\n".join(passages), capture_output=True, text=True, timeout=1500, check=True,
    )  # fmt: skip
    result = json.loads(done.stdout)
    assert result["kept"] == [1]
    assert result["tokens"]["after"] < result["tokens"]["before"]
