"""Chains of a user's own: measured, prepared once per context, settled in both stages."""

from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from llama_index.core.base.llms.types import CompletionResponse, LLMMetadata
from llama_index.core.llms import CustomLLM
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.query_engine import CustomQueryEngine
from llama_index.core.schema import Document as LlamaDocument

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier import CalibrationQuestion, Context, ReuseLedger, calibrate
from ecs_plugins.langchain import FrontierRouter
from ecs_plugins.langchain import RoutedChain as LangChainChain
from ecs_plugins.llama_index import (
    FrontierQuery,
    FrontierQueryEngine,
    FrontierSelector,
    RoutedEngine,
)

TEXTS = ("Hester Vane built the mill. " + "filler " * 60, "The wheel is of oak. " + "more " * 60)
QUESTION = "Who built the mill?"
NOTES = "Hester Vane built the mill"


def reply_to(prompt, log):
    log.append(prompt)
    return NOTES if prompt.startswith("Summarise") else "Hester Vane"


class Chat(BaseChatModel):
    log: Any = None  # as it is: pydantic copies lists

    @property
    def _llm_type(self):
        return "chat"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        prompt = messages[-1].text
        text = reply_to(prompt, self.log)
        read, written = len(prompt.split()), len(text.split())
        usage = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
        message = AIMessage(text, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=message)])


class Completing(CustomLLM):
    log: Any = None  # as it is: pydantic copies lists

    @property
    def metadata(self):
        return LLMMetadata(model_name="counting")

    @llm_completion_callback()
    def complete(self, prompt, formatted=False, **kwargs):
        text = reply_to(prompt, self.log)
        usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": len(text.split())}
        return CompletionResponse(text=text, additional_kwargs=usage)

    @llm_completion_callback()
    def stream_complete(self, prompt, formatted=False, **kwargs):
        raise NotImplementedError


class Reading(CustomQueryEngine):
    """Answers from a text."""

    llm: Completing
    text: str

    def custom_query(self, query_str):
        return self.llm.complete(f"{self.text} {query_str}").text


class LangChain:
    def __init__(self):
        self.log = []

    def chains(self, **notes):
        llm = Chat(log=self.log)

        def joined(given):
            return {**given, "text": "\n".join(each.page_content for each in given["documents"])}

        ask = ChatPromptTemplate.from_template
        full = RunnableLambda(joined) | ask("{text} {question}") | llm
        summarise = RunnableLambda(joined) | ask("Summarise: {text}") | llm
        from_notes = ask("{prepared} {question}") | llm
        return [
            LangChainChain("full", answer=full),
            LangChainChain("notes", prepare=summarise, answer=from_notes, **notes),
        ]

    def routed(self, frontier, chains, **settings):
        documents = [Document(text) for text in TEXTS]
        return FrontierRouter(frontier=frontier, chains=chains, documents=documents, **settings)

    def ask(self, router, reuse):
        message = router.invoke({"question": QUESTION, "reuse": reuse})
        return message.text, message.response_metadata["frontier"]


class LlamaIndex:
    def __init__(self):
        self.log = []

    def chains(self, **notes):
        llm = Completing(log=self.log)
        nodes = [LlamaDocument(text=text) for text in TEXTS]

        def joined(nodes):
            return "\n".join(node.get_content() for node in nodes)

        def engine(text):
            return Reading(llm=llm, text=text)

        def summarise(nodes):
            return llm.complete(f"Summarise: {joined(nodes)}").text

        return [
            RoutedEngine("full", answer=lambda nodes: engine(joined(nodes)), nodes=nodes),
            RoutedEngine("notes", prepare=summarise, answer=engine, nodes=nodes, **notes),
        ]

    def routed(self, frontier, chains, **settings):
        selector = FrontierSelector(frontier, **settings)
        return FrontierQueryEngine(selector, chains, context_id="handbook")

    def ask(self, router, reuse):
        response = router.query(FrontierQuery(QUESTION, reuse=reuse))
        return str(response), response.metadata["frontier"]


@pytest.fixture(params=[LangChain, LlamaIndex], ids=lambda kind: kind.__name__)
def kind(request):
    return request.param()


def questions():
    context = Context.of(TEXTS)
    return [
        CalibrationQuestion(f"q{number}", QUESTION, ("Hester Vane",), context)
        for number in range(3)
    ]


def measured(kind):
    return calibrate(questions(), kind.chains(), metric="exact")


def test_chains_are_measured_by_themselves_in_both_stages(kind):
    frontier = measured(kind)
    full, notes = frontier.get("full"), frontier.get("notes")
    assert (full.f1, notes.f1, full.stage1) == (1.0, 1.0, 0)
    assert notes.stage1 > full.stage2 - 20 > notes.stage2
    assert sum(prompt.startswith("Summarise") for prompt in kind.log) == 1


def test_what_a_chain_prepared_is_paid_once_sunk_and_used_by_a_single_query(kind, tmp_path):
    frontier = measured(kind)
    ledger = ReuseLedger(tmp_path / "reuse.db")
    router = kind.routed(frontier, kind.chains(), target_f1=0.9, ledger=ledger)
    kind.log.clear()
    first, second, single = (kind.ask(router, reuse)[1] for reuse in (40, 40, 1))
    assert [each["label"] for each in (first, second, single)] == ["notes"] * 3
    assert [each["sunk"] for each in (first, second, single)] == [False, True, True]
    paid = first["settlement"]
    assert paid["actual"]["stage1"] == pytest.approx(paid["expected"]["stage1"], rel=0.05)
    assert second["settlement"]["actual"]["stage1"] == 0
    assert paid["ratio"] == pytest.approx(1.0, rel=0.2)
    assert sum(prompt.startswith("Summarise") for prompt in kind.log) == 1


def test_a_directory_keeps_what_was_prepared_for_the_next_process(kind, tmp_path):
    frontier = measured(kind)
    for prepared in (1, 0):
        kind.log.clear()
        chains = kind.chains(directory=str(tmp_path / "kept"))
        router = kind.routed(frontier, chains, target_f1=0.9)
        assert kind.ask(router, 40)[0] == "Hester Vane"
        assert sum(prompt.startswith("Summarise") for prompt in kind.log) == prepared


def test_a_ledger_in_a_file_needs_a_directory_for_what_chains_prepare(kind, tmp_path):
    with pytest.raises(ValueError, match=r"Routed(Chain|Engine)\(directory=\.\.\.\)"):
        kind.routed(measured(kind), kind.chains(), target_f1=0.9, ledger=str(tmp_path / "reuse.db"))


def by_length(prediction, answers):
    return min(1.0, len(prediction) / 100)


def as_langsmith(inputs, outputs, reference_outputs):
    return {"score": outputs["answer"] == reference_outputs["answer"], "key": inputs["question"]}


class AsRagas:
    name = "made up"

    def single_turn_score(self, sample):
        return 0.5 if sample.reference == "Hester Vane" else 0.0


@pytest.mark.parametrize(
    ("metric", "score"),
    [("f1", 1.0), ("exact", 1.0), (by_length, 0.11), (as_langsmith, 1.0), (AsRagas(), 0.5)],
)
def test_any_metric_judges(kind, metric, score):
    frontier = calibrate(questions(), kind.chains(), metric=metric)
    assert [point.f1 for point in frontier.points] == pytest.approx([score, score])


@pytest.mark.parametrize("metric", ["bleu", 3, lambda prediction, answers: "good"])
def test_what_is_no_metric_or_no_score_is_refused(kind, metric):
    with pytest.raises(ValueError, match="metric"):
        calibrate(questions(), kind.chains(), metric=metric)


def test_what_is_no_strategy_is_refused_with_what_to_do():
    chain = RunnableLambda(str)
    with pytest.raises(ConfigurationError, match="RoutedChain"):
        calibrate(questions(), [chain, chain])


def test_a_plain_chain_of_a_point_with_a_stage_one_has_prepared_when_it_has_answered(tmp_path):
    kind = LangChain()
    frontier = measured(kind)
    llm = Chat(log=kind.log)
    kept = {}

    def answer(given):
        text = "\n".join(each.page_content for each in given["documents"])
        if text not in kept:
            kept[text] = llm.invoke(f"Summarise: {text}").text
        return llm.invoke(f"{kept[text]} {given['question']}")

    ledger = ReuseLedger(tmp_path / "reuse.db")
    chains = {"full": RunnableLambda(answer), "notes": RunnableLambda(answer)}
    router = kind.routed(frontier, chains, target_f1=0.9, ledger=ledger)
    first, second, single = (kind.ask(router, reuse)[1] for reuse in (40, 40, 1))
    assert [each["sunk"] for each in (first, second, single)] == [False, True, True]
    assert first["settlement"]["ratio"] == pytest.approx(1.0, rel=0.2)


def test_without_any_id_the_data_of_the_chains_is_the_context_and_the_note_says_so(tmp_path):
    kind = LangChain()
    chains = {"full": RunnableLambda(str), "notes": RunnableLambda(str)}
    ledger = str(tmp_path / "reuse.db")
    router = FrontierRouter(frontier=measured(kind), chains=chains, target_f1=0.9, ledger=ledger)
    for _ in range(5):
        router.invoke("Who?")
    assert len(router.core.ledger) == 1
    assert "all queries of these chains count as one context" in router.decide("Who?").note
