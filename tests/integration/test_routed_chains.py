"""Chains of a user's own: measured, prepared once per context, settled in both stages."""

import pickle
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from llama_index.core.base.llms.types import CompletionResponse, LLMMetadata
from llama_index.core.llms import CustomLLM
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.query_engine import CustomQueryEngine
from llama_index.core.schema import Document as LlamaDocument

from ecs_plugins.errors import ConfigurationError, EcsPluginsError
from ecs_plugins.frontier import (
    CalibrationQuestion,
    Context,
    EfficiencyFrontier,
    ReuseLedger,
    StrategyPoint,
    calibrate,
)
from ecs_plugins.langchain import FrontierRouter, RoutedChain
from ecs_plugins.llama_index import FrontierQuery, FrontierQueryEngine, FrontierSelector

TEXTS = ("Hester Vane built the mill. " + "filler " * 60, "The wheel is of oak. " + "more " * 60)
QUESTION = "Who built the mill?"
NOTES = "Hester Vane built the mill"


def reply_to(prompt, log):
    log.append(prompt)
    if prompt.startswith("Summarise"):
        return NOTES
    return "Hester Vane"


def summaries(kind):
    """Return the number of summaries."""
    return sum(prompt.startswith("Summarise") for prompt in kind.log)


class Chat(BaseChatModel):
    log: Any = None  # as it is: pydantic copies lists

    @property
    def _llm_type(self):
        return "chat"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        prompt = messages[-1].text
        text = reply_to(prompt, self.log)
        read = len(prompt.split())
        written = len(text.split())
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
        read = len(prompt.split())
        written = len(text.split())
        usage = {"prompt_tokens": read, "completion_tokens": written}
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
            texts = [each.page_content for each in given["documents"]]
            return {**given, "text": "\n".join(texts)}

        ask = ChatPromptTemplate.from_template
        read = RunnableLambda(joined)
        full = read | ask("{text} {question}") | llm
        summarise = read | ask("Summarise: {text}") | llm
        from_notes = ask("{prepared} {question}") | llm
        return [
            RoutedChain("full", answer=full),
            RoutedChain("notes", prepare=summarise, answer=from_notes, **notes),
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
            texts = [node.get_content() for node in nodes]
            return "\n".join(texts)

        def engine(text):
            return Reading(llm=llm, text=text)

        def of_nodes(nodes):
            return engine(joined(nodes))

        def summarise(nodes):
            response = llm.complete(f"Summarise: {joined(nodes)}")
            return response.text

        return [
            RoutedChain("full", answer=of_nodes, nodes=nodes),
            RoutedChain("notes", prepare=summarise, answer=engine, nodes=nodes, **notes),
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
    asked = []
    for name in ("q0", "q1", "q2"):
        question = CalibrationQuestion(name, QUESTION, ("Hester Vane",), context)
        asked.append(question)
    return asked


def measured(kind):
    return calibrate(questions(), kind.chains(), metric="exact")


def test_chains_are_measured_by_themselves_in_both_stages(kind):
    frontier = measured(kind)
    full = frontier.get("full")
    notes = frontier.get("notes")
    assert full.f1 == 1.0
    assert notes.f1 == 1.0
    assert full.stage1 == 0
    assert notes.stage1 > full.stage2 - 20 > notes.stage2
    assert summaries(kind) == 1


def test_preparation_by_a_chain_is_paid_once(kind, tmp_path):
    frontier = measured(kind)
    ledger = ReuseLedger(tmp_path / "reuse.db")
    router = kind.routed(frontier, kind.chains(), target_f1=0.9, ledger=ledger)
    kind.log.clear()
    first, second, single = reports(kind, router)
    for report in (first, second, single):
        assert report["label"] == "notes"
    assert not first["sunk"]
    assert second["sunk"]
    assert single["sunk"]
    paid = first["settlement"]
    expected = paid["expected"]["stage1"]
    assert paid["actual"]["stage1"] == pytest.approx(expected, rel=0.05)
    assert second["settlement"]["actual"]["stage1"] == 0
    assert paid["ratio"] == pytest.approx(1.0, rel=0.2)
    assert summaries(kind) == 1


def reports(kind, router):
    """Return the reports of three queries: two of many, and one alone."""
    told = []
    for reuse in (40, 40, 1):
        _, report = kind.ask(router, reuse)
        told.append(report)
    return told


@pytest.mark.parametrize("metric", ["bleu", 3, lambda prediction, answers: "good"])
def test_an_invalid_metric_or_score_is_refused(kind, metric):
    with pytest.raises(ValueError, match="metric"):
        calibrate(questions(), kind.chains(), metric=metric)


def test_an_invalid_strategy_is_refused_with_advice():
    chain = RunnableLambda(str)
    with pytest.raises(ConfigurationError, match="RoutedChain"):
        calibrate(questions(), [chain, chain])


def test_a_plain_chain_of_a_point_with_a_stage_one_has_prepared_when_it_has_answered(tmp_path):
    kind = LangChain()
    frontier = measured(kind)
    llm = Chat(log=kind.log)
    kept = {}

    def answer(given):
        texts = [each.page_content for each in given["documents"]]
        text = "\n".join(texts)
        if text not in kept:
            summary = llm.invoke(f"Summarise: {text}")
            kept[text] = summary.text
        return llm.invoke(f"{kept[text]} {given['question']}")

    ledger = ReuseLedger(tmp_path / "reuse.db")
    chains = {"full": RunnableLambda(answer), "notes": RunnableLambda(answer)}
    router = kind.routed(frontier, chains, target_f1=0.9, ledger=ledger)
    first, second, single = reports(kind, router)
    assert not first["sunk"]
    assert second["sunk"]
    assert single["sunk"]
    assert first["settlement"]["ratio"] == pytest.approx(1.0, rel=0.2)


def test_without_any_id_the_data_of_the_chains_is_the_context_and_the_note_says_so(tmp_path):
    kind = LangChain()
    chains = {"full": RunnableLambda(str), "notes": RunnableLambda(str)}
    ledger = str(tmp_path / "reuse.db")
    router = FrontierRouter(frontier=measured(kind), chains=chains, target_f1=0.9, ledger=ledger)
    for _ in range(5):
        router.invoke("Who?")
    assert len(router.core.ledger.spent_by_tenants()) == 1
    decision = router.decide("Who?")
    assert "all queries of these chains count as one context" in decision.note


@pytest.mark.parametrize("value", [None, True, 1.5, "\ud800"], ids=repr)
def test_parts_of_another_kind_are_refused_and_no_query_is_counted(value):
    chains = LlamaIndex().chains()
    frontier = measured(LlamaIndex())
    ledger = ReuseLedger(":memory:")
    selector = FrontierSelector(frontier, target_f1=0.9, ledger=ledger)
    router = LangChain().routed(frontier, LangChain().chains(), target_f1=0.9, ledger=ledger)
    router.context_id = "handbook"
    calls = [
        lambda: RoutedChain(value, answer=str),
        lambda: RoutedChain("notes", answer=value),
        lambda: RoutedChain("notes", answer=str, prepare=value or 1),
        lambda: RoutedChain("notes", answer=str, settings=value or 1),
        lambda: RoutedChain(value, answer=RunnableLambda(str)),
        lambda: FrontierQueryEngine(value, chains),
        lambda: FrontierQueryEngine(selector, value),
        lambda: router.invoke({"question": QUESTION, "documents": value or 1}),
    ]
    for call in calls:
        with pytest.raises(EcsPluginsError):
            call()
    assert ledger.count("handbook") == 0


def words(texts):
    return [len(text.split()) for text in texts]


def with_text(given):
    return {**given, "text": str(given["documents"])}


def scripted_router():
    """Notes from a model that streams, by chains that can be pickled."""
    llm = FakeListChatModel(responses=["Hester Vane"])
    ask = ChatPromptTemplate.from_template
    summarise = RunnableLambda(with_text) | ask("Summarise: {text}") | llm
    from_notes = ask("{prepared} {question}") | llm
    notes = RoutedChain("notes", prepare=summarise, answer=from_notes, count_tokens=words)
    full = RoutedChain("full", answer=from_notes)
    points = [StrategyPoint("notes", {}, 0.9, 60, 9), StrategyPoint("full", {}, 0.9, 0, 900)]
    return FrontierRouter(
        frontier=EfficiencyFrontier(points),
        chains=[notes, full],
        documents=[Document(text) for text in TEXTS],
        target_f1=0.8,
    )


def checked(chunks):
    """Check that a stream has pieces and that its last chunk has both costs."""
    assert len(chunks) > 2
    assert "".join(chunk.content for chunk in chunks) == "Hester Vane"
    actual = chunks[-1].response_metadata["frontier"]["settlement"]["actual"]
    assert actual["stage1"] > 100
    assert actual["stage2"] == 9


def test_a_chain_with_a_stage_1_streams_its_answer():
    checked(list(scripted_router().stream({"question": QUESTION, "reuse": 40})))


async def test_it_streams_and_answers_off_the_event_loop():
    router = scripted_router()
    chunks = [chunk async for chunk in router.astream({"question": QUESTION, "reuse": 40})]
    checked(chunks)
    answer = await router.ainvoke({"question": QUESTION, "reuse": 40})
    settlement = answer.response_metadata["frontier"]["settlement"]
    assert settlement["actual"] == {"stage1": 0.0, "stage2": 9.0}


def test_a_router_with_chains_can_be_pickled():
    router = pickle.loads(pickle.dumps(scripted_router()))
    answer = router.invoke({"question": QUESTION, "reuse": 40})
    assert answer.text == "Hester Vane"


def fails(_):
    raise RuntimeError("the provider is down")


def test_a_chain_may_be_the_fallback_and_is_booked_as_itself():
    kind = LangChain()
    frontier = measured(kind)
    full, _ = kind.chains()
    broken = RoutedChain("notes", answer=RunnableLambda(fails))
    ledger = ReuseLedger(":memory:")
    router = kind.routed(
        frontier, [full, broken], fallback=full, target_f1=0.9, ledger=ledger, reuse=40
    )
    assert router.invoke(QUESTION).text == "Hester Vane"
    (spend,) = ledger.spent_by_tenants()
    assert (spend.strategy, spend.queries, spend.unknown) == ("full", 1, 0)


def test_a_fallback_whose_calls_nobody_saw_has_unknown_tokens():
    frontier = measured(LangChain())
    broken = [RoutedChain(name, answer=RunnableLambda(fails)) for name in ("full", "notes")]
    ledger = ReuseLedger(":memory:")
    router = FrontierRouter(
        frontier=frontier,
        chains=broken,
        fallback=RunnableLambda(lambda _: "Hester Vane"),
        target_f1=0.9,
        ledger=ledger,
    )
    assert router.invoke({"question": QUESTION, "documents": []}) == "Hester Vane"
    (spend,) = ledger.spent_by_tenants()
    assert (spend.strategy, spend.unknown) == ("fallback", 1)


def test_a_chain_that_finds_its_documents_by_itself_needs_none():
    made = []

    def prepare(given):
        made.append(given["documents"])
        return "notes"

    notes = RoutedChain(
        "notes", prepare=RunnableLambda(prepare), answer=RunnableLambda(lambda x: x["prepared"])
    )
    full = RoutedChain("full", answer=RunnableLambda(str))
    points = [StrategyPoint("notes", {}, 0.9, 60, 9), StrategyPoint("full", {}, 0.9, 0, 900)]
    frontier = EfficiencyFrontier(points)
    router = FrontierRouter(frontier=frontier, chains=[notes, full], target_f1=0.8, reuse=40)
    assert [router.invoke(QUESTION) for _ in range(2)] == ["notes", "notes"]
    assert made == [[]]
