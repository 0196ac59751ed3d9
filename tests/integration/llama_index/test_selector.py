"""The selector and the query engine inside LlamaIndex."""

import pickle
from typing import Any

import pytest
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.types import CompletionResponse, LLMMetadata
from llama_index.core.base.response.schema import Response
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.llms import ChatMessage, CustomLLM, MockLLM
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.query_engine import RouterQueryEngine
from llama_index.core.retrievers import RouterRetriever
from llama_index.core.schema import Document, NodeWithScore, QueryBundle, TextNode
from llama_index.core.tools import QueryEngineTool, RetrieverTool

from ecs_plugins.errors import ConfigurationError, InvalidInputError, StorageError
from ecs_plugins.frontier import (
    EfficiencyFrontier,
    Provenance,
    ReuseLedger,
    UnreachableTargetError,
    as_answer_model,
    save,
)
from ecs_plugins.llama_index import FrontierQuery, FrontierQueryEngine, FrontierSelector
from tests.integration.router_setup import QUESTION, points, words

NODES = [
    Document(text="Hester Vane built the mill in 1764.", metadata={"title": "The mill"}),
    Document(text="The wheel has 32 blades of oak.", metadata={"title": "The wheel"}),
]


@pytest.fixture
def frontier():
    return EfficiencyFrontier(points())


class Reporting(CustomLLM):
    """Reports its usage; its chat calls its complete, as in most integrations."""

    fails: bool = False
    reports: bool = True

    @property
    def metadata(self):
        return LLMMetadata(model_name="reporting")

    @llm_completion_callback()
    def complete(self, prompt, formatted=False, **kwargs):
        if self.fails:
            raise RuntimeError("the provider is down")
        text = "notes of the mill" if "Notes:" in prompt else "Hester Vane did"
        usage = {"prompt_tokens": 70, "completion_tokens": 3} if self.reports else {}
        return CompletionResponse(text=text, additional_kwargs=usage)

    @llm_completion_callback()
    def stream_complete(self, prompt, formatted=False, **kwargs):
        raise NotImplementedError


class Named(BaseQueryEngine):
    """Answers with its name; chats with a model first where it has one."""

    def __init__(self, name, llm=None):
        super().__init__(None)
        self.name, self.llm = name, llm

    def _get_prompt_modules(self):
        return {}

    def _query(self, query_bundle):
        if self.llm is not None:
            self.llm.chat([ChatMessage(query_bundle.query_str)])
        return Response(self.name)

    async def _aquery(self, query_bundle):
        return self._query(query_bundle)


class Found(BaseRetriever):
    def __init__(self, *texts):
        super().__init__()
        self.texts = texts

    def _retrieve(self, query_bundle):
        return [NodeWithScore(node=TextNode(id_=text, text=text)) for text in self.texts]


NAMES = ("full_context", "memory_compression(ratio=0.5)", "bm25")


def router(selector):
    tools = [
        QueryEngineTool.from_defaults(Named(name), name=name, description="") for name in NAMES
    ]
    return RouterQueryEngine(selector=selector, query_engine_tools=tools, llm=MockLLM())


class TestSelector:
    @pytest.mark.parametrize(("reuse", "expected"), [(1, NAMES[0]), (40, NAMES[1])])
    def test_n_travels_with_the_query_through_the_router_of_llama_index(
        self, frontier, reuse, expected
    ):
        engine = router(FrontierSelector(frontier, target_f1=0.7))
        assert str(engine.query(FrontierQuery(QUESTION, reuse=reuse))) == expected

    async def test_the_asynchronous_form_agrees(self, frontier):
        engine = router(FrontierSelector(frontier, target_f1=0.7))
        assert str(await engine.aquery(FrontierQuery(QUESTION, reuse=40))) == NAMES[1]

    def test_a_plain_query_takes_the_settings_of_the_selector(self, frontier):
        assert str(router(FrontierSelector(frontier, weight=0.0)).query(QUESTION)) == "bm25"
        engine = router(FrontierSelector(frontier, target_f1=0.7, reuse=40))
        assert str(engine.query(QUESTION)) == NAMES[1]

    def test_the_objective_of_a_query_replaces_that_of_the_selector(self, frontier):
        engine = router(FrontierSelector(frontier, target_f1=0.7))
        assert str(engine.query(FrontierQuery(QUESTION, budget=60))) == "bm25"

    def test_the_reason_holds_the_numbers(self, frontier):
        engine = router(FrontierSelector(frontier, target_f1=0.7))
        result = engine.query(FrontierQuery(QUESTION, reuse=40)).metadata["selector_result"]
        assert result.reason == (
            "memory_compression(ratio=0.5): the cheapest with F1 >= 0.700; measured F1 0.750, "
            "138 tokens per query at N = 40 (100 tokens + 1,500 tokens / 40)"
        )

    def test_it_selects_for_the_router_retriever(self, frontier):
        tools = [RetrieverTool.from_defaults(Found(n), name=n, description="") for n in NAMES]
        retriever = RouterRetriever(
            selector=FrontierSelector(frontier, target_f1=0.7), retriever_tools=tools, llm=MockLLM()
        )
        (node,) = retriever.retrieve(FrontierQuery(QUESTION, reuse=40))
        assert node.node.node_id == NAMES[1]

    def test_the_ledger_gives_n_and_counts_each_query_once(self, frontier, tmp_path):
        ledger = ReuseLedger(tmp_path / "reuse.db")
        ledger.record("handbook", 500)
        selector = FrontierSelector(frontier, target_f1=0.7, ledger=ledger)
        assert str(router(selector).query(FrontierQuery("q", context_id="handbook"))) == NAMES[1]
        selector.decide(FrontierQuery("q", context_id="handbook"))
        assert ledger.count("handbook") == 501

    def test_a_pickle_decides_alike(self, frontier):
        selector = FrontierSelector(frontier, target_f1=0.7, policy="deterministic")
        copy = pickle.loads(pickle.dumps(selector))
        query = FrontierQuery("q", reuse=40)
        assert copy.decide(query).label == selector.decide(query).label
        assert copy.policy == selector.policy

    def test_it_has_no_prompts(self, frontier):
        assert FrontierSelector(frontier, target_f1=0.7).get_prompts() == {}


class TestQueryEngine:
    def engine(self, frontier, **fields):
        fields = {"llm": Reporting(), "nodes": NODES, "target_f1": 0.7, **fields}
        return FrontierQueryEngine.from_frontier(frontier, count_tokens=words, **fields)

    def test_reported_usage_stands_beside_the_forecast(self, frontier):
        response = self.engine(frontier).query(QUESTION)
        assert str(response) == "Hester Vane did"
        report = response.metadata["frontier"]
        assert report["label"] == "full_context"
        assert report["settlement"]["expected"] == {"stage1": 0.0, "stage2": 600}
        assert report["settlement"]["actual"] == {"stage1": 0.0, "stage2": 73.0}
        assert "Hester Vane built" in response.source_nodes[0].node.text

    def test_stage_one_is_paid_by_the_first_query_alone(self, frontier):
        engine = self.engine(frontier)
        first, second = (
            engine.query(FrontierQuery(QUESTION, reuse=40)).metadata["frontier"]["settlement"]
            for _ in range(2)
        )
        assert first["tokens"]["prepare"] == {"compress_input": 70, "compress_output": 3}
        assert "prepare" not in second["tokens"]
        assert second["tokens"]["query"] == {"answer_input": 70, "answer_output": 3}

    async def test_the_asynchronous_form_books_the_same(self, frontier):
        engine = self.engine(frontier)
        response = await engine.aquery(FrontierQuery(QUESTION, reuse=40))
        tokens = response.metadata["frontier"]["settlement"]["tokens"]
        assert tokens["query"] == {"answer_input": 70, "answer_output": 3}
        assert tokens["prepare"] == {"compress_input": 70, "compress_output": 3}

    def test_what_is_prepared_is_sunk_for_the_next_query(self, frontier, tmp_path):
        engine = self.engine(frontier, ledger=ReuseLedger(tmp_path / "reuse.db"))
        engine.query(FrontierQuery(QUESTION, reuse=40))
        report = engine.query(FrontierQuery(QUESTION, reuse=1)).metadata["frontier"]
        assert report["strategy"] == "memory_compression"
        assert report["sunk"]

    def test_a_chat_that_calls_complete_is_booked_once(self, frontier):
        engine = FrontierQueryEngine(
            FrontierSelector(frontier, target_f1=0.7),
            {"full_context": Named("full", Reporting())},
        )
        settlement = engine.query(QUESTION).metadata["frontier"]["settlement"]
        assert settlement["tokens"] == {"query": {"answer_input": 70, "answer_output": 3}}

    def test_a_silent_model_is_counted_or_left_open(self, frontier):
        llm = Reporting(reports=False)
        counted = self.engine(frontier, llm=llm).query(QUESTION).metadata["frontier"]
        assert counted["settlement"]["tokens"]["query"]["answer_output"] == 3
        engines = {"full_context": self.engine(frontier, llm=llm).engines["full_context"]}
        open_ = FrontierQueryEngine(FrontierSelector(frontier, target_f1=0.7), engines)
        settlement = open_.query(QUESTION).metadata["frontier"]["settlement"]
        assert settlement["uncounted"] == 1
        assert settlement["ratio"] is None

    def test_nothing_outside_a_query_is_booked(self, frontier):
        engine = self.engine(frontier)
        engine.query(QUESTION)
        Reporting().complete("something else")
        tokens = engine.query(QUESTION).metadata["frontier"]["settlement"]["tokens"]
        assert tokens["query"]["answer_output"] == 3

    def test_decision_and_cost_are_events(self, frontier):
        seen = []

        class Listener(BaseEventHandler):
            def handle(self, event, **kwargs: Any):
                seen.append(event.class_name())

        dispatcher = get_dispatcher()
        dispatcher.add_event_handler(Listener())
        try:
            self.engine(frontier).query(QUESTION)
        finally:
            dispatcher.event_handlers.pop()
        mine = [name for name in seen if name.startswith("Frontier")]
        assert mine == ["FrontierDecisionEvent", "FrontierSettlementEvent"]

    async def test_a_fallback_answers_when_an_engine_fails(self, frontier):
        engine = FrontierQueryEngine(
            FrontierSelector(frontier, target_f1=0.7),
            {
                "full_context": self.engine(frontier, llm=Reporting(fails=True)).engines[
                    "full_context"
                ]
            },
            fallback=Named("fallback"),
        )
        for response in (engine.query(QUESTION), await engine.aquery(QUESTION)):
            assert str(response) == "fallback"
            error = response.metadata["frontier"]["settlement"]["fallback_after"]
            assert error == "RuntimeError: the provider is down"

    def test_without_a_fallback_the_error_is_raised(self, frontier):
        with pytest.raises(RuntimeError, match="provider"):
            self.engine(frontier, llm=Reporting(fails=True)).query(QUESTION)

    def test_a_retriever_gives_what_is_asked_about(self, frontier):
        engine = self.engine(frontier, nodes=None, retriever=Found("Hester Vane built it."))
        assert "Hester Vane" in engine.query(QUESTION).source_nodes[0].node.text


class TestCopies:
    def routed(self, frontier, **settings):
        return FrontierQueryEngine.from_frontier(
            frontier, llm=Reporting(), nodes=NODES, target_f1=0.7, count_tokens=words, **settings
        )

    def test_a_pickled_engine_answers_and_settles_alike(self, frontier, tmp_path):
        engine = self.routed(frontier, cache_dir=str(tmp_path / "notes"))
        copy = pickle.loads(pickle.dumps(engine))
        for reuse in (1, 40):
            query = FrontierQuery(QUESTION, reuse=reuse)
            ours, theirs = engine.query(query), copy.query(query)
            assert theirs.response == ours.response
            assert theirs.metadata["frontier"]["label"] == ours.metadata["frontier"]["label"]

    def test_a_pickled_engine_shares_the_ledger_behind_the_path(self, frontier, tmp_path):
        ledger = str(tmp_path / "reuse.db")
        engine = self.routed(frontier, cache_dir=str(tmp_path / "notes"), ledger=ledger)
        engine.query(QUESTION)
        pickle.loads(pickle.dumps(engine)).query(QUESTION)
        with ReuseLedger(ledger) as seen:
            assert len(seen) == 1
            assert seen.count(engine.context_id) == 2

    def test_a_pickled_engine_keeps_its_fallback(self, frontier, tmp_path):
        engine = FrontierQueryEngine(
            FrontierSelector(frontier, target_f1=0.7),
            {
                "full_context": Named("full", Reporting(fails=True)),
                "memory_compression": Named("notes"),
                "bm25": Named("top"),
            },
            fallback=Named("fallback"),
        )
        copy = pickle.loads(pickle.dumps(engine))
        assert copy.query(FrontierQuery(QUESTION, reuse=1)).response == "fallback"
        assert copy.query(FrontierQuery(QUESTION, reuse=40)).response == "notes"


class TestBadInput:
    def test_a_target_above_what_was_measured_names_the_nearest(self, frontier):
        with pytest.raises(UnreachableTargetError) as caught:
            router(FrontierSelector(frontier, target_f1=0.9)).query(QUESTION)
        assert caught.value.nearest == 0.8

    @pytest.mark.parametrize("reuse", [0, -3, float("nan"), "ten"])
    def test_an_impossible_n_is_refused(self, frontier, reuse):
        with pytest.raises(InvalidInputError):
            FrontierSelector(frontier, target_f1=0.7).decide(FrontierQuery("q", reuse=reuse))

    def test_a_choice_without_a_tool_is_refused_by_name(self, frontier):
        tools = [QueryEngineTool.from_defaults(Named("x"), name="full_context", description="")]
        engine = RouterQueryEngine(
            selector=FrontierSelector(frontier, target_f1=0.7),
            query_engine_tools=tools,
            llm=MockLLM(),
        )
        with pytest.raises(ConfigurationError, match="chose memory_compression"):
            engine.query(FrontierQuery(QUESTION, reuse=40))

    def test_an_engine_for_a_strategy_that_was_not_measured_is_refused(self, frontier):
        selector = FrontierSelector(frontier, target_f1=0.7)
        with pytest.raises(ConfigurationError, match="never chooses bm26"):
            FrontierQueryEngine(selector, {"bm26": Named("x")})
        with pytest.raises(ConfigurationError, match="engines is empty"):
            FrontierQueryEngine(selector, {})

    def test_a_missing_or_wrong_artefact_is_refused(self, tmp_path):
        with pytest.raises(StorageError, match="ecs-plugins calibrate"):
            FrontierSelector(str(tmp_path / "none.json"), target_f1=0.7)
        with pytest.raises(ConfigurationError, match="EfficiencyFrontier"):
            FrontierSelector(3, target_f1=0.7)

    def test_two_objectives_none_and_an_unknown_policy_are_refused(self, frontier):
        with pytest.raises(InvalidInputError, match="at most one"):
            FrontierSelector(frontier, target_f1=0.7, weight=0.9)
        with pytest.raises(ConfigurationError, match="exactly one objective"):
            FrontierSelector(frontier).decide("q")
        with pytest.raises(ConfigurationError, match="policy"):
            FrontierSelector(frontier, target_f1=0.7, policy="hope")

    def test_a_frontier_of_another_model_is_refused(self):
        frontier = EfficiencyFrontier(points(), provenance=Provenance(models={"answer": "big"}))
        with pytest.raises(ConfigurationError, match="measured with 'big'"):
            FrontierQueryEngine.from_frontier(
                frontier, llm=Reporting(), nodes=NODES, count_tokens=words, target_f1=0.7
            )

    @pytest.mark.parametrize(
        "fields",
        [
            {"nodes": None},
            {"retriever": Found("x")},
            {"fallback": "nothing"},
            {"count_tokens": None},
            {"ledger": "reuse.db"},
            {"prompt": "no places"},
        ],
    )
    def test_arguments_that_do_not_fit_are_refused(self, frontier, fields):
        arguments = {"llm": Reporting(), "nodes": NODES, "count_tokens": words, "target_f1": 0.7}
        with pytest.raises(ConfigurationError):
            FrontierQueryEngine.from_frontier(frontier, **{**arguments, **fields})

    def test_an_artefact_is_read_from_its_path(self, frontier, tmp_path):
        path = str(save(frontier, tmp_path / "f.json"))
        decision = FrontierSelector(path, target_f1=0.7).decide(QueryBundle("q"))
        assert decision.label == "full_context"


def test_a_llama_index_model_answers_for_calibration():
    (reply,) = as_answer_model(Reporting()).complete(["Who?"], max_new_tokens=8)
    assert (reply.text, reply.input_tokens, reply.output_tokens) == ("Hester Vane did", 70, 3)
