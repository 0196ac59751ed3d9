"""No async method of an adapter blocks the event loop, as `langgraph dev` demands."""

import asyncio

import pytest
from blockbuster import BlockingError, blockbuster_ctx
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.schema import NodeWithScore, TextNode

from ecs_plugins.common import files
from ecs_plugins.langchain import (
    ECSContextMiddleware,
    ECSDocumentCompressor,
    EntropicChatMessageHistory,
    EntropicMemoryMiddleware,
    EntropicMemoryRetriever,
    create_memory_tool,
)
from ecs_plugins.langgraph import EntropicStore
from ecs_plugins.llama_index import ECSPostprocessor, EntropicChatMemory, EntropicMemoryBlock
from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.ranking.embedder import FakeEmbedder
from tests.integration.scripted_model import FACT, QUESTION, ScriptedModel

USER = ("u1",)


@pytest.fixture
def strict():
    with blockbuster_ctx("ecs_plugins") as detector:
        yield detector


async def test_a_history(strict, memory):
    history = EntropicChatMessageHistory(memory, USER, "s")
    await history.aadd_messages([HumanMessage(FACT), AIMessage("Noted.")])
    assert len(await history.aget_messages()) == 2
    await history.aclear()


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


async def test_a_middleware_and_a_tool(strict, memory):
    remembering = EntropicMemoryMiddleware(memory, namespace=USER)
    agent = create_agent(ScriptedModel(), middleware=[remembering])
    for said in (FACT, QUESTION):
        await agent.ainvoke({"messages": [HumanMessage(said)]})
    tool = create_memory_tool(memory, namespace=USER)
    found = await tool.ainvoke({"action": "search", "content": QUESTION})
    assert FACT in found


async def test_a_retriever(strict, memory):
    await memory.aadd(FACT, namespace=USER)
    retriever = EntropicMemoryRetriever(memory=memory, namespace=USER)
    assert await retriever.ainvoke(QUESTION)


async def test_a_chat_memory(strict, memory):
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


async def test_a_memory_block(strict, memory):
    block = EntropicMemoryBlock(memory=memory, namespace=USER, count_tokens=len)
    await block.aput([ChatMessage(role="user", content=FACT)])
    shown = await block.aget([ChatMessage(role="user", content=QUESTION)])
    assert FACT in shown
    assert await block.atruncate(shown, 10_000) is None


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
