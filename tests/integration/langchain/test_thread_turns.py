"""A memory of an agent stores what the thread kept, with other middlewares around it."""

import asyncio
from dataclasses import dataclass

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ContextEditingMiddleware,
    HumanInTheLoopMiddleware,
    LLMToolSelectorMiddleware,
    ModelFallbackMiddleware,
    PIIMiddleware,
    SummarizationMiddleware,
    TodoListMiddleware,
)
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import BaseModel

from ecs_plugins.errors import StorageError
from ecs_plugins.langchain import EntropicMemoryMiddleware
from ecs_plugins.memory import EntropicMemory
from tests.integration.scripted_model import ScriptedModel, call, texts_of

USER = ("u", "ada")
MAIL = "Write to kim.private@corp.example about the bees."
HIDDEN = "Write to [REDACTED_EMAIL] about the bees."


def remembering(memory, **options):
    return EntropicMemoryMiddleware(memory, namespace=("u", "{user_id}"), **options)


def config(thread="t", user="ada"):
    return {"configurable": {"thread_id": thread, "user_id": user}}


def agent(memory, *around, model=None, saver=True, **options):
    middleware = [remembering(memory) if each == "memory" else each for each in around]
    return create_agent(
        model or ScriptedModel(),
        middleware=middleware,
        checkpointer=InMemorySaver() if saver else None,
        **options,
    )


def run(built, said, mode="sync", where=None):
    given = {"messages": [HumanMessage(said)] if isinstance(said, str) else said}
    where = where or config()
    if mode == "sync":
        return built.invoke(given, where)
    if mode == "async":
        return asyncio.run(built.ainvoke(given, where))
    if mode == "stream":
        return [*built.stream(given, where, stream_mode="values")][-1]
    return built.batch([given], where)[0]


def logged(memory, user="ada"):
    return texts_of(memory.messages(("u", user)))


class Replacing(AgentMiddleware):
    """Replaces a word of every message in a hook."""

    def __init__(self, hook: str, kind: type, text: str) -> None:
        super().__init__()
        self._kind = kind
        self._text = text
        setattr(self, hook, self._replace)

    def before_agent(self, state, runtime):
        return None

    def before_model(self, state, runtime):
        return None

    def after_model(self, state, runtime):
        return None

    def _replace(self, state, runtime):
        return {
            "messages": [
                each.model_copy(update={"content": self._text})
                for each in state["messages"]
                if isinstance(each, self._kind)
            ]
        }


class Removing(AgentMiddleware):
    """Removes the user's message before the model and puts another in its place."""

    def before_model(self, state, runtime):
        last = state["messages"][-1]
        if "bees" in last.text:
            return {"messages": [RemoveMessage(id=last.id), HumanMessage("Hello.")]}
        return None


def pii(**options):
    return PIIMiddleware("email", strategy="redact", **options)


ORDERS = [lambda other: ["memory", other], lambda other: [other, "memory"]]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mode", ["sync", "async", "stream", "batch"])
def test_redacted_text_is_stored_redacted(memory, order, mode):
    built = agent(memory, *order(pii(apply_to_input=True)))
    run(built, MAIL, mode)
    assert logged(memory) == [HIDDEN, "Noted."]


@pytest.mark.parametrize("order", ORDERS)
def test_a_redacted_answer_is_stored_redacted(memory, order):
    built = agent(memory, *order(pii(apply_to_output=True)), model=ScriptedModel(replies=[MAIL]))
    run(built, "Whom do I write to?")
    assert logged(memory) == ["Whom do I write to?", HIDDEN]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("hook", ["before_agent", "before_model"])
def test_a_replaced_message_is_stored_replaced(memory, order, hook):
    built = agent(memory, *order(Replacing(hook, HumanMessage, "[removed]")))
    run(built, MAIL)
    assert logged(memory) == ["[removed]", "Noted."]


@pytest.mark.parametrize("order", ORDERS)
def test_a_replaced_answer_is_stored_replaced(memory, order):
    built = agent(memory, *order(Replacing("after_model", AIMessage, "[moderated]")))
    run(built, "Hello.")
    assert logged(memory) == ["Hello.", "[moderated]"]


@pytest.mark.parametrize("order", ORDERS)
def test_a_removed_message_is_not_stored(memory, order):
    run(agent(memory, *order(Removing())), MAIL)
    assert logged(memory) == ["Hello.", "Noted."]


class Late(AgentMiddleware):
    """Replaces the answer after the agent."""

    def after_agent(self, state, runtime):
        last = state["messages"][-1]
        return {"messages": [last.model_copy(update={"content": "[late]"})]}


@pytest.mark.parametrize("order", ORDERS)
def test_an_answer_changed_after_the_run_is_taken_over_in_the_next(memory, order):
    built = agent(memory, *order(Late()))
    run(built, "Hello.")
    run(built, "Again.")
    assert logged(memory)[:3] == ["Hello.", "[late]", "Again."]


def edited(built, text):
    """Run the thread again from before its first answer, with another first message."""
    states = [*built.get_state_history(config())]
    first = next(
        state for state in states if "model" in state.next and len(state.values["messages"]) == 1
    )
    fork = built.update_state(first.config, {"messages": [HumanMessage(text, id="h1")]})
    fork["configurable"]["user_id"] = "ada"
    built.invoke(None, fork)


def test_an_edited_message_replaces_its_text_and_what_followed_it(memory):
    built = agent(memory, "memory", model=ScriptedModel(replies=["one", "two", "three"]))
    run(built, [HumanMessage("My code is 1234.", id="h1")])
    run(built, "Thanks.")
    edited(built, "My code is 9876.")
    assert logged(memory) == ["My code is 9876.", "three"]
    run(built, [HumanMessage("My code is 5555.", id="h1")])
    assert "My code is 5555." in logged(memory)
    assert "My code is 9876." not in logged(memory)


def test_an_answer_that_is_made_again_replaces_the_first(memory):
    built = agent(memory, "memory", model=ScriptedModel(replies=["one", "two"]))
    run(built, [HumanMessage("My code is 1234.", id="h1")])
    edited(built, "My code is 1234.")
    assert logged(memory) == ["My code is 1234.", "two"]


@pytest.mark.parametrize("saver", [True, False])
def test_ids_are_those_of_a_thread(memory, saver):
    built = agent(memory, "memory", saver=saver)
    for thread, said in (("a", "My sister keeps bees."), ("b", "My brother sails.")):
        run(built, [HumanMessage(said, id="1")], where=config(thread))
    assert logged(memory)[::2] == ["My sister keeps bees.", "My brother sails."]


def test_a_turn_that_is_sent_again_is_stored_once(memory):
    built = agent(memory, "memory", saver=False)
    for _ in "ab":
        run(built, [HumanMessage("My sister keeps bees.", id="1")])
    assert logged(memory).count("My sister keeps bees.") == 1


def failing(memory, monkeypatch):
    def full(*_, **__):
        raise StorageError("the disk is full")

    monkeypatch.setattr(memory, "add", full)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("crashes", [False, True])
def test_turns_of_one_user_are_never_stored_for_another(memory, monkeypatch, mode, crashes):
    replies = ["Noted.", lambda _: 1 / 0, "Noted."] if crashes else ["Noted."]
    built = agent(memory, "memory", model=ScriptedModel(replies=replies))
    run(built, "Good morning.", mode)
    with monkeypatch.context() as patch:
        failing(memory, patch)
        if crashes:
            with pytest.raises(ZeroDivisionError):
                run(built, "My pin is 4242.", mode)
        else:
            run(built, "My pin is 4242.", mode)
    bobs = [HumanMessage("I am Bob."), HumanMessage("I sail.")]
    run(built, bobs, mode, config(user="bob"))
    assert logged(memory, "bob") == ["I am Bob.", "I sail.", "Noted."]
    run(built, "Good evening.", mode)
    assert not any("4242" in text for text in logged(memory, "bob"))
    assert "I am Bob." not in logged(memory)


class Reply(BaseModel):
    answer: str


class City(BaseModel):
    city: str
    inhabitants: int


@pytest.mark.parametrize("mode", ["sync", "async", "stream", "batch"])
def test_an_answer_of_a_tool_strategy_is_remembered(memory, mode):
    model = ScriptedModel(replies=[call("Reply", answer="The cat lives in Oslo.")])
    built = agent(memory, "memory", model=model, response_format=ToolStrategy(Reply))
    result = run(built, "Where is the cat?", mode)
    assert result["structured_response"].answer == "The cat lives in Oslo."
    run(built, "Thanks.", mode)
    assert logged(memory)[:3] == ["Where is the cat?", "The cat lives in Oslo.", "Thanks."]


def test_an_answer_of_a_provider_strategy_is_remembered_in_words(memory):
    model = ScriptedModel(replies=['{"city": "Oslo", "inhabitants": 717710}'])
    built = agent(memory, "memory", model=model, response_format=ProviderStrategy(City))
    run(built, "How big is it?")
    run(built, "Thanks.")
    assert logged(memory)[1] == "city: Oslo\ninhabitants: 717710"


@tool
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


@pytest.mark.parametrize("order", ORDERS)
def test_an_approved_call_is_remembered_once(memory, order):
    asks = HumanInTheLoopMiddleware(interrupt_on={"send": True})
    model = ScriptedModel(replies=[call("send", text="hi"), "It is sent."])
    built = agent(memory, *order(asks), model=model, tools=[send])
    run(built, "Send hi to my sister.")
    assert logged(memory) == []
    built.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config())
    assert logged(memory) == ["Send hi to my sister.", "It is sent."]


AROUND = {
    "fallback": lambda: ModelFallbackMiddleware(ScriptedModel()),
    "todo": TodoListMiddleware,
    "editing": ContextEditingMiddleware,
    "summary": lambda: SummarizationMiddleware(
        ScriptedModel(replies=["A summary."]), trigger=("messages", 3), keep=("messages", 1)
    ),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("other", AROUND)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_every_turn_is_stored_once_beside_other_middlewares(memory, order, other, mode):
    built = agent(memory, *order(AROUND[other]()))
    told = [f"My sister {number} keeps bees." for number in range(3)]
    for said in told:
        run(built, said, mode)
    assert logged(memory) == [text for said in told for text in (said, "Noted.")]


@pytest.mark.parametrize("order", ORDERS)
def test_a_selection_of_tools_is_no_turn(memory, order):
    class Selecting(ScriptedModel):
        def with_structured_output(self, schema, **_):
            return RunnableLambda(lambda _: {"tools": ["send"]})

    built = agent(memory, *order(LLMToolSelectorMiddleware(model=Selecting())), tools=[send])
    run(built, "Hello.")
    assert logged(memory) == ["Hello.", "Noted."]


@dataclass
class Context:
    user_id: str


def test_two_memories_take_over_changes_each(memory, tmp_path):
    with EntropicMemory.open(tmp_path / "team.db", embedder=memory.embedder) as other:
        built = create_agent(
            ScriptedModel(),
            middleware=[
                remembering(memory),
                pii(apply_to_input=True),
                EntropicMemoryMiddleware(other, namespace=("team",), name="team"),
            ],
            context_schema=Context,
        )
        built.invoke({"messages": [HumanMessage(MAIL)]}, context=Context("ada"))
        assert logged(memory) == texts_of(other.messages(("team",))) == [HIDDEN, "Noted."]
