"""The selector inside LlamaIndex's own routers, and what its events tell the query engine.

What it shares with LangChain's router is in tests/integration/test_routing.py.
"""

import pickle

import pytest
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.llms import ChatMessage, MockLLM
from llama_index.core.query_engine import RouterQueryEngine
from llama_index.core.retrievers import RouterRetriever
from llama_index.core.tools import QueryEngineTool, RetrieverTool

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier import EfficiencyFrontier
from ecs_plugins.llama_index import FrontierQuery, FrontierQueryEngine, FrontierSelector
from tests.integration.router_setup import QUESTION, points
from tests.integration.test_routing import Completing, Found, LlamaIndex, Named

NAMES = ("full_context", "memory_compression(ratio=0.5)", "bm25")


@pytest.fixture
def frontier():
    return EfficiencyFrontier(points())


def router(selector):
    tools = [
        QueryEngineTool.from_defaults(Named(name), name=name, description="") for name in NAMES
    ]
    return RouterQueryEngine(selector=selector, query_engine_tools=tools, llm=MockLLM())


class Chatting(Named):
    """Chats with a model whose chat calls its complete, as in most integrations."""

    def _query(self, query_bundle):
        Completing().chat([ChatMessage(query_bundle.query_str)])
        return super()._query(query_bundle)


@pytest.mark.parametrize(("reuse", "expected"), [(1, NAMES[0]), (40, NAMES[1])])
async def test_n_travels_with_the_query_through_the_router_of_llama_index(
    frontier, reuse, expected
):
    engine = router(FrontierSelector(frontier, target_f1=0.7))
    assert str(engine.query(FrontierQuery(QUESTION, reuse=reuse))) == expected
    assert str(await engine.aquery(FrontierQuery(QUESTION, reuse=reuse))) == expected


def test_the_reason_holds_the_numbers(frontier):
    engine = router(FrontierSelector(frontier, target_f1=0.7))
    result = engine.query(FrontierQuery(QUESTION, reuse=40)).metadata["selector_result"]
    assert result.reason == (
        "memory_compression(ratio=0.5): the cheapest with F1 >= 0.700; measured F1 0.750, "
        "138 tokens per query at N = 40 (100 tokens + 1,500 tokens / 40)"
    )


def test_it_selects_for_the_router_retriever(frontier):
    tools = [RetrieverTool.from_defaults(Found(n), name=n, description="") for n in NAMES]
    retriever = RouterRetriever(
        selector=FrontierSelector(frontier, target_f1=0.7), retriever_tools=tools, llm=MockLLM()
    )
    (node,) = retriever.retrieve(FrontierQuery(QUESTION, reuse=40))
    assert node.node.node_id == NAMES[1]


def test_a_pickled_selector_decides_alike_and_has_no_prompts(frontier):
    selector = FrontierSelector(frontier, target_f1=0.7, policy="deterministic")
    copy = pickle.loads(pickle.dumps(selector))
    query = FrontierQuery("q", reuse=40)
    assert copy.decide(query).label == selector.decide(query).label
    assert copy.policy == selector.policy
    assert selector.get_prompts() == {}


def test_a_chat_that_calls_complete_is_counted_once_and_nothing_outside_a_query_is(frontier):
    selector = FrontierSelector(frontier, target_f1=0.7)
    engine = FrontierQueryEngine(selector, {"full_context": Chatting("full")})
    for _ in range(2):
        settlement = engine.query(QUESTION).metadata["frontier"]["settlement"]
        assert settlement["tokens"] == {"query": {"answer_input": 70, "answer_output": 3}}
        Completing().complete("something else")


def test_decision_and_cost_are_events(frontier):
    seen = []

    class Listener(BaseEventHandler):
        def handle(self, event, **kwargs):
            seen.append(event.class_name())

    dispatcher = get_dispatcher()
    before = list(dispatcher.event_handlers)
    dispatcher.add_event_handler(Listener())
    try:
        response = LlamaIndex().routed(frontier).query(QUESTION)
    finally:
        dispatcher.event_handlers = before
    mine = [name for name in seen if name.startswith("Frontier")]
    assert mine == ["FrontierDecisionEvent", "FrontierSettlementEvent"]
    assert "Hester Vane built" in response.source_nodes[0].node.text


@pytest.mark.parametrize("fields", [{"nodes": None}, {"retriever": Found("x")}])
def test_nodes_or_a_retriever_are_wanted(frontier, fields):
    with pytest.raises(ConfigurationError, match="nodes or a retriever"):
        LlamaIndex().routed(frontier, **fields)
