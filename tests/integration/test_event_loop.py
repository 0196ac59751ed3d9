"""No async method of an adapter blocks the event loop, as `langgraph dev` demands.

Files and sockets are watched by blockbuster, databases and embedders by their threads.
"""

import asyncio

import pytest
from blockbuster import BlockingError, blockbuster_ctx
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from llama_index.core import Document as LlamaDocument
from llama_index.core import SummaryIndex
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms import MockLLM
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.tools import ToolMetadata

from ecs_plugins.common import files
from ecs_plugins.langchain import (
    ECSCitations,
    ECSContextMiddleware,
    ECSDocumentCompressor,
    EntropicChatMessageHistory,
    EntropicMemoryMiddleware,
    EntropicMemoryRetriever,
    create_memory_tool,
)
from ecs_plugins.langgraph import EntropicStore
from ecs_plugins.llama_index import (
    ECSCheckEvaluator,
    ECSPostprocessor,
    EntropicChatMemory,
    EntropicMemoryBlock,
    FrontierQueryEngine,
    FrontierSelector,
)
from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.ranking.embedder import FakeEmbedder
from tests.integration import routing_setup
from tests.integration.scripted_model import FACT, QUESTION, ScriptedModel

USER = ("u1",)


@pytest.fixture
def strict():
    with blockbuster_ctx("ecs_plugins") as detector:
        yield detector


async def test_a_history(strict, memory, threads):
    history = EntropicChatMessageHistory(memory, USER, "s")
    await history.aadd_messages([HumanMessage(FACT), AIMessage("Noted.")])
    assert len(await history.aget_messages()) == 2
    await history.aclear()
    assert threads == {"worker"}


async def test_a_blocking_call_is_noticed(strict):
    with pytest.raises(BlockingError):
        files.read_text("/etc/hostname")


async def test_a_store(strict, tmp_path):
    index = {"dims": 64, "embed": FakeEmbedder(64)}
    place = str(tmp_path / "m.db")
    async with EntropicStore.from_conn_string(place, index=index) as store:
        await store.aput(("a",), "k", {"text": "bees"}, ttl=5)
        await store.aput(("c", "u"), "m", {"content": FACT})
        assert (await store.aget(("a",), "k")).value == {"text": "bees"}
        assert await store.asearch(("c",), query=QUESTION)
        assert await store.alist_namespaces()
        await store.adelete(("a",), "k")
        await store.setup()
        await store.sweep_ttl()
        await store.start_ttl_sweeper()
        await store.stop_ttl_sweeper()


async def test_a_middleware_and_a_tool(strict, memory, threads):
    remembering = EntropicMemoryMiddleware(memory, namespace=USER)
    agent = create_agent(ScriptedModel(), middleware=[remembering])
    for said in (FACT, QUESTION):
        await agent.ainvoke({"messages": [HumanMessage(said)]})
    tool = create_memory_tool(memory, namespace=USER)
    found = await tool.ainvoke({"action": "search", "content": QUESTION})
    assert FACT in found
    assert threads == {"worker"}


async def test_a_retriever(strict, memory, threads):
    await memory.aadd(FACT, namespace=USER)
    retriever = EntropicMemoryRetriever(memory=memory, namespace=USER)
    assert await retriever.ainvoke(QUESTION)
    assert threads == {"worker"}


async def test_a_chat_memory(strict, memory, threads):
    chat = await asyncio.to_thread(  # it resolves the path of the file
        EntropicChatMemory.from_defaults, memory, namespace=USER, count_tokens=len
    )
    said = ChatMessage(role="user", content=FACT)
    await chat.aput(said)
    await chat.aput_messages([ChatMessage(role="assistant", content="Noted.")])
    assert len(await chat.aget(QUESTION)) == 2
    assert len(await chat.aget_all()) == 2
    await chat.aset([said])
    await chat.areset()
    assert threads == {"worker"}


async def test_a_memory_block(strict, memory, threads):
    block = EntropicMemoryBlock(memory=memory, namespace=USER, count_tokens=len)
    await block.aput([ChatMessage(role="user", content=FACT)])
    shown = await block.aget([ChatMessage(role="user", content=QUESTION)])
    assert FACT in shown
    assert threads == {"worker"}


async def test_shaping(strict):
    fields = {"model": FakeLanguageModel(), "embedder": FakeEmbedder(), "top_k": 1}
    compressor = ECSDocumentCompressor(**fields)
    documents = [Document(FACT), Document("It rained.")]
    assert await compressor.acompress_documents(documents, QUESTION)
    assert await compressor.ainvoke({"documents": documents, "query": QUESTION})
    nodes = [NodeWithScore(node=TextNode(text=each.page_content)) for each in documents]
    assert await ECSPostprocessor(**fields).apostprocess_nodes(nodes, query_str=QUESTION)
    agent = create_agent(ScriptedModel(), middleware=[ECSContextMiddleware(compressor)])
    await agent.ainvoke({"messages": [HumanMessage(QUESTION)]})


@pytest.mark.parametrize("kind", [routing_setup.LangChain, routing_setup.LlamaIndex])
async def test_a_router(strict, kind, frontier, tmp_path):
    fields = {"cache_dir": str(tmp_path / "notes"), "ledger": str(tmp_path / "reuse.db")}
    # Files are written and read before the loop runs.
    path = await asyncio.to_thread(frontier.save, tmp_path / "frontier.json")
    router = await asyncio.to_thread(kind().routed, str(path), **fields)
    answer = await kind().aask(router, context_id="c", reuse=40)
    assert answer.report["label"] == "memory_compression(ratio=0.5)"


async def test_batches_and_streams_of_a_router(strict, frontier, tmp_path):
    ledger = str(tmp_path / "reuse.db")
    router = routing_setup.LangChain().routed(frontier, ledger=ledger)
    assert len(await router.abatch([routing_setup.QUESTION] * 2)) == 2
    chunks = [chunk async for chunk in router.astream(routing_setup.QUESTION)]
    assert "settlement" in chunks[-1].response_metadata["frontier"]


async def test_a_selector_and_streams_of_an_engine(strict, frontier, tmp_path):
    ledger = str(tmp_path / "reuse.db")
    selector = FrontierSelector(frontier, target_f1=0.7, ledger=ledger, context_id="c")
    choices = [ToolMetadata("", name=name) for name in routing_setup.NAMES]
    selection = await selector.aselect(choices, routing_setup.QUESTION)
    assert selection.ind == 0
    index = SummaryIndex([LlamaDocument(text=FACT)])
    engine = index.as_query_engine(llm=MockLLM(max_tokens=2), streaming=True)
    engines = dict.fromkeys(routing_setup.NAMES, engine)
    response = await FrontierQueryEngine(selector, engines).aquery(QUESTION)
    assert [chunk async for chunk in response.async_response_gen()]


async def test_citations(strict):
    citations = ECSCitations(model=FakeLanguageModel())
    given = {"question": QUESTION, "documents": [FACT], "answer": FACT}
    assert (await citations.ainvoke(given))["answer"].response_metadata["ecs"]["cited"] == [0]
    assert [piece async for piece in citations.astream(given)]
    evaluator = ECSCheckEvaluator(model=FakeLanguageModel())
    assert (await evaluator.aevaluate(QUESTION, FACT, [FACT])).passing
