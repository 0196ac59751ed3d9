import json

import pytest
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_classic.retrievers.document_compressors import DocumentCompressorPipeline
from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.documents import BaseDocumentTransformer, Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.load import dumps, loads
from langchain_core.runnables import ConfigurableField, RunnableLambda, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.langchain import ECSDocumentCompressor
from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.shaping import ShapingConfig
from tests.integration.shaping_setup import (
    GIVEN_ORDER,
    QUERY,
    TEXTS,
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


def test_the_verdict_says_that_a_document_helps_only_where_a_threshold_was_reached(documents):
    recorder = Recorder()
    kept = compressor(threshold=0.0).compress_documents(documents, QUERY, callbacks=[recorder])
    assert {d.metadata["ecs"]["verdict"] for d in kept} == {"helps"}
    ranked = compressor().compress_documents(documents, QUERY, callbacks=[recorder])
    assert {d.metadata["ecs"]["verdict"] for d in ranked} == {"selected"}
    told = [{p["verdict"] for p in event[1]["passages"] if p["kept"]} for event in recorder.events]
    assert told == [{"helps"}, {"selected"}]


# -- configuration -------------------------------------------------------------------------


# -- bad input and failures ----------------------------------------------------------------


def test_something_that_is_no_document_is_refused():
    with pytest.raises(InvalidInputError, match="Document"):
        compressor().compress_documents(["text"], QUERY)


def test_a_runnable_input_of_another_shape_is_refused(documents):
    with pytest.raises(InvalidInputError, match='"documents"'):
        compressor().invoke(documents)


# -- async ---------------------------------------------------------------------------------


# -- tracing -------------------------------------------------------------------------------


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


# -- in real chains ------------------------------------------------------------------------


def retrieval_chain(documents, base=None) -> ContextualCompressionRetriever:
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    store.add_documents(documents)
    return ContextualCompressionRetriever(
        base_compressor=base or compressor(),
        base_retriever=store.as_retriever(search_kwargs={"k": 4}),
    )


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
