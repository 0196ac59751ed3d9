"""Features of LlamaIndex' routers alone: its own routers, and events."""

import asyncio
import contextlib

import pytest
from llama_index.core import Document, SummaryIndex
from llama_index.core.llms import ChatMessage, MockLLM
from llama_index.core.query_engine import RouterQueryEngine
from llama_index.core.retrievers import RouterRetriever
from llama_index.core.tools import QueryEngineTool, RetrieverTool

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.llama_index import FrontierQuery, FrontierQueryEngine, FrontierSelector
from tests.integration import routing_setup
from tests.integration.routing_setup import (
    QUESTION,
    USAGE,
    Completing,
    Found,
    LlamaIndex,
    Named,
    first_answer_fails,
)

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

    monkeypatch.setattr(routing_setup, "reply_to", first_answer_fails)
    selector = FrontierSelector(frontier, target_f1=0.7)
    engines = {name: Named(name=name) for name in LABELS} | {LABELS[0]: Retrying(name="full")}
    engine = FrontierQueryEngine(selector, engines)
    for _ in range(2):
        settlement = engine.query(QUESTION).metadata["frontier"]["settlement"]
        assert settlement["tokens"] == {"query": USAGE}
        Completing().complete("Notes: something else")


async def test_the_cost_of_a_cancelled_query_is_unknown(frontier, ledger, monkeypatch):
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
    (spend,) = ledger.spent_by_tenants()
    assert (spend.queries, spend.unknown, spend.cost) == (1, 1, 0.0)


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


def words(texts):
    return [len(text.split()) for text in texts]


def streaming_engine(frontier, ledger, count_tokens):
    llm = MockLLM(max_tokens=3)
    nodes = [Document(text="word " * 300)]
    engine = SummaryIndex(nodes).as_query_engine(llm=llm, streaming=True)
    return FrontierQueryEngine(
        FrontierSelector(frontier, target_f1=0.7, ledger=ledger, context_id="c"),
        dict.fromkeys(LABELS, engine),
        count_tokens=count_tokens,
    )


def test_a_stream_is_settled_when_it_ends_however_it_ends(frontier, ledger):
    engine = streaming_engine(frontier, ledger, words)
    read = engine.query(FrontierQuery(QUESTION, reuse=1))
    assert ledger.spent_by_tenants() == []
    assert "".join(read.response_gen)
    (spend,) = ledger.spent_by_tenants()
    assert spend.cost > 300
    assert read.metadata["frontier"]["settlement"]["actual"]["stage2"] == spend.cost
    left = engine.query(FrontierQuery(QUESTION, reuse=1))
    next(left.response_gen)
    left.response_gen.close()
    forgotten = engine.query(FrontierQuery(QUESTION, reuse=1))
    del forgotten
    (spend,) = ledger.spent_by_tenants()
    assert spend.queries == 3
    assert spend.cost > 600


async def test_an_async_stream_is_settled_when_it_ends(frontier, ledger):
    engine = streaming_engine(frontier, ledger, words)
    response = await engine.aquery(FrontierQuery(QUESTION, reuse=1))
    text = "".join([chunk async for chunk in response.async_response_gen()])
    (spend,) = ledger.spent_by_tenants()
    assert text
    assert spend.cost > 300


def test_tokens_that_nobody_reported_are_unknown(frontier, ledger):
    engine = streaming_engine(frontier, ledger, None)
    response = engine.query(FrontierQuery(QUESTION, reuse=1))
    assert str(response)
    settlement = response.metadata["frontier"]["settlement"]
    assert settlement["actual"] == {"stage1": None, "stage2": None}
    assert settlement["ratio"] is None
    (spend,) = ledger.spent_by_tenants()
    assert (spend.queries, spend.unknown, spend.cost) == (1, 1, 0.0)
