"""What the routers of both frameworks do alike: choose, build, count, fall back, refuse."""

import asyncio
import contextlib
import pickle
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.load import dumps, loads
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import ConfigurableField, RunnableLambda, RunnableSequence
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.types import CompletionResponse, LLMMetadata
from llama_index.core.llms import ChatMessage, CustomLLM, MockLLM
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.query_engine import CustomQueryEngine, RouterQueryEngine
from llama_index.core.retrievers import RouterRetriever
from llama_index.core.schema import Document as LlamaDocument
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.tools import QueryEngineTool, RetrieverTool
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from pydantic import Field

from ecs_plugins.errors import ConfigurationError, InvalidInputError, StorageError
from ecs_plugins.frontier import EfficiencyFrontier, ReuseLedger, StrategyPoint, as_answer_model
from ecs_plugins.frontier.cost import Provenance
from ecs_plugins.frontier.decision import UnreachableTargetError
from ecs_plugins.frontier.prices import ModelPrice, PriceVector
from ecs_plugins.integrations import tracing
from ecs_plugins.langchain import FrontierRouter
from ecs_plugins.langchain.context import FrontierContext
from ecs_plugins.llama_index import FrontierQuery, FrontierQueryEngine, FrontierSelector
from tests.unit.frontier.conftest import sample_measurements

QUESTION = "Who built the mill?"
TEXTS = (
    ("The mill", "Hester Vane built the mill in 1764."),
    ("The wheel", "The wheel has 32 blades of oak."),
)


def point(strategy, f1, stage1, stage2, **config):
    return StrategyPoint(strategy, config, f1, stage1, stage2)


# At F1 >= 0.7, compression pays from N = 1500 / (600 - 100) = 3 on; bm25 misses the target.
def points():
    return [
        point("full_context", 0.8, 0, 600),
        point("memory_compression", 0.75, 1500, 100, ratio=0.5),
        point("bm25", 0.5, 0, 50, depth=1),
    ]


def words(texts):
    return [len(text.split()) for text in texts]


NAMES = ("full_context", "memory_compression", "bm25")
USAGE = {"answer_input": 70, "answer_output": 3}


def reply_to(model, prompt: str) -> str:
    model.prompts.append(prompt)
    if model.fails:
        raise RuntimeError("the provider is down")
    return "notes of the mill" if "Notes:" in prompt else "Hester Vane did"


def first_answer_fails(model, prompt):
    if "Notes:" not in prompt and not model.prompts:
        model.prompts.append(prompt)
        raise RuntimeError("the provider is down")
    return "notes of the mill"


@dataclass
class Asked:
    text: str
    report: dict[str, Any]

    @property
    def settlement(self) -> dict[str, Any]:
        return self.report["settlement"]


class Chat(BaseChatModel):
    fails: bool = False
    reports: bool = True
    cached: int = 0
    prompts: list[str] = Field(default_factory=list)

    @property
    def _llm_type(self):
        return "chat"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        text = reply_to(self, messages[-1].text)
        usage = {"input_tokens": 70, "output_tokens": 3, "total_tokens": 73}
        usage["input_token_details"] = {"cache_read": self.cached}
        message = AIMessage(text, usage_metadata=usage if self.reports else None)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        (reply,) = self._generate(messages).generations
        first, *rest = reply.text.split(" ")
        usage = reply.message.usage_metadata
        yield ChatGenerationChunk(message=AIMessageChunk(content=first, usage_metadata=usage))
        for word in rest:
            yield ChatGenerationChunk(message=AIMessageChunk(content=f" {word}"))


class LangChain:
    model = Chat

    def named(self, frontier, names=NAMES, **settings):
        """A router whose chains answer with the name of their strategy."""
        chains = {name: RunnableLambda(lambda _, name=name: AIMessage(name)) for name in names}
        return FrontierRouter(frontier=frontier, chains=chains, **settings)

    def routed(self, frontier, **settings):
        found = settings.pop("found", None)
        if found is not None:
            settings["retriever"] = RunnableLambda(lambda _: [Document(found)])
        elif "documents" not in settings:
            settings["documents"] = [
                Document(text, metadata={"title": title}) for title, text in TEXTS
            ]
        settings = {"llm": Chat(), "count_tokens": words, "target_f1": 0.7, **settings}
        return FrontierRouter.from_frontier(frontier, **settings)

    def ask(self, router, **request):
        return self.asked(router.invoke({"question": QUESTION, **request}))

    async def aask(self, router, **request):
        return self.asked(await router.ainvoke({"question": QUESTION, **request}))

    def asked(self, message):
        return Asked(message.text, message.response_metadata["frontier"])

    def decide(self, router, **request):
        return router.decide({"question": QUESTION, **request})


class Completing(CustomLLM):
    fails: bool = False
    reports: bool = True
    cached: int = 0
    prompts: list[str] = Field(default_factory=list)

    @property
    def metadata(self):
        return LLMMetadata(model_name="reporting")

    @llm_completion_callback()
    def complete(self, prompt, formatted=False, **kwargs):
        text = reply_to(self, prompt)
        usage = {"prompt_tokens": 70, "completion_tokens": 3} if self.reports else {}
        usage["prompt_tokens_details"] = {"cached_tokens": self.cached}
        return CompletionResponse(text=text, additional_kwargs=usage)

    @llm_completion_callback()
    def stream_complete(self, prompt, formatted=False, **kwargs):
        raise NotImplementedError


class Named(CustomQueryEngine):
    """Answers with its name."""

    name: str

    def custom_query(self, query_str):
        return self.name


class Found(BaseRetriever):
    def __init__(self, *texts):
        super().__init__()
        self.texts = texts

    def _retrieve(self, query_bundle):
        return [NodeWithScore(node=TextNode(id_=text, text=text)) for text in self.texts]


class LlamaIndex:
    model = Completing

    def named(self, frontier, names=NAMES, **settings):
        engines = {name: Named(name=name) for name in names}
        return FrontierQueryEngine(FrontierSelector(frontier, **settings), engines)

    def routed(self, frontier, **settings):
        found = settings.pop("found", None)
        if found is not None:
            settings["retriever"] = Found(found)
        elif "nodes" not in settings:
            settings["nodes"] = [
                LlamaDocument(text=text, metadata={"title": title}) for title, text in TEXTS
            ]
        settings = {"llm": Completing(), "count_tokens": words, "target_f1": 0.7, **settings}
        return FrontierQueryEngine.from_frontier(frontier, **settings)

    def ask(self, router, **request):
        return self.asked(router.query(FrontierQuery(QUESTION, **request)))

    async def aask(self, router, **request):
        return self.asked(await router.aquery(FrontierQuery(QUESTION, **request)))

    def asked(self, response):
        return Asked(str(response), response.metadata["frontier"])

    def decide(self, router, **request):
        return router.selector.decide(FrontierQuery(QUESTION, **request))


@pytest.fixture(params=[LangChain, LlamaIndex], ids=lambda kind: kind.__name__)
def kind(request):
    return request.param()


@pytest.fixture
def frontier():
    return EfficiencyFrontier(points())


@pytest.fixture
def ledger(tmp_path):
    return ReuseLedger(tmp_path / "reuse.db")


class TestChoice:
    @pytest.mark.parametrize(
        ("reuse", "expected"), [(1, NAMES[0]), (2.9, NAMES[0]), (40, NAMES[1])]
    )
    async def test_reuse_decides_wherever_it_is_given(self, kind, frontier, reuse, expected):
        assert kind.ask(kind.named(frontier, target_f1=0.7, reuse=reuse)).text == expected
        router = kind.named(frontier, target_f1=0.7, reuse=3)
        assert kind.ask(router, reuse=reuse).text == expected
        assert (await kind.aask(router, reuse=reuse)).text == expected

    @pytest.mark.parametrize("request_", [{"budget": 60}, {"weight": 0.0}])
    def test_an_objective_of_the_call_replaces_that_of_the_router(self, kind, frontier, request_):
        assert kind.ask(kind.named(frontier, target_f1=0.7), **request_).text == "bm25"

    def test_the_ledger_gives_n_and_counts_each_query_once(self, kind, frontier, ledger):
        ledger.record("handbook", 500)
        router = kind.named(frontier, target_f1=0.7, ledger=ledger)
        assert kind.ask(router, context_id="handbook").text == "memory_compression"
        decision = kind.decide(router, context_id="handbook")
        assert decision.strategy == "memory_compression"
        assert decision.why_not()
        assert ledger.count("handbook") == 501

    def test_a_policy_rents_before_it_buys_when_n_is_unknown(self, kind, frontier, tmp_path):
        router = kind.named(
            frontier, target_f1=0.7, policy="deterministic", ledger=str(tmp_path / "reuse.db")
        )
        chosen = [kind.ask(router, context_id="c").text for _ in range(4)]
        assert (chosen[0], chosen[-1]) == ("full_context", "memory_compression")

    def test_what_is_prepared_is_noted_and_sunk_also_in_a_ledger_of_another_store(
        self, kind, frontier, ledger
    ):
        class Elsewhere:
            __hash__ = None  # as a dataclass has none

            def __getattr__(self, name):
                return getattr(ledger, name)

        router = kind.routed(frontier, ledger=Elsewhere())
        assert kind.ask(router, reuse=40).report["strategy"] == NAMES[1]
        # At N = 1 compression would not pay, if it were not there already.
        report = kind.ask(router, reuse=1).report
        assert (report["strategy"], report["sunk"], len(ledger)) == (NAMES[1], True, 1)
        ((queries, _, _),) = ledger.observed("cost").values()
        assert queries == 2

    def test_cautious_and_in_time_are_settings_and_scores_are_learned_from(self, kind, ledger):
        rows, _ = sample_measurements(questions=60)
        measured = EfficiencyFrontier.from_measurements(rows)
        memory = measured.get("memory", ratio=0.25)
        target = (memory.f1 + measured.f1_interval(memory).low) / 2
        known = {"reuse": 100, "target_f1": target, "ledger": ledger}
        known["names"] = ("full", "tfidf", "memory")
        router = kind.named(measured, cautious=True, **known)
        assert kind.ask(router).text == "full"
        report = kind.ask(router, target_f1=0.5).report
        core = getattr(router, "selector", router).core
        for _ in range(200):
            core.observe(report, 1.0)
        assert kind.ask(router).text == "memory"
        assert "F1 1.000" in core.drift()[0]
        with pytest.raises(UnreachableTargetError, match="at p95"):
            kind.ask(kind.named(measured, max_seconds=0.1, **known))

    @pytest.mark.parametrize(
        ("newer", "provenance", "said"),
        [
            ([*points()[:2], point("dense", 0.9, 0, 70)], Provenance(), "nothing runs"),
            (points()[1:], Provenance(models={"answer": "other"}), "answer: other"),
            (None, Provenance(), "not valid JSON"),
        ],
    )
    def test_an_artefact_that_was_measured_again_is_taken_if_it_goes_with_what_runs(
        self, kind, frontier, tmp_path, caplog, newer, provenance, said
    ):
        path = tmp_path / "f.json"
        router = kind.named(str(frontier.save(path)), target_f1=0.7)
        assert kind.ask(router).text == "full_context"
        if newer is None:
            path.write_text("{")
        else:
            EfficiencyFrontier(newer, provenance=provenance).save(path)
        for _ in range(2):
            assert kind.ask(router).text == "full_context"
        assert len(caplog.records) == 1
        assert said in caplog.text
        EfficiencyFrontier([*points()[:2], point("bm25", 0.9, 0, 70, depth=9)]).save(path)
        assert kind.ask(router).text == "bm25"


class TestCounting:
    def test_the_prompt_of_the_calibration_is_filled_also_by_a_retriever(self, kind, frontier):
        llm = kind.model()
        answer = kind.ask(kind.routed(frontier, llm=llm, target_f1=None, budget=60))
        assert answer.text == "Hester Vane did"
        assert "Context:\nThe mill: Hester Vane built the mill in 1764." in llm.prompts[0]
        assert "32 blades" not in llm.prompts[0]
        assert llm.prompts[0].endswith(f"Question: {QUESTION}\nAnswer:")
        kind.ask(kind.routed(frontier, llm=llm, found="Somebody built it."))
        assert "Somebody built it." in llm.prompts[1]

    async def test_reported_usage_stands_beside_the_forecast(self, kind, frontier):
        router = kind.routed(frontier)
        for answer in (kind.ask(router), await kind.aask(router)):
            assert answer.report["label"] == "full_context"
            assert answer.settlement["expected"] == {"stage1": 0.0, "stage2": 600}
            assert answer.settlement["actual"] == {"stage1": 0.0, "stage2": 73.0}
            assert answer.settlement["ratio"] == pytest.approx(73 / 600)
            assert answer.settlement["tokens"] == {"query": USAGE}

    def test_what_a_prompt_cache_served_is_booked_at_its_price(self, kind, frontier):
        price = ModelPrice(input=1.0, output=1.0, cached_input=0.1)
        priced = EfficiencyFrontier(frontier.points, prices=PriceVector(unit="USD", answer=price))
        settlement = kind.ask(kind.routed(priced, llm=kind.model(cached=60))).settlement
        assert settlement["actual"]["stage2"] == pytest.approx(10 + 60 * 0.1 + 3)
        assert settlement["cache"] == {"read": 60, "written": 0, "written_1h": 0}

    async def test_one_of_concurrent_queries_alone_pays_for_stage_one(self, kind, frontier):
        router = kind.routed(frontier, reuse=40)
        answers = await asyncio.gather(*(kind.aask(router) for _ in range(4)))
        *others, one = sorted((each.settlement["tokens"] for each in answers), key=len)
        assert one == {"prepare": {"compress_input": 70, "compress_output": 3}, "query": USAGE}
        assert others == [{"query": USAGE}] * 3
        assert kind.ask(router).settlement["tokens"] == {"query": USAGE}

    def test_a_silent_model_is_counted_by_the_given_counter(self, kind, frontier):
        answer = kind.ask(kind.routed(frontier, llm=kind.model(reports=False)))
        assert answer.settlement["tokens"]["query"]["answer_output"] == 3
        assert answer.settlement["tokens"]["query"]["answer_input"] > 30

    def test_a_ledger_that_cannot_be_written_or_opened_does_not_cost_the_answer(
        self, kind, frontier, ledger, tmp_path, monkeypatch
    ):
        def full(*_, **__):
            raise StorageError("the disk is full")

        monkeypatch.setattr(ReuseLedger, "book", full)
        answer = kind.ask(kind.routed(frontier, reuse=40, ledger=ledger))
        assert answer.text == "Hester Vane did"
        assert answer.settlement["ledger_error"] == "the disk is full"
        (tmp_path / "file").write_text("in the way")
        blocked = str(tmp_path / "file" / "reuse.db")
        router = kind.routed(frontier, ledger=blocked, cache_dir=str(tmp_path))
        answer = kind.ask(router, context_id="c")
        assert answer.text == "Hester Vane did"
        assert "the ledger failed: cannot open" in answer.report["note"]


class TestTrace:
    def test_decision_and_cost_are_attributes_of_the_span_of_opentelemetry(
        self, kind, frontier, monkeypatch
    ):
        set_on_span = {}
        span = SimpleNamespace(set_attribute=set_on_span.__setitem__)
        trace = SimpleNamespace(get_current_span=lambda: span)
        monkeypatch.setattr(tracing, "_opentelemetry", lambda: trace)
        kind.ask(kind.routed(frontier))
        assert set_on_span["ecs_plugins.frontier.label"] == "full_context"
        assert set_on_span["ecs_plugins.frontier.settlement.actual.stage2"] == 73

    def test_cost_forecast_and_seconds_are_metrics_of_opentelemetry(
        self, kind, frontier, monkeypatch
    ):
        reader = InMemoryMetricReader()
        monkeypatch.setattr(metrics, "get_meter", MeterProvider([reader]).get_meter)
        tracing._histogram.cache_clear()
        router = kind.routed(frontier)
        for _ in range(2):
            kind.ask(router)
        tracing._histogram.cache_clear()
        (scope,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
        found = {metric.name: metric.data.data_points[0] for metric in scope.metrics}
        sums = {name.rpartition(".")[2]: point.sum for name, point in found.items()}
        assert (sums["expected"], sums["actual"]) == (1200, 146)
        assert sums["seconds"] > 0
        assert {each.count for each in found.values()} == {2}
        assert all(each.attributes == {"label": "full_context"} for each in found.values())


class TestFallback:
    async def test_it_answers_when_the_choice_fails_and_says_why(self, kind, frontier):
        llm = kind.model(fails=True)
        router = kind.routed(frontier, llm=llm)
        router.fallback = kind.named(frontier, target_f1=0.7)
        for answer in (kind.ask(router), await kind.aask(router)):
            assert answer.text == "full_context"
            assert answer.settlement["fallback_after"] == "RuntimeError: the provider is down"

    def test_without_one_the_error_is_raised_and_what_was_prepared_is_noted(
        self, kind, frontier, ledger, monkeypatch
    ):
        router = kind.routed(frontier, ledger=ledger)
        monkeypatch.setitem(globals(), "reply_to", first_answer_fails)
        with pytest.raises(RuntimeError, match="provider"):
            kind.ask(router, context_id="c", reuse=40)
        assert ledger.prepared("c")

    def test_what_the_fallback_prepared_is_noted_as_its_own(
        self, kind, frontier, ledger, monkeypatch
    ):
        router = kind.routed(frontier, ledger=ledger, fallback="memory_compression(ratio=0.5)")
        monkeypatch.setitem(globals(), "reply_to", first_answer_fails)
        settlement = kind.ask(router, context_id="c", reuse=1).settlement
        assert "fallback_after" in settlement
        assert {strategy for strategy, _ in ledger.prepared("c")} == {"memory_compression"}

    def test_what_is_found_in_a_cache_is_noted(self, kind, frontier, ledger, tmp_path):
        cached = {"cache_dir": str(tmp_path / "notes"), "ledger": ledger}
        kind.ask(kind.routed(frontier, **cached), context_id="c", reuse=40)
        ledger.forget("c")
        kind.ask(kind.routed(frontier, **cached), context_id="c", reuse=40)
        assert list(ledger.prepared("c").values()) == [0.0]


class TestBadInput:
    @pytest.mark.parametrize("reuse", [0, -1, 0.5, float("nan"), "ten", True])
    def test_an_impossible_n_is_refused(self, kind, frontier, reuse):
        with pytest.raises(InvalidInputError):
            kind.ask(kind.named(frontier, target_f1=0.7), reuse=reuse)

    def test_no_objective_and_two_objectives_are_refused(self, kind, frontier):
        with pytest.raises(ConfigurationError, match="exactly one objective"):
            kind.ask(kind.named(frontier))
        with pytest.raises(InvalidInputError, match="at most one"):
            kind.ask(kind.named(frontier), target_f1=0.7, weight=0.9)
        with pytest.raises(ValueError, match="at most one"):
            kind.named(frontier, target_f1=0.7, budget=100)

    @pytest.mark.parametrize("as_path", [True, False])
    def test_a_strategy_that_was_not_measured_is_refused(self, kind, frontier, tmp_path, as_path):
        source = str(frontier.save(tmp_path / "f.json")) if as_path else frontier
        with pytest.raises(ValueError, match="never chooses bm26"):
            kind.ask(kind.named(source, (*NAMES, "bm26"), target_f1=0.7))
        with pytest.raises(ValueError, match="is empty"):
            kind.named(source, (), target_f1=0.7)

    def test_a_choice_that_nothing_runs_is_refused_by_name(self, kind, frontier):
        with pytest.raises(ConfigurationError, match=r"chose memory_compression\(ratio=0.5\)"):
            kind.ask(kind.named(frontier, ("full_context",), target_f1=0.7, reuse=40))

    def test_a_missing_or_damaged_artefact_is_refused(self, kind, tmp_path):
        path = tmp_path / "frontier.json"
        with pytest.raises(StorageError, match="ecs-plugins calibrate"):
            kind.routed(str(path))
        path.write_text("{}")
        with pytest.raises(InvalidInputError):
            kind.routed(str(path))
        with pytest.raises(ValueError, match="EfficiencyFrontier"):
            kind.named(3, target_f1=0.7)

    def test_a_frontier_of_another_model_is_refused(self, kind):
        frontier = EfficiencyFrontier(points(), provenance=Provenance(models={"answer": "big"}))
        with pytest.raises(ConfigurationError, match="measured with 'big'"):
            kind.routed(frontier)
        assert kind.routed(frontier, same_model=False)

    @pytest.mark.parametrize(
        ("settings", "said"),
        [
            ({"ledger": "reuse.db"}, "cache_dir"),
            ({"count_tokens": None}, "count_tokens"),
            ({"prompt": "no places"}, "context"),
            ({"fallback": "nothing"}, "nothing"),
            ({"policy": "hope"}, "policy"),
            ({"reuse": "5"}, "reuse"),
            ({"target_f2": 0.7}, "did you mean target_f1"),
        ],
    )
    def test_settings_that_do_not_fit_are_refused_by_name(self, kind, frontier, settings, said):
        with pytest.raises(ConfigurationError, match=said):
            kind.routed(frontier, **settings)


class TestCopies:
    def test_a_pickle_routes_and_settles_alike(self, kind, frontier, tmp_path):
        router = kind.routed(frontier, cache_dir=str(tmp_path / "notes"), fallback="full_context")
        copy = pickle.loads(pickle.dumps(router))
        for reuse in (1, 40):
            ours, theirs = kind.ask(router, reuse=reuse), kind.ask(copy, reuse=reuse)
            assert theirs.text == ours.text
            assert theirs.report["label"] == ours.report["label"]


def test_a_model_of_the_framework_answers_for_calibration(kind):
    model = as_answer_model(kind.model())
    assert model.name == {Chat: "Chat", Completing: "reporting"}[kind.model]
    (reply,) = model.complete(["Who?"], max_new_tokens=8)
    assert (reply.text, reply.input_tokens, reply.output_tokens) == ("Hester Vane did", 70, 3)


# What only LangChain has: configuration, batches, streams, traces, JSON.


class SerialisableChat(Chat):
    """As a partner's chat model that LangChain writes as JSON; counts its tokens."""

    @classmethod
    def is_lc_serializable(cls):
        return True

    def count_tokens(self, texts):
        return words(texts)


@pytest.fixture
def named(frontier):
    return LangChain().named(frontier, target_f1=0.7)


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_what_was_prepared_is_noted_when_a_stream_is_closed_early(
    frontier, ledger, asynchronous
):
    router = LangChain().routed(frontier, ledger=ledger)
    request = {"question": QUESTION, "context_id": "c", "reuse": 40}
    if asynchronous:
        chunks = router.astream(request)
        await anext(chunks)
        await chunks.aclose()
    else:
        chunks = router.stream(request)
        next(chunks)
        chunks.close()
    assert ledger.prepared("c")
    assert ledger.observed("cost") == {}  # of what nobody waited for


async def test_batches_route_every_input_by_itself(named):
    inputs = [{"reuse": 1}, {"reuse": 40}]
    expected = ["full_context", "memory_compression"]
    assert [message.text for message in named.batch(inputs)] == expected
    assert [message.text for message in await named.abatch(inputs)] == expected
    assert [chunk.text async for chunk in named.astream(inputs[1])] == expected[1:]


def test_configurable_fields_rebuild_the_router_and_the_input_overrides_them(named):
    config = {"configurable": {"reuse": 40}}
    assert named.invoke("q", config).text == "memory_compression"
    assert named.invoke({"question": "q", "reuse": 1}, config).text == "full_context"
    router = named.configurable_fields(
        reuse=ConfigurableField(id="queries", name="N"), weight=ConfigurableField(id="w")
    )
    assert {spec.id for spec in router.config_specs} == {"queries", "w"}
    assert router.invoke("q").text == "full_context"
    assert router.with_config(configurable={"queries": 40}).invoke("q").text == NAMES[1]


async def test_attempts_of_with_retry_are_one_query(frontier, ledger, monkeypatch):
    monkeypatch.setitem(globals(), "reply_to", first_answer_fails)
    for name, ask in (("a", "invoke"), ("b", "ainvoke")):
        router = LangChain().routed(frontier, ledger=ledger, context_id=name, reuse=1)
        asked = getattr(router.with_retry(wait_exponential_jitter=False), ask)(QUESTION)
        assert (await asked if ask == "ainvoke" else asked).text
        assert ledger.count(name) == 1


def test_of_documents_in_its_input_a_stream_yields_the_words_and_at_last_the_numbers(frontier):
    router = LangChain().routed(frontier, documents=None)
    documents = [Document(text) for _, text in TEXTS]
    chunks = list(router.stream({"question": QUESTION, "documents": documents}))
    assert [chunk.text for chunk in chunks if chunk.text] == ["Hester", " Vane", " did"]
    report = chunks[-1].response_metadata["frontier"]
    assert report["label"] == "full_context"
    assert report["settlement"]["actual"] == {"stage1": 0.0, "stage2": 73.0}


async def test_astream_events_carry_chunks_tag_decision_and_settlement(frontier):
    router = LangChain().routed(frontier, reuse=40)
    events = [event async for event in router.astream_events(QUESTION, version="v2")]
    kinds = {event["event"] for event in events}
    assert {"on_chat_model_stream", "on_chain_stream"} <= kinds
    custom = [event["name"] for event in events if event["event"] == "on_custom_event"]
    assert custom[0] == "frontier_decision"
    assert custom[-1] == "frontier_settlement"
    root, child = [event for event in events if event["event"] == "on_chain_start"][:2]
    assert root["name"] == "FrontierRouter"
    assert "strategy:memory_compression(ratio=0.5)" in child["tags"]
    decision = child["metadata"]["frontier"]
    assert (decision["reuse"], decision["f1"]) == (40, 0.75)


def test_a_refused_call_ends_its_run_with_the_error(frontier):
    seen = []

    class Listener(BaseCallbackHandler):
        def on_chain_error(self, error, **kwargs):
            seen.append(error)

    with pytest.raises(UnreachableTargetError):
        LangChain().named(frontier, target_f1=0.99).invoke("q", {"callbacks": [Listener()]})
    assert isinstance(seen[0], UnreachableTargetError)


async def test_a_fallback_takes_over_a_stream_that_has_not_begun_and_no_other(named):
    def broken(_):
        yield "half"
        raise RuntimeError("cut off")

    named.fallback = Chat()
    named.chains = {"full_context": Chat(fails=True)}
    assert "".join(chunk.text for chunk in named.stream("q")) == "Hester Vane did"
    assert "".join([chunk.text async for chunk in named.astream("q")]) == "Hester Vane did"
    named.chains = {"full_context": RunnableLambda(broken)}
    chunks = named.stream("q")
    assert next(chunks) == "half"
    with pytest.raises(RuntimeError, match="cut off"):
        next(chunks)


@pytest.mark.parametrize(
    "fields",
    [
        {"chains": {"bm25": "not a chain"}},
        {"fallback": "full_context"},
        {"documents": [Document("x")], "retriever": RunnableLambda(lambda q: [])},
        {"ledger": 3},
    ],
)
def test_fields_that_do_not_fit_are_refused(frontier, fields):
    fields = {"chains": {"bm25": RunnableLambda(str)}, "target_f1": 0.7, **fields}
    with pytest.raises(ValueError, match=r".+"):
        FrontierRouter(frontier=frontier, **fields)


@pytest.mark.parametrize("as_path", [True, False])
def test_its_json_routes_alike(frontier, tmp_path, as_path):
    source = str(frontier.save(tmp_path / "f.json")) if as_path else frontier
    options = {"count_tokens": None, "reuse": 40, "policy": "deterministic"}
    router = LangChain().routed(source, llm=SerialisableChat(), **options)
    places = ["ecs_plugins", "langchain_core", __name__]
    known = [FrontierRouter, FrontierContext, SerialisableChat]
    known += [RunnableSequence, PromptTemplate, Document]
    copy = loads(dumps(router), allowed_objects=known, valid_namespaces=places)
    assert copy.decide(QUESTION) == router.decide(QUESTION)
    assert list(copy.chains) == list(router.chains)
    assert copy.policy == router.policy


# What only LlamaIndex has: its own routers, and events.


LABELS = ("full_context", "memory_compression(ratio=0.5)", "bm25")


def router(selector):
    tools = [
        QueryEngineTool.from_defaults(Named(name=name), name=name, description="")
        for name in LABELS
    ]
    return RouterQueryEngine(selector=selector, query_engine_tools=tools, llm=MockLLM())


@pytest.mark.parametrize(("reuse", "expected"), [(1, LABELS[0]), (40, LABELS[1])])
async def test_n_travels_with_the_query_through_the_router_of_llama_index(
    frontier, reuse, expected
):
    engine = router(FrontierSelector(frontier, target_f1=0.7))
    response = engine.query(FrontierQuery(QUESTION, reuse=reuse))
    assert str(response) == expected
    reason = response.metadata["selector_result"].reason
    assert reason.startswith(f"{expected}: the cheapest with F1 >= 0.700; measured F1 0.")
    assert str(await engine.aquery(FrontierQuery(QUESTION, reuse=reuse))) == expected


def test_it_selects_for_the_router_retriever(frontier):
    tools = [RetrieverTool.from_defaults(Found(n), name=n, description="") for n in LABELS]
    retriever = RouterRetriever(
        selector=FrontierSelector(frontier, target_f1=0.7), retriever_tools=tools, llm=MockLLM()
    )
    (node,) = retriever.retrieve(FrontierQuery(QUESTION, reuse=40))
    assert node.node.node_id == LABELS[1]


@pytest.mark.parametrize("method", ["complete", "chat"])
def test_a_call_that_the_engine_tries_again_is_counted_once_and_none_outside_a_query(
    frontier, monkeypatch, method
):
    # The chat of the model calls its complete, as in most integrations.
    class Retrying(Named):
        def custom_query(self, query_str):
            model = Completing()
            asked = [ChatMessage(query_str)] if method == "chat" else query_str
            for _ in range(2):
                with contextlib.suppress(RuntimeError):
                    getattr(model, method)(asked)
            return self.name

    monkeypatch.setitem(globals(), "reply_to", first_answer_fails)
    selector = FrontierSelector(frontier, target_f1=0.7)
    engine = FrontierQueryEngine(selector, {"full_context": Retrying(name="full")})
    for _ in range(2):
        settlement = engine.query(QUESTION).metadata["frontier"]["settlement"]
        assert settlement["tokens"] == {"query": USAGE}
        Completing().complete("Notes: something else")


async def test_what_a_cancelled_query_cost_is_not_learned_from(frontier, ledger, monkeypatch):
    asked = asyncio.Event()

    async def hang(self, prompt, **_):
        asked.set()
        await asyncio.sleep(60)

    monkeypatch.setattr(Completing, "acomplete", hang)
    engine = LlamaIndex().routed(frontier, ledger=ledger, fallback="bm25(depth=1)")
    task = asyncio.create_task(engine.aquery(FrontierQuery(QUESTION, context_id="c")))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ledger.observed("cost") == {}


def test_decision_and_cost_are_events(frontier, dispatched):
    response = LlamaIndex().routed(frontier).query(QUESTION)
    names = [event.class_name() for event in dispatched]
    mine = [name for name in names if name.startswith("Frontier")]
    assert mine == ["FrontierDecisionEvent", "FrontierSettlementEvent"]
    assert "Hester Vane built" in response.source_nodes[0].node.text


@pytest.mark.parametrize("fields", [{"nodes": None}, {"retriever": Found("x")}])
def test_nodes_or_a_retriever_are_wanted(frontier, fields):
    with pytest.raises(ConfigurationError, match="nodes or a retriever"):
        LlamaIndex().routed(frontier, **fields)
