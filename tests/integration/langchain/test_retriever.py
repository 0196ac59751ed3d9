from dataclasses import fields

import pytest
from langchain_tests.integration_tests import RetrieversIntegrationTests

from ecs_plugins.langchain import EntropicMemoryRetriever
from ecs_plugins.memory import EntropicMemory, Memory
from ecs_plugins.ranking.embedder import FakeEmbedder

USER = ("memories", "u1")


@pytest.fixture(scope="module")
def memory():
    with EntropicMemory.open(":memory:", embedder=FakeEmbedder()) as opened:
        for n in range(6):
            opened.add(f"bees number{n} place{n}", namespace=USER, metadata={"n": n})
        opened.add("bees of somebody else", namespace=("memories", "u10"))
        yield opened


class TestStandard(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def _memory(self, memory):
        self._opened = memory

    @property
    def retriever_constructor(self):
        return EntropicMemoryRetriever

    @property
    def retriever_constructor_params(self):
        return {"memory": self._opened, "namespace": USER}

    @property
    def retriever_query_example(self):
        return "bees"


def test_a_document_tells_where_it_comes_from(memory):
    retriever = EntropicMemoryRetriever(memory=memory, namespace=USER)
    (document,) = retriever.invoke("bees number3 place3", k=1)
    assert document.page_content == "bees number3 place3"
    assert document.metadata["memory"] == {"n": 3}
    assert document.metadata["namespace"] == list(USER)
    assert document.metadata["tier"] == "hot"
    renamed = {"id", "text", "score", "metadata"}
    assert {each.name for each in fields(Memory)} - renamed <= set(document.metadata)
    assert isinstance(document.metadata["relevance_score"], float)
    assert memory.get(document.metadata["provenance"][0]).text == document.page_content


def test_filter_threshold_and_namespace_limit_results(memory):
    def found(**fields):
        retriever = EntropicMemoryRetriever(memory=memory, namespace=USER, **fields)
        return [document.metadata["memory"].get("n") for document in retriever.invoke("bees")]

    assert sorted(found()) == list(range(6))
    assert found(filter={"n": {"$gte": 5}}) == [5]
    assert found(threshold=1.0) == []
    assert found(tiers="cold") == []
