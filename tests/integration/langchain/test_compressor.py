"""The compressor inside LangChain: events, JSON, retrievers, chains.

What it shares with LlamaIndex's is in tests/integration/test_shaping.py.
"""

import pytest
from langchain_classic.retrievers import ContextualCompressionRetriever
from langchain_classic.retrievers.document_compressors import DocumentCompressorPipeline
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import BaseDocumentTransformer, Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.langchain import ECSDocumentCompressor
from ecs_plugins.lm import FakeLanguageModel
from tests.integration.shaping_setup import GIVEN_ORDER, QUERY
from tests.integration.test_shaping import Compressor


@pytest.fixture
def documents() -> list[Document]:
    return Compressor().given()


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


def test_the_event_tells_of_every_document_also_of_the_dropped(documents):
    recorder = Recorder()
    for fields in ({"threshold": 0.0}, {}):
        compressor(**fields).compress_documents(documents, QUERY, callbacks=[recorder])
    helped, ranked = (event[1]["passages"] for event in recorder.events)
    assert [verdict["index"] for verdict in ranked] == [0, 1, 2, 3]
    assert [verdict["kept"] for verdict in ranked] == [False, True, False, True]
    assert {verdict["verdict"] for verdict in helped if verdict["kept"]} == {"helps"}
    assert {verdict["verdict"] for verdict in ranked if verdict["kept"]} == {"selected"}


def test_a_surrounding_run_is_found_without_callbacks(documents):
    recorder = Recorder()
    chain = RunnableLambda(lambda query: compressor().compress_documents(documents, query))
    chain.invoke(QUERY, config={"callbacks": [recorder]})
    assert len(recorder.events) == 1


def test_something_that_is_no_document_is_refused(documents):
    with pytest.raises(InvalidInputError, match="Document"):
        compressor().compress_documents(["text"], QUERY)
    with pytest.raises(InvalidInputError, match='"documents"'):
        compressor().invoke(documents)


class DropShort(BaseDocumentTransformer):
    def transform_documents(self, documents, **kwargs):
        return [document for document in documents if len(document.page_content) > 40]


@pytest.mark.parametrize("piped", [False, True])
async def test_behind_a_retriever_it_compresses_in_a_run_below_the_retrievers(documents, piped):
    base, kept = compressor(), {"id-1", "id-3"}
    if piped:
        base = DocumentCompressorPipeline(transformers=[DropShort(), compressor(top_k=1)])
        kept = {"id-3"}
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    store.add_documents(documents)
    chain = ContextualCompressionRetriever(
        base_compressor=base, base_retriever=store.as_retriever(search_kwargs={"k": 4})
    )
    recorder = Recorder()
    assert set(ids(chain.invoke(QUERY, config={"callbacks": [recorder]}))) == kept
    (event,) = recorder.events
    name, parent = recorder.runs[event[2]]
    assert name == "ECSDocumentCompressor"
    assert recorder.runs[parent] == ("retriever", None)
    assert set(ids(await chain.ainvoke(QUERY))) == kept


async def test_as_a_runnable_it_takes_documents_and_query(documents):
    shaper = compressor()
    inputs = [{"documents": documents, "query": q} for q in (QUERY, "When does the ferry leave?")]
    single = [shaper.invoke(one) for one in inputs]
    assert ids(single[0]) == ["id-1", "id-3"]
    assert shaper.batch(inputs) == single
    assert await shaper.abatch(inputs) == single


async def test_it_streams_inside_a_chain_and_its_verdicts_are_among_the_events(documents):
    chain = (
        {"documents": RunnableLambda(lambda query: documents), "query": RunnablePassthrough()}
        | compressor()
        | RunnableLambda(lambda kept: " ".join(document.id for document in kept))
    )
    assert "".join(chain.stream(QUERY)) == "id-1 id-3"
    assert "".join([chunk async for chunk in chain.astream(QUERY)]) == "id-1 id-3"
    events = [event async for event in chain.astream_events(QUERY, version="v2")]
    custom = [event["name"] for event in events if event["event"] == "on_custom_event"]
    assert custom == ["ecs_shaping"]
