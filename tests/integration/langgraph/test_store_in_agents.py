"""The store in the places that use one: agents, tools that read it, langmem's tools."""

import json
from dataclasses import dataclass

import pytest
from langchain.agents import create_agent
from langchain.tools import ToolRuntime, tool
from langchain_core.messages import HumanMessage, ToolMessage
from langmem import create_manage_memory_tool, create_search_memory_tool

from ecs_plugins.langgraph import EntropicStore
from tests.integration.scripted_model import ScriptedModel, call


@dataclass
class Context:
    user_id: str


@tool
def save_city(city: str, runtime: ToolRuntime) -> str:
    """Remember where the user lives."""
    runtime.store.put(("users", runtime.context.user_id), "home", {"city": city})
    return "saved"


@tool
def read_city(runtime: ToolRuntime) -> str:
    """Where the user lives."""
    item = runtime.store.get(("users", runtime.context.user_id), "home")
    return item.value["city"] if item else "unknown"


def run(store, tools, *messages, user="u1"):
    agent = create_agent(
        ScriptedModel(replies=[*messages, "done"]), tools,
        store=store, context_schema=Context,
    )  # fmt: skip
    result = agent.invoke(
        {"messages": [HumanMessage("go")]}, {"configurable": {"user_id": user}},
        context=Context(user),
    )  # fmt: skip
    return [m.text for m in result["messages"] if isinstance(m, ToolMessage)]


def test_an_agents_tools_read_and_write_it(memory):
    store = EntropicStore(memory)
    assert run(store, [save_city, read_city], call("save_city", city="Bern")) == ["saved"]
    assert run(store, [save_city, read_city], call("read_city")) == ["Bern"]
    assert run(store, [save_city, read_city], call("read_city"), user="u10") == ["unknown"]


@pytest.mark.parametrize("under", [None, ("memories",)])
def test_langmems_tools_read_and_write_it(memory, under):
    store = EntropicStore(memory, messages_under=under)
    tools = [
        create_manage_memory_tool(namespace=("memories", "{user_id}")),
        create_search_memory_tool(namespace=("memories", "{user_id}")),
    ]
    (said,) = run(store, tools, call("manage_memory", action="create", content="I keep bees."))
    key = said.rsplit(" ", 1)[-1].strip(".")
    assert store.get(("memories", "u1"), key).value["content"] == "I keep bees."
    (found,) = run(store, tools, call("search_memory", query="who keeps bees"))
    assert json.loads(found)[0]["value"]["content"] == "I keep bees."
    assert json.loads(run(store, tools, call("search_memory", query="bees"), user="u10")[0]) == []
    run(store, tools, call("manage_memory", action="update", id=key, content="I keep wasps."))
    assert store.get(("memories", "u1"), key).value["content"] == "I keep wasps."
    run(store, tools, call("manage_memory", action="delete", id=key))
    assert store.get(("memories", "u1"), key) is None
