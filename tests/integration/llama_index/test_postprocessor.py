import asyncio
import copy
import json
import pickle
import threading

import numpy as np
import pytest
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.base.base_selector import BaseSelector, SelectorResult, SingleSelection
from llama_index.core.callbacks import CallbackManager, CBEventType, EventPayload
from llama_index.core.callbacks.base_handler import BaseCallbackHandler
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.llms import MockLLM
from llama_index.core.prompts import PromptTemplate
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import RouterRetriever
from llama_index.core.schema import (
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.tools import RetrieverTool
from pydantic import ValidationError

from ecs_plugins.errors import InvalidInputError, ModelError
from ecs_plugins.llama_index import ECSPostprocessor
from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.shaping import ShapingConfig
from ecs_plugins.shaping.signals import QueryLikelihood
from tests.integration.shaping_setup import (
    GIVEN_ORDER,
    QUERY,
    RANKED,
    TEXTS,
    BrokenModel,
    CountingEmbedder,
    WatchedModel,
)


def text_nodes() -> list[TextNode]:
    return [
        TextNode(
            text=text,
            id_=f"node-{i}",
            metadata={"source": f"file-{i}"},
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="book")},
        )
        for i, text in enumerate(TEXTS)
    ]


@pytest.fixture
def nodes() -> list[NodeWithScore]:
    return [NodeWithScore(node=node, score=0.9 - i / 10) for i, node in enumerate(text_nodes())]


def postprocessor(**fields) -> ECSPostprocessor:
    return ECSPostprocessor(
        **{"model": FakeLanguageModel(), "config": GIVEN_ORDER, "top_k": 2, **fields}
    )


def ids(nodes) -> list[str]:
    return [node.node_id for node in nodes]


# -- what comes out ------------------------------------------------------------------------


def test_the_helpful_nodes_are_kept_in_their_original_order(nodes):
    assert ids(postprocessor().postprocess_nodes(nodes, query_str=QUERY)) == ["node-1", "node-3"]
    kept = postprocessor().postprocess_nodes(nodes[::-1], query_str=QUERY)
    assert ids(kept) == ["node-3", "node-1"]


def test_the_given_nodes_are_not_mutated(nodes):
    before = copy.deepcopy(nodes)
    kept = postprocessor().postprocess_nodes(nodes, query_str=QUERY)
    assert nodes == before
    assert not {id(n) for n in kept} & {id(n) for n in nodes}
    assert not {id(n.node) for n in kept} & {id(n.node) for n in nodes}


def test_content_metadata_and_relationships_survive(nodes):
    kept = postprocessor().postprocess_nodes(nodes, query_str=QUERY)[0]
    assert kept.text == TEXTS[1]
    assert kept.metadata["source"] == "file-1"
    assert kept.node.relationships == nodes[1].node.relationships
    assert type(kept.node) is TextNode


def test_scores_are_python_floats_and_nodes_are_json(nodes):
    nodes[3].score = np.float32(0.25)
    for kept in postprocessor().postprocess_nodes(nodes, query_str=QUERY):
        assert type(kept.score) is float
        assert type(kept.metadata["ecs"]["utility"]) is float
        assert json.loads(kept.to_json())["score"] == kept.score
        assert TextNode.from_json(kept.node.to_json()) == kept.node


def test_ecs_metadata_tells_where_a_node_came_from(nodes):
    ecs = postprocessor().postprocess_nodes(nodes, query_str=QUERY)[1].metadata["ecs"]
    assert ecs["original_rank"] == 4
    assert ecs["retriever_score"] == pytest.approx(0.6)
    assert ecs["model"] == "fake"
    assert ecs["tokens"] > 0
    assert ecs["parts"]


def test_ecs_metadata_is_hidden_from_language_and_embedding_models(nodes):
    kept = postprocessor().postprocess_nodes(nodes, query_str=QUERY)[0]
    for mode in (MetadataMode.LLM, MetadataMode.EMBED):
        assert kept.get_content(mode) == nodes[1].get_content(mode)


def test_what_is_scored_is_what_the_answering_model_reads(nodes):
    model = FakeLanguageModel()
    postprocessor(model=model).postprocess_nodes(nodes, query_str=QUERY)
    scored = "".join(s.text for r in model.requests for c in r.candidates for s in c)
    assert nodes[0].get_content(MetadataMode.LLM) in scored
    assert "source: file-0" in scored


def test_metadata_can_be_left_out_of_what_is_scored(nodes):
    model = FakeLanguageModel()
    shaper = postprocessor(model=model, metadata_mode="none")
    shaper.postprocess_nodes(nodes, query_str=QUERY)
    scored = "".join(s.text for r in model.requests for c in r.candidates for s in c)
    assert TEXTS[0] in scored
    assert "source: file-0" not in scored


def test_shaping_twice_keeps_one_verdict(nodes):
    once = postprocessor(top_k=3).postprocess_nodes(nodes, query_str=QUERY)
    twice = postprocessor(top_k=1).postprocess_nodes(once, query_str=QUERY)
    assert ids(twice) == ["node-3"]
    assert twice[0].metadata["ecs"]["retriever_score"] == once[-1].score
    assert twice[0].node.excluded_llm_metadata_keys == ["ecs"]


# -- bad input and failures ----------------------------------------------------------------


def test_a_missing_query_is_a_clear_error(nodes):
    with pytest.raises(InvalidInputError, match="query_str or query_bundle"):
        postprocessor().postprocess_nodes(nodes)


async def test_a_missing_query_is_a_clear_error_in_async(nodes):
    with pytest.raises(ValueError, match="query_str or query_bundle"):
        await postprocessor().apostprocess_nodes(nodes)


def test_an_empty_query_is_refused(nodes):
    with pytest.raises(InvalidInputError):
        postprocessor().postprocess_nodes(nodes, query_str=" ")


async def test_no_nodes_give_no_nodes_without_a_model():
    shaper = ECSPostprocessor(model="no/such-model")
    assert shaper.postprocess_nodes([], query_str=QUERY) == []
    assert await shaper.apostprocess_nodes([], query_str=QUERY) == []


def test_a_model_that_cannot_score_gives_back_all_nodes_and_says_so(nodes):
    kept = postprocessor(model=BrokenModel()).postprocess_nodes(nodes, query_str=QUERY)
    assert ids(kept) == ids(nodes)
    assert [node.score for node in kept] == [node.score for node in nodes]
    for node in kept:
        assert node.metadata["ecs"]["verdict"] == "unscored"
        assert "not finite" in node.metadata["ecs"]["error"]


def test_a_model_that_cannot_score_raises_if_asked_to(nodes):
    config = ShapingConfig(ranker=None, on_error="raise")
    with pytest.raises(ModelError, match="not finite"):
        postprocessor(model=BrokenModel(), config=config).postprocess_nodes(nodes, query_str=QUERY)


@pytest.mark.parametrize(
    "fields", [{"top_n": 3}, {"top_k": 0}, {"config": {"no_such_field": 1}}, {"model": 3}]
)
def test_what_cannot_be_used_is_refused_at_construction(fields):
    with pytest.raises(ValidationError):
        postprocessor(**fields)


# -- async ---------------------------------------------------------------------------------


async def test_the_model_runs_off_the_loop_while_other_coroutines_progress(nodes):
    model = WatchedModel()

    async def other_work():
        while not model.started.is_set():
            await asyncio.sleep(0)
        model.progress.set()

    kept, _ = await asyncio.gather(
        postprocessor(model=model).apostprocess_nodes(nodes, query_str=QUERY), other_work()
    )
    assert model.progressed_during_scoring
    assert model.thread is not threading.current_thread()
    assert ids(kept) == ["node-1", "node-3"]


async def test_async_gives_what_sync_gives(nodes):
    kept = await postprocessor().apostprocess_nodes(nodes, QueryBundle(QUERY))
    assert kept == postprocessor().postprocess_nodes(nodes, QueryBundle(QUERY))


# -- prompts -------------------------------------------------------------------------------


def test_the_signals_prompt_is_exposed_as_plain_text():
    prompts = postprocessor().get_prompts()
    assert prompts["query_likelihood.after"].get_template() == QueryLikelihood().template.after
    assert {key.partition(".")[2] for key in prompts} == {
        "before",
        "passage",
        "after",
        "cue",
        "response",
    }


def test_an_answer_source_exposes_the_prompt_of_the_joint_shift_too():
    prompts = postprocessor(answer=lambda query: "Lisbon").get_prompts()
    assert {key.partition(".")[0] for key in prompts} == {"query_likelihood", "joint_shift"}


def test_an_updated_prompt_is_what_the_model_reads(nodes):
    model = FakeLanguageModel()
    shaper = postprocessor(model=model)
    shaper.update_prompts({"query_likelihood.after": PromptTemplate("Ask about it, briefly.")})
    shaper.postprocess_nodes(nodes, query_str=QUERY)
    read = "".join(s.text for r in model.requests for c in r.continuations for s in c)
    assert "Ask about it, briefly." in read
    assert QueryLikelihood().template.after not in read


def test_an_updated_prompt_survives_to_dict():
    shaper = ECSPostprocessor(model="some/model")
    shaper.update_prompts({"query_likelihood.cue": PromptTemplate("Asked:")})
    back = ECSPostprocessor.from_dict(json.loads(json.dumps(shaper.to_dict())))
    assert back.get_prompts()["query_likelihood.cue"].get_template() == "Asked:"


def test_an_updated_prompt_leaves_deep_copies_alone():
    shaper = postprocessor()
    other = copy.deepcopy(shaper)
    shaper.update_prompts({"query_likelihood.cue": PromptTemplate("Asked:")})
    assert other.templates == {}


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("no_such_prompt", "text"),
        ("query_likelihood.no_such_part", "text"),
        ("query_likelihood.passage", "a wrapper without the passage"),
    ],
)
def test_a_prompt_that_cannot_be_used_is_refused_and_changes_nothing(key, text):
    shaper = postprocessor()
    with pytest.raises(ValueError, match=r"prompt|passage"):
        shaper.update_prompts({key: PromptTemplate(text)})
    assert shaper.templates == {}


# -- events --------------------------------------------------------------------------------


class EventRecorder(BaseEventHandler):
    seen: list

    @classmethod
    def class_name(cls):
        return "EventRecorder"

    def handle(self, event, **kwargs):
        if isinstance(event, ReRankStartEvent | ReRankEndEvent):
            self.seen.append(event)


@pytest.fixture
def events():
    root = get_dispatcher()
    recorder = EventRecorder(seen=[])
    before = list(root.event_handlers)
    root.add_event_handler(recorder)
    yield recorder.seen
    root.event_handlers = before


def assert_rerank_events(events, nodes):
    start, end = events
    assert isinstance(start, ReRankStartEvent)
    assert (start.query, start.top_n, start.model_name) == (QUERY, 2, "fake")
    assert ids(start.nodes) == ids(nodes)
    assert isinstance(end, ReRankEndEvent)
    assert ids(end.nodes) == ["node-1", "node-3"]


def test_rerank_events_are_dispatched(nodes, events):
    postprocessor().postprocess_nodes(nodes, query_str=QUERY)
    assert_rerank_events(events, nodes)


def test_the_start_event_tells_how_many_are_kept_when_nobody_said(nodes, events):
    ECSPostprocessor(model=FakeLanguageModel()).postprocess_nodes(nodes, query_str=QUERY)
    ECSPostprocessor(model=FakeLanguageModel(), threshold=0.1).postprocess_nodes(
        nodes, query_str=QUERY
    )
    starts = [event for event in events if isinstance(event, ReRankStartEvent)]
    assert [event.top_n for event in starts] == [5, len(nodes)]


async def test_rerank_events_are_dispatched_in_async(nodes, events):
    await postprocessor().apostprocess_nodes(nodes, query_str=QUERY)
    assert_rerank_events(events, nodes)


class LegacyRecorder(BaseCallbackHandler):
    def __init__(self) -> None:
        super().__init__([], [])
        self.started, self.ended = [], []

    def on_event_start(self, event_type, payload=None, event_id="", parent_id="", **kwargs):
        self.started.append((event_type, payload))
        return event_id

    def on_event_end(self, event_type, payload=None, event_id="", **kwargs):
        self.ended.append((event_type, payload))

    def start_trace(self, trace_id=None):
        pass

    def end_trace(self, trace_id=None, trace_map=None):
        pass


def test_the_legacy_callback_manager_is_told(nodes):
    recorder = LegacyRecorder()
    shaper = postprocessor(callback_manager=CallbackManager([recorder]))
    shaper.postprocess_nodes(nodes, query_str=QUERY)
    ((started, payload),) = recorder.started
    assert started == CBEventType.RERANKING
    assert payload[EventPayload.QUERY_STR] == QUERY
    ((ended, payload),) = recorder.ended
    assert ended == CBEventType.RERANKING
    assert ids(payload[EventPayload.NODES]) == ["node-1", "node-3"]


# -- copies on disk and in memory ----------------------------------------------------------


def test_it_survives_to_dict_and_from_dict():
    given = ECSPostprocessor(
        model="some/model", config=ShapingConfig(pool_size=7), threshold=0.5, metadata_mode="none"
    )
    data = given.to_dict()
    assert data["class_name"] == "ECSPostprocessor"
    back = ECSPostprocessor.from_dict(json.loads(json.dumps(data)))
    assert back.to_dict() == data
    assert back.config == given.config


def test_it_survives_json():
    given = ECSPostprocessor(model="some/model", top_k=3)
    assert ECSPostprocessor.from_json(given.to_json()).to_dict() == given.to_dict()


@pytest.mark.parametrize("fields", [{"model": FakeLanguageModel()}, {"answer": str.upper}])
def test_a_live_object_is_not_silently_left_out_of_a_dict(fields):
    with pytest.raises(ValueError, match="cannot be written as JSON"):
        ECSPostprocessor(**{"model": "some/model", **fields}).to_dict()


def test_it_pickles_as_its_configuration(nodes):
    back = pickle.loads(pickle.dumps(postprocessor(threshold=0.1)))
    assert back.config == GIVEN_ORDER
    assert back.threshold == 0.1
    assert ids(back.postprocess_nodes(nodes, query_str=QUERY)) == ["node-1", "node-3"]


def test_a_model_that_cannot_be_pickled_is_an_error_and_stays_in_place():
    model = WatchedModel()  # holds locks
    shaper = postprocessor(model=model)
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(shaper)
    assert shaper.model is model


def test_a_callback_manager_does_not_stop_a_pickle():
    manager = CallbackManager([LegacyRecorder()])
    manager.lock = threading.Lock()
    shaper = postprocessor(callback_manager=manager)
    assert pickle.loads(pickle.dumps(shaper)).top_k == 2
    assert shaper.callback_manager is manager


def test_passages_are_embedded_once_for_all_calls(nodes):
    embedder = CountingEmbedder()
    shaping = postprocessor(config=RANKED, embedder=embedder)
    first = ids(shaping.postprocess_nodes(nodes, query_str=QUERY))
    assert len(embedder.embedded) == len(TEXTS)
    assert ids(shaping.postprocess_nodes(nodes, query_str=QUERY)) == first
    assert ids(copy.deepcopy(shaping).postprocess_nodes(nodes, query_str=QUERY)) == first
    assert len(embedder.embedded) == len(TEXTS)
    back = pickle.loads(pickle.dumps(shaping))
    assert ids(back.postprocess_nodes(nodes, query_str=QUERY)) == first


def test_a_deep_copy_shares_the_model():
    model = WatchedModel()
    assert copy.deepcopy(postprocessor(model=model)).model is model


def test_no_model_is_loaded_or_touched_at_construction():
    class Lazy(FakeLanguageModel):
        @property
        def layout(self):
            raise AssertionError("loaded")

        @property
        def max_tokens(self):
            raise AssertionError("loaded")

    postprocessor(model=Lazy())
    postprocessor(model="no/such-model")
    postprocessor(model=None)


# -- in a real query engine ----------------------------------------------------------------


def index() -> VectorStoreIndex:
    return VectorStoreIndex(text_nodes(), embed_model=MockEmbedding(embed_dim=4))


def query_engine(retriever) -> RetrieverQueryEngine:
    return RetrieverQueryEngine.from_args(
        retriever, llm=MockLLM(), node_postprocessors=[postprocessor(metadata_mode="none")]
    )


def assert_answered_from_kept_nodes(response):
    assert set(ids(response.source_nodes)) == {"node-1", "node-3"}
    prompt = str(response)  # MockLLM repeats its prompt
    assert TEXTS[3] in prompt
    assert TEXTS[0] not in prompt
    assert "utility" not in prompt


def test_retriever_query_engine():
    engine = query_engine(index().as_retriever(similarity_top_k=4))
    assert_answered_from_kept_nodes(engine.query(QUERY))


async def test_retriever_query_engine_async():
    engine = query_engine(index().as_retriever(similarity_top_k=4))
    assert_answered_from_kept_nodes(await engine.aquery(QUERY))


class FirstChoice(BaseSelector):
    def _select(self, choices, query):
        return SelectorResult(selections=[SingleSelection(index=0, reason="the only one")])

    async def _aselect(self, choices, query):
        return self._select(choices, query)

    def _get_prompts(self):
        return {}

    def _update_prompts(self, prompts):
        pass


def test_behind_a_router_retriever():
    tool = RetrieverTool.from_defaults(index().as_retriever(similarity_top_k=4), description="all")
    router = RouterRetriever(FirstChoice(), [tool], llm=MockLLM())
    assert_answered_from_kept_nodes(query_engine(router).query(QUERY))
