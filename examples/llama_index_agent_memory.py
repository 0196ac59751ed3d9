"""LlamaIndex: an agent with a long-term memory next to its chat history.

    pip install ".[llama-index,offline]"
    python examples/llama_index_agent_memory.py

Runs offline. The agent's language model is a scripted one that shows what it was given to read;
put a function-calling LLM of your own in its place.
"""

import asyncio
import json
import tempfile
from pathlib import Path

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import Memory
from llama_index.core.workflow import Context

from ecs_plugins.llama_index import EntropicChatMemory, EntropicMemoryBlock
from ecs_plugins.memory import EntropicMemory

USER = ("memories", "ada")
QUESTION = "Where does my sister keep her bees?"


def answer(messages: list[ChatMessage], **_: object) -> ChatMessage:
    """Show the last message, and answer from it."""
    prompt = str(messages[-1].content)
    print(f"  the agent reads: {prompt!r}")
    known = "In Tarrow." if "Tarrow" in prompt else "I do not know yet."
    return ChatMessage(role="assistant", content=known)


def build() -> FunctionAgent:
    """Return an agent; each run gets the memory."""
    llm = MockFunctionCallingLLM(response_generator=answer)
    return FunctionAgent(name="helper", llm=llm, system_prompt="Be terse.", streaming=False)


async def main() -> None:
    """Use the memory class with a round trip through JSON, and the memory block."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.db"
        with EntropicMemory.open(path) as memory:
            agent = build()

            print("EntropicChatMemory, first session:")
            monday = EntropicChatMemory.from_defaults(memory, namespace=USER, session_id="monday")
            await agent.run("My sister Quilla keeps bees in Tarrow.", memory=monday)

            print("\nanother session of the same user, its context written down and read back:")
            friday = EntropicChatMemory.from_defaults(memory, namespace=USER, session_id="friday")
            context = Context(agent)
            await agent.run("Good morning!", ctx=context, memory=friday)
            written = json.dumps(context.to_dict())
            restored = Context.from_dict(agent, json.loads(written))
            print(f"  it answers: {await agent.run(QUESTION, ctx=restored)}")

            print("\nEntropicMemoryBlock, behind LlamaIndex's own short-term memory:")
            short_term = Memory.from_defaults(
                session_id="sunday",
                token_limit=2000,
                insert_method="user",
                memory_blocks=[EntropicMemoryBlock(memory=memory, namespace=USER)],
            )
            print(f"  it answers: {await agent.run(QUESTION, memory=short_term)}")

            receipt = memory.forget(USER)
            print(f"\nthe user is forgotten: {len(receipt.messages)} messages")
            sunday = EntropicChatMemory.from_defaults(memory, namespace=USER, session_id="late")
            print(f"  it answers: {await agent.run(QUESTION, memory=sunday)}")


if __name__ == "__main__":
    asyncio.run(main())
