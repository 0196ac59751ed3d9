import asyncio
import copy
import json
import pickle
import threading
from contextvars import ContextVar

import pytest
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_classic.retrievers.document_compressors import DocumentCompressorPipeline
from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.documents import BaseDocumentTransformer, Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.load import dumps, loads
from langchain_core.runnables import ConfigurableField, RunnableLambda, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore
from pydantic import ValidationError

from ecs_plugins.errors import InvalidInputError, ModelError
from ecs_plugins.integrations.fields import as_model
from ecs_plugins.langchain import ECSDocumentCompressor
from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.shaping import ShapingConfig
from tests.integration.shaping_setup import (
    GIVEN_ORDER,
    QUERY,
    RANKED,
    TEXTS,
    BrokenModel,
    CountingEmbedder,
    WatchedModel,
)


@pytest.fixture
def documents() -> list[Document]:
    return [
        Document(page_content=text, id=f"doc-{i}", metadata={"score": 0.9 - i / 10, "tags": ["x"]})
        for i, text in enumerate(TEXTS)
    ]


def compressor(**fields) -> ECSDocumentCompressor:
    return ECSDocumentCompressor(
        **{"model": FakeLanguageModel(), "config": GIVEN_ORDER, "top_k": 2, **fields}
    )


def ids(documents) -> list[str]:
    return [document.id for document in documents]


class Recorder(BaseCallbackHandler):
    def __init__(self) -> None:
        self.events = []
        self.runs = {}

    def on_chain_start(self, serialized, inputs, *, run_id, parent_run_id=None, **kwargs):
        self.runs[run_id] = (kwargs.get("name"), parent_run_id)

    def on_retriever_start(self, serialized, query, *, run_id, parent_run_id=None, **kwargs):
        self.runs[run_id] = ("retriever", parent_run_id)

    def on_custom_event(self, name, data, *, run_id, **kwargs):
        self.events.append((name, data, run_id))


class AsyncRecorder(AsyncCallbackHandler):
    def __init__(self) -> None:
        self.events = []

    async def on_custom_event(self, name, data, **kwargs):
        self.events.append((name, data))


# -- what comes out ------------------------------------------------------------------------


def test_the_helpful_documents_are_kept_in_their_original_order(documents):
    assert ids(compressor().compress_documents(documents, QUERY)) == ["doc-1", "doc-3"]
    reverse = list(reversed(documents))
    assert ids(compressor().compress_documents(reverse, QUERY)) == ["doc-3", "doc-1"]


def test_the_given_documents_are_not_mutated(documents):
    before = copy.deepcopy(documents)
    kept = compressor().compress_documents(documents, QUERY)
    assert documents == before
    assert not {id(document) for document in kept} & {id(document) for document in documents}


def test_content_and_metadata_of_the_user_survive(documents):
    kept = compressor().compress_documents(documents, QUERY)[0]
    assert kept.page_content == TEXTS[1]
    assert kept.metadata["tags"] == ["x"]
    assert kept.metadata["score"] == documents[1].metadata["score"]


def test_scores_are_python_floats_and_metadata_is_json(documents):
    for kept in compressor().compress_documents(documents, QUERY):
        assert type(kept.metadata["relevance_score"]) is float
        assert type(kept.metadata["ecs"]["utility"]) is float
        assert json.loads(json.dumps(kept.metadata)) == kept.metadata


def test_the_most_helpful_document_scores_highest(documents):
    kept = compressor().compress_documents(documents, QUERY)
    assert max(kept, key=lambda d: d.metadata["relevance_score"]).id == "doc-3"


def test_ecs_metadata_tells_where_a_document_came_from(documents):
    ecs = compressor().compress_documents(documents, QUERY)[1].metadata["ecs"]
    assert ecs["original_rank"] == 4
    assert ecs["retriever_score"] == pytest.approx(0.6)
    assert ecs["tokens"] == FakeLanguageModel().count_tokens([TEXTS[3]])[0]
    assert ecs["model"] == "fake"
    assert ecs["parts"]
    assert ecs["verdict"] == "selected"


def test_the_verdict_says_that_a_document_helps_only_where_a_threshold_was_reached(documents):
    recorder = Recorder()
    kept = compressor(threshold=0.0).compress_documents(documents, QUERY, callbacks=[recorder])
    assert {d.metadata["ecs"]["verdict"] for d in kept} == {"helps"}
    ranked = compressor().compress_documents(documents, QUERY, callbacks=[recorder])
    assert {d.metadata["ecs"]["verdict"] for d in ranked} == {"selected"}
    told = [{p["verdict"] for p in event[1]["passages"] if p["kept"]} for event in recorder.events]
    assert told == [{"helps"}, {"selected"}]


def test_an_earlier_rerankers_score_becomes_the_retriever_score(documents):
    documents[3].metadata["relevance_score"] = 0.25
    kept = compressor().compress_documents(documents, QUERY)[1]
    assert kept.metadata["ecs"]["retriever_score"] == 0.25
    assert kept.metadata["relevance_score"] != 0.25


def test_no_documents_give_no_documents_without_a_model():
    assert ECSDocumentCompressor(model="no/such-model").compress_documents([], QUERY) == []


# -- configuration -------------------------------------------------------------------------


def test_plain_fields_override_the_config(documents):
    config = ShapingConfig(ranker=None, top_k=1)
    assert len(compressor(config=config, top_k=None).compress_documents(documents, QUERY)) == 1
    assert len(compressor(config=config, top_k=3).compress_documents(documents, QUERY)) == 3


def test_a_threshold_drops_what_helps_less(documents):
    scored = compressor(top_k=4).compress_documents(documents, QUERY)
    best = max(document.metadata["ecs"]["utility"] for document in scored)
    kept = compressor(top_k=4, threshold=best).compress_documents(documents, QUERY)
    assert ids(kept) == ["doc-3"]


def test_a_token_budget_bounds_what_is_kept(documents):
    budget = FakeLanguageModel().count_tokens([TEXTS[3]])[0]
    kept = compressor(top_k=None, max_tokens=budget).compress_documents(documents, QUERY)
    assert ids(kept) == ["doc-3"]


def test_a_config_is_accepted_as_it_is_or_as_a_dict():
    assert compressor(config=GIVEN_ORDER).config is GIVEN_ORDER
    assert compressor(config={"ranker": None, "redundancy_similarity": None}).config == GIVEN_ORDER


@pytest.mark.parametrize(
    "fields",
    [
        {"topk": 3},
        {"top_k": 0},
        {"max_tokens": -1},
        {"config": {"no_such_field": 1}},
        {"config": 3},
        {"config": {"top_k": "three"}},
        {"templates": {"no_such_signal": {"after": "text"}}},
        {"templates": {"query_likelihood": {"no_such_part": "text"}}},
        {"templates": {"query_likelihood": {"passage": "text without the passage"}}},
        {"model": 3},
        {"model": FakeLanguageModel},
        {"answer": "Lisbon"},
        {"embedder": 3},
    ],
)
def test_what_cannot_be_used_is_refused_at_construction(fields):
    with pytest.raises(ValidationError):
        compressor(**fields)


def test_known_answers_are_asked_per_query_and_decide_what_helps(documents):
    asked = []

    def answer(query):
        asked.append(query)
        return ["sardines taste best in June", "Grilled sardines"]

    kept = compressor(top_k=1, answer=answer).compress_documents(documents, QUERY)
    assert asked == [QUERY]
    assert ids(kept) == ["doc-2"]
    assert kept[0].metadata["ecs"]["signal"] == "joint_shift+bm25"


def test_a_replaced_template_is_what_the_model_reads(documents):
    model = FakeLanguageModel()
    templates = {"query_likelihood": {"after": "Ask about it, briefly."}}
    compressor(model=model, templates=templates).compress_documents(documents, QUERY)
    read = "".join(s.text for r in model.requests for c in r.continuations for s in c)
    assert "Ask about it, briefly." in read


def test_a_query_without_known_answer_falls_back_to_the_label_free_signal(documents):
    shaper = compressor(
        answer=lambda query: None, templates={"joint_shift": {"cue": "The answer:"}}
    )
    kept = shaper.compress_documents(documents, QUERY)
    assert kept[0].metadata["ecs"]["signal"] == "query_likelihood+bm25"


# -- bad input and failures ----------------------------------------------------------------


@pytest.mark.parametrize("query", ["", "  \n", None])
def test_an_empty_query_is_refused(documents, query):
    with pytest.raises(InvalidInputError):
        compressor().compress_documents(documents, query)


def test_something_that_is_no_document_is_refused():
    with pytest.raises(InvalidInputError, match="Document"):
        compressor().compress_documents(["text"], QUERY)


def test_a_runnable_input_of_another_shape_is_refused(documents):
    with pytest.raises(InvalidInputError, match='"documents"'):
        compressor().invoke(documents)


def test_a_model_that_cannot_score_gives_back_all_documents_and_says_so(documents):
    kept = compressor(model=BrokenModel()).compress_documents(documents, QUERY)
    assert ids(kept) == ids(documents)
    for document in kept:
        assert document.metadata["ecs"]["verdict"] == "unscored"
        assert "not finite" in document.metadata["ecs"]["error"]
        assert "relevance_score" not in document.metadata


def test_a_model_that_cannot_score_raises_if_asked_to(documents):
    config = ShapingConfig(ranker=None, on_error="raise")
    with pytest.raises(ModelError, match="not finite"):
        compressor(model=BrokenModel(), config=config).compress_documents(documents, QUERY)


# -- async ---------------------------------------------------------------------------------


async def test_the_model_runs_off_the_loop_while_other_coroutines_progress(documents):
    model = WatchedModel()

    async def other_work():
        while not model.started.is_set():
            await asyncio.sleep(0)
        model.progress.set()

    kept, _ = await asyncio.gather(
        compressor(model=model).acompress_documents(documents, QUERY), other_work()
    )
    assert model.progressed_during_scoring
    assert model.thread is not threading.current_thread()
    assert ids(kept) == ["doc-1", "doc-3"]


async def test_async_gives_what_sync_gives(documents):
    kept = await compressor().acompress_documents(documents, QUERY)
    assert kept == compressor().compress_documents(documents, QUERY)


async def test_context_variables_reach_the_answer_function(documents):
    tenant: ContextVar[str] = ContextVar("tenant")
    tenant.set("acme")
    seen = []
    shaper = compressor(answer=lambda query: seen.append(tenant.get()))
    await shaper.acompress_documents(documents, QUERY)
    assert seen == ["acme"]


# -- tracing -------------------------------------------------------------------------------


def test_given_callbacks_receive_the_verdicts(documents):
    recorder = Recorder()
    compressor().compress_documents(documents, QUERY, callbacks=[recorder])
    ((name, data, run_id),) = recorder.events
    assert name == "ecs_shaping"
    assert data["query"] == QUERY
    assert json.dumps(data)
    assert recorder.runs[run_id] == ("ECSDocumentCompressor", None)


def test_the_event_tells_of_every_document_also_of_the_dropped(documents):
    recorder = Recorder()
    compressor().compress_documents(documents, QUERY, callbacks=[recorder])
    verdicts = recorder.events[0][1]["passages"]
    assert [verdict["index"] for verdict in verdicts] == [0, 1, 2, 3]
    assert [verdict["kept"] for verdict in verdicts] == [False, True, False, True]


async def test_async_callbacks_receive_the_verdicts(documents):
    recorder = AsyncRecorder()
    await compressor().acompress_documents(documents, QUERY, callbacks=[recorder])
    assert [name for name, _ in recorder.events] == ["ecs_shaping"]


def test_inside_a_retriever_the_compressor_is_a_child_run(documents):
    recorder = Recorder()
    retrieval_chain(documents).invoke(QUERY, config={"callbacks": [recorder]})
    (event,) = recorder.events
    name, parent = recorder.runs[event[2]]
    assert name == "ECSDocumentCompressor"
    assert recorder.runs[parent] == ("retriever", None)


def test_a_surrounding_run_is_found_without_callbacks(documents):
    recorder = Recorder()
    chain = RunnableLambda(lambda query: compressor().compress_documents(documents, query))
    chain.invoke(QUERY, config={"callbacks": [recorder]})
    assert len(recorder.events) == 1


# -- copies on disk and in memory ----------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The function `loads` is in beta")
def test_it_survives_langchains_json(documents):
    given = ECSDocumentCompressor(
        model="some/model", config=ShapingConfig(pool_size=7, acceptance="greedy"), threshold=0.5
    )
    text = dumps(given)
    assert json.loads(text)["type"] == "constructor"
    back = loads(text, allowed_objects=[ECSDocumentCompressor], valid_namespaces=["ecs_plugins"])
    assert back == given


@pytest.mark.parametrize("fields", [{"model": FakeLanguageModel()}, {"answer": str.upper}])
def test_json_of_a_live_object_is_refused_at_loading_and_not_silently_replaced(fields):
    text = dumps(ECSDocumentCompressor(**{"model": "some/model", **fields}))
    with pytest.raises(NotImplementedError):
        loads(text, allowed_objects=[ECSDocumentCompressor], valid_namespaces=["ecs_plugins"])


def test_it_pickles_as_its_configuration(documents):
    back = pickle.loads(pickle.dumps(compressor(threshold=0.1)))
    assert back.config == GIVEN_ORDER
    assert back.threshold == 0.1
    assert ids(back.compress_documents(documents, QUERY)) == ["doc-1", "doc-3"]


def test_a_deep_copy_shares_the_model(documents):
    model = WatchedModel()  # its locks cannot be copied
    given = compressor(model=model)
    assert copy.deepcopy(given).model is model
    assert copy.deepcopy(given) == given


def test_passages_are_embedded_once_for_all_calls_and_copies(documents):
    embedder = CountingEmbedder()
    shaping = compressor(config=RANKED, embedder=embedder)
    first = shaping.compress_documents(documents, QUERY)
    assert sorted(embedder.embedded) == sorted(TEXTS)
    narrower = shaping.model_copy(update={"max_tokens": 60})
    for other in (shaping, narrower, copy.deepcopy(shaping)):
        assert ids(other.compress_documents(documents, QUERY)) == ids(first)
    assert shaping.batch([{"documents": documents, "query": QUERY}] * 4) == [first] * 4
    assert len(embedder.embedded) == len(TEXTS)


def test_a_copy_with_another_embedder_or_ranker_uses_its_own(documents):
    mine, other = CountingEmbedder(), CountingEmbedder(dimension=8)
    shaping = compressor(config=RANKED, embedder=mine)
    shaping.compress_documents(documents, QUERY)
    moved = shaping.model_copy(update={"embedder": other})
    expected = compressor(config=RANKED, embedder=other).compress_documents(documents, QUERY)
    other.embedded.clear()
    assert moved.compress_documents(documents, QUERY) == expected
    assert sorted(other.embedded) == sorted(TEXTS)
    lexical = ShapingConfig(ranker="bm25", pool_size=2, redundancy_similarity=None)
    expected = compressor(config=lexical).compress_documents(documents, QUERY)
    renamed = shaping.model_copy(update={"config": lexical})
    assert renamed.compress_documents(documents, QUERY) == expected
    assert len(mine.embedded) == len(TEXTS)


def test_what_its_ranker_remembers_is_no_part_of_a_compressor(documents):
    services = {"model": FakeLanguageModel(), "embedder": CountingEmbedder()}
    used, fresh = (compressor(config=RANKED, **services) for _ in range(2))
    expected = used.compress_documents(documents, QUERY)
    assert used == fresh
    assert repr(used) == repr(fresh)
    back = pickle.loads(pickle.dumps(used))
    assert back.compress_documents(documents, QUERY) == expected
    assert len(back.embedder.embedded) == 2 * len(TEXTS)


def test_rebuilt_compressors_share_one_model_handle():
    # A rebuilt object must not load the model again.
    first, second = (compressor(model="some-organisation/some-model") for _ in range(2))
    assert as_model(first.model) is as_model(second.model)


def test_no_model_is_loaded_or_touched_at_construction():
    class Lazy(FakeLanguageModel):
        @property
        def layout(self):
            raise AssertionError("loaded")

        @property
        def max_tokens(self):
            raise AssertionError("loaded")

    compressor(model=Lazy())
    compressor(model="no/such-model")
    compressor(model=None)


# -- in real chains ------------------------------------------------------------------------


def retrieval_chain(documents, base=None) -> ContextualCompressionRetriever:
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    store.add_documents(documents)
    return ContextualCompressionRetriever(
        base_compressor=base or compressor(),
        base_retriever=store.as_retriever(search_kwargs={"k": 4}),
    )


def test_contextual_compression_retriever(documents):
    assert set(ids(retrieval_chain(documents).invoke(QUERY))) == {"doc-1", "doc-3"}


async def test_contextual_compression_retriever_async(documents):
    assert set(ids(await retrieval_chain(documents).ainvoke(QUERY))) == {"doc-1", "doc-3"}


class DropShort(BaseDocumentTransformer):
    def transform_documents(self, documents, **kwargs):
        return [document for document in documents if len(document.page_content) > 40]


def test_document_compressor_pipeline(documents):
    pipeline = DocumentCompressorPipeline(transformers=[DropShort(), compressor(top_k=1)])
    recorder = Recorder()
    kept = pipeline.compress_documents(documents, QUERY, callbacks=[recorder])
    assert ids(kept) == ["doc-3"]
    assert len(recorder.events) == 1


async def test_document_compressor_pipeline_async_inside_a_retriever(documents):
    pipeline = DocumentCompressorPipeline(transformers=[DropShort(), compressor(top_k=1)])
    assert ids(await retrieval_chain(documents, pipeline).ainvoke(QUERY)) == ["doc-3"]


def test_as_runnable_takes_documents_and_query(documents):
    kept = compressor().as_runnable().invoke({"documents": documents, "query": QUERY})
    assert ids(kept) == ["doc-1", "doc-3"]


def test_as_runnable_behind_a_retriever_takes_the_query(documents):
    chain = compressor().as_runnable(RunnableLambda(lambda query: documents))
    assert ids(chain.invoke(QUERY)) == ["doc-1", "doc-3"]


def test_batch_gives_what_single_calls_give(documents):
    inputs = [{"documents": documents, "query": q} for q in (QUERY, "When does the ferry leave?")]
    shaper = compressor()
    assert shaper.as_runnable().batch(inputs) == [shaper.invoke(one) for one in inputs]


async def test_abatch_gives_what_single_calls_give(documents):
    inputs = [{"documents": documents, "query": q} for q in (QUERY, "When does the ferry leave?")]
    shaper = compressor()
    assert await shaper.as_runnable().abatch(inputs) == [shaper.invoke(one) for one in inputs]


def rag_chain(documents):
    return (
        {"documents": RunnableLambda(lambda query: documents), "query": RunnablePassthrough()}
        | compressor()
        | RunnableLambda(lambda kept: " ".join(document.id for document in kept))
    )


def test_it_streams_inside_a_chain(documents):
    assert "".join(rag_chain(documents).stream(QUERY)) == "doc-1 doc-3"


async def test_it_streams_async_inside_a_chain(documents):
    chunks = [chunk async for chunk in rag_chain(documents).astream(QUERY)]
    assert "".join(chunks) == "doc-1 doc-3"


async def test_the_verdicts_appear_among_streamed_events(documents):
    events = [e async for e in rag_chain(documents).astream_events(QUERY, version="v2")]
    assert [e["name"] for e in events if e["event"] == "on_custom_event"] == ["ecs_shaping"]


def test_fields_can_be_configured_per_call(documents):
    chain = compressor().configurable_fields(top_k=ConfigurableField(id="top_k"))
    call = {"documents": documents, "query": QUERY}
    assert ids(chain.invoke(call)) == ["doc-1", "doc-3"]
    assert ids(chain.with_config(configurable={"top_k": 1}).invoke(call)) == ["doc-3"]
