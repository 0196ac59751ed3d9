import json
import pickle
import threading

import pytest
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.callbacks import (
    CallbackManager,
    CBEventType,
    EventPayload,
    LlamaDebugHandler,
)
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.llms import MockLLM
from llama_index.core.prompts import PromptTemplate
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import (
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.llama_index import ECSPostprocessor
from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.shaping.signals.likelihood import QueryLikelihood
from tests.integration.shaping_setup import GIVEN_ORDER, QUERY, TEXTS, read_by
from tests.integration.test_shaping import Postprocessor


@pytest.fixture
def nodes() -> list[NodeWithScore]:
    return Postprocessor().given()


def postprocessor(**fields) -> ECSPostprocessor:
    return ECSPostprocessor(
        **{"model": FakeLanguageModel(), "config": GIVEN_ORDER, "top_k": 2, **fields}
    )


def ids(nodes) -> list[str]:
    return [node.node_id for node in nodes]


def test_ecs_metadata_is_hidden_from_language_and_embedding_models(nodes):
    kept = postprocessor().postprocess_nodes(nodes, query_str=QUERY)[0]
    for mode in (MetadataMode.LLM, MetadataMode.EMBED):
        assert kept.get_content(mode) == nodes[1].get_content(mode)


@pytest.mark.parametrize("mode", [MetadataMode.LLM, MetadataMode.NONE])
def test_what_is_scored_is_what_the_answering_model_reads_unless_told_otherwise(nodes, mode):
    model = FakeLanguageModel()
    fields = {} if mode is MetadataMode.LLM else {"metadata_mode": "none"}
    postprocessor(model=model, **fields).postprocess_nodes(nodes, query_str=QUERY)
    scored = read_by(model)
    assert nodes[0].get_content(mode) in scored
    assert ("tag: x" in scored) == (mode is MetadataMode.LLM)


def test_a_missing_query_is_a_clear_error(nodes):
    with pytest.raises(InvalidInputError, match="query_str or query_bundle"):
        postprocessor().postprocess_nodes(nodes)


def test_the_signals_prompt_is_exposed_as_plain_text():
    prompts = postprocessor().get_prompts()
    assert prompts["query_likelihood.after"].get_template() == QueryLikelihood().template.after
    parts = {"before", "passage", "after", "cue", "response"}
    assert {key.partition(".")[2] for key in prompts} == parts


def test_an_updated_prompt_survives_to_dict():
    shaper = ECSPostprocessor(model="some/model")
    shaper.update_prompts({"query_likelihood.cue": PromptTemplate("Asked:")})
    back = ECSPostprocessor.from_dict(json.loads(json.dumps(shaper.to_dict())))
    assert back.get_prompts()["query_likelihood.cue"].get_template() == "Asked:"


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


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_rerank_events_are_dispatched(nodes, events, asynchronous):
    if asynchronous:
        await postprocessor().apostprocess_nodes(nodes, query_str=QUERY)
    else:
        postprocessor().postprocess_nodes(nodes, query_str=QUERY)
    start, end = events
    assert isinstance(start, ReRankStartEvent)
    assert (start.query, start.top_n, start.model_name) == (QUERY, 2, "fake")
    assert ids(start.nodes) == ids(nodes)
    assert isinstance(end, ReRankEndEvent)
    assert ids(end.nodes) == ["id-1", "id-3"]


def test_the_legacy_callback_manager_is_told(nodes):
    recorder = LlamaDebugHandler(print_trace_on_end=False)
    shaper = postprocessor(callback_manager=CallbackManager([recorder]))
    shaper.postprocess_nodes(nodes, query_str=QUERY)
    ((started, ended),) = recorder.get_event_pairs(CBEventType.RERANKING)
    assert started.payload[EventPayload.QUERY_STR] == QUERY
    assert ids(ended.payload[EventPayload.NODES]) == ["id-1", "id-3"]


def test_a_callback_manager_does_not_stop_a_pickle():
    manager = CallbackManager([LlamaDebugHandler(print_trace_on_end=False)])
    manager.lock = threading.Lock()
    shaper = postprocessor(callback_manager=manager)
    assert pickle.loads(pickle.dumps(shaper)).top_k == 2
    assert shaper.callback_manager is manager


def assert_answered_from_kept_nodes(response):
    assert set(ids(response.source_nodes)) == {"id-1", "id-3"}
    prompt = str(response)  # MockLLM repeats its prompt
    assert TEXTS[3] in prompt
    assert TEXTS[0] not in prompt
    assert "utility" not in prompt


async def test_a_query_engine_answers_from_the_kept_nodes(nodes):
    index = VectorStoreIndex([each.node for each in nodes], embed_model=MockEmbedding(embed_dim=4))
    engine = RetrieverQueryEngine.from_args(
        index.as_retriever(similarity_top_k=4),
        llm=MockLLM(),
        node_postprocessors=[postprocessor(metadata_mode="none")],
    )
    assert_answered_from_kept_nodes(engine.query(QUERY))
    assert_answered_from_kept_nodes(await engine.aquery(QUERY))


@pytest.mark.parametrize("named", [NodeRelationship.PREVIOUS, NodeRelationship.NEXT])
def test_a_reply_is_read_with_the_question_of_the_node_before_it(named):
    asked = TextNode(text="Ana: I am back. What did the kids see?", id_="asked")
    reply = TextNode(text="Ben: A blue whale.", id_="reply")
    if named is NodeRelationship.PREVIOUS:
        reply.relationships[named] = RelatedNodeInfo(node_id="asked")
    else:
        asked.relationships[named] = RelatedNodeInfo(node_id="reply")
    model = FakeLanguageModel()
    nodes = [NodeWithScore(node=reply), NodeWithScore(node=asked)]
    kept = postprocessor(model=model).postprocess_nodes(nodes, query_str=QUERY)
    assert "Ben: What did the kids see? A blue whale." in read_by(model)
    assert [node.text for node in kept] == [reply.text, asked.text]
