"""Judges of outdated memories that ask the chat models of the frameworks."""

import json
import time

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage
from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata
from llama_index.core.llms.callbacks import llm_completion_callback

from ecs_plugins import langchain, llama_index
from ecs_plugins.integrations.recall import RecallOptions, recall
from ecs_plugins.memory import EntropicMemory
from ecs_plugins.ranking.embedder import FakeEmbedder
from tests.integration.scripted_model import ScriptedModel

USER = ("u1",)
OLD = "My dentist is Dr. Osei."
NEW = "My dentist is Dr. Blum now."
OUTDATED = {"outdated": [{"number": 1, "probability": 0.97}]}


class Completing(CustomLLM):
    reply: str = ""
    seconds: float = 0.0

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="completing")

    @llm_completion_callback()
    def complete(self, prompt, formatted=False, **kwargs):
        time.sleep(self.seconds)
        if self.reply == "fail":
            raise RuntimeError("the service is down")
        return CompletionResponse(text=self.reply)

    @llm_completion_callback()
    def stream_complete(self, prompt, formatted=False, **kwargs):
        raise NotImplementedError


class Listed(FakeListChatModel):
    def _call(self, *args, **kwargs):
        reply = super()._call(*args, **kwargs)
        if reply == "fail":
            raise RuntimeError("the service is down")
        return reply


def calling(reply):
    """Chat model that calls tools."""

    def answer(_):
        if reply == "fail":
            raise RuntimeError("the service is down")
        args = json.loads(reply) if reply.startswith("{") else {"nonsense": reply}
        called = {"name": "OutdatingVerdict", "args": args, "id": "c"}
        return AIMessage("", tool_calls=[called])

    return langchain.ChatModelJudge(ScriptedModel(replies=[answer]))


JUDGES = {
    "langchain with tools": calling,
    "langchain with text": lambda reply: langchain.ChatModelJudge(Listed(responses=[reply])),
    "llama_index": lambda reply: llama_index.ChatModelJudge(Completing(reply=reply)),
}


def judged(judge, seconds=5.0):
    """What a prompt shows after a change, once the judge has answered."""
    with EntropicMemory.open(":memory:", embedder=FakeEmbedder(), judge=judge) as memory:
        (old,) = memory.add({"content": OLD, "at": 1_746_100_800.0}, namespace=USER)
        memory.add({"content": NEW, "at": 1_746_187_200.0}, namespace=USER)
        end = time.monotonic() + seconds  # the judge is asked in the background
        while memory.get(old).outdated_by is None and time.monotonic() < end:
            time.sleep(0.02)
        settings = RecallOptions(threshold=-1.0)
        shown = recall(memory, "Who is the dentist?", USER, settings, len, record=False).text
        hiding = RecallOptions(threshold=-1.0, outdated="hide")
        hidden = recall(memory, "Who is the dentist?", USER, hiding, len, record=False).text
    return shown, hidden


@pytest.mark.parametrize("made", JUDGES.values(), ids=JUDGES)
def test_an_outdated_note_is_marked_and_hidden_if_asked(made):
    shown, hidden = judged(made(json.dumps(OUTDATED)))
    assert f"- (user, 2025-05-01; outdated) {OLD}\n- (user, 2025-05-02) {NEW}" in shown
    assert OLD not in hidden
    assert NEW in hidden


@pytest.mark.parametrize("reply", ["fail", "I cannot tell.", '{"outdated": [{"number": 9}]}'])
@pytest.mark.parametrize("made", JUDGES.values(), ids=JUDGES)
def test_a_judge_that_fails_or_answers_nonsense_marks_nothing(made, reply):
    shown, hidden = judged(made(reply), seconds=0.5)
    for block in (shown, hidden):
        assert OLD in block
        assert NEW in block
        assert "outdated)" not in block


async def test_adding_does_not_wait_for_a_slow_judge():
    judge = llama_index.ChatModelJudge(Completing(reply=json.dumps(OUTDATED), seconds=1.0))
    memory = EntropicMemory.open(":memory:", embedder=FakeEmbedder(), judge=judge)
    await memory.aadd(OLD, namespace=USER)
    start = time.perf_counter()
    await memory.aadd(NEW, namespace=USER)
    assert time.perf_counter() - start < 0.5
    await memory.aclose()
