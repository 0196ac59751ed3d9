import pytest
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables.history import RunnableWithMessageHistory
from scripted_model import ScriptedModel

from ecs_plugins.langchain import EntropicChatMessageHistory

USER = ("u1",)
FACT = "My sister Quilla keeps bees in Tarrow."


def history(memory, session="s1", user=USER) -> EntropicChatMessageHistory:
    return EntropicChatMessageHistory(memory, user, session)


def texts(log) -> list[str]:
    return [message.text for message in log.messages]


@pytest.mark.parametrize("keys", [{"history_messages_key": "history"}, {}])
def test_a_chain_with_history_stores_each_turn_once(memory, keys):
    model = ScriptedModel()
    if keys:
        prompt = ChatPromptTemplate.from_messages(
            [("system", "Be terse."), MessagesPlaceholder("history"), ("human", "{input}")]
        )
        chain = RunnableWithMessageHistory(
            prompt | model, lambda session_id: history(memory, session_id),
            input_messages_key="input", **keys,
        )  # fmt: skip
    else:
        chain = RunnableWithMessageHistory(model, lambda session_id: history(memory, session_id))
    config = {"configurable": {"session_id": "s1"}}
    for text in (FACT, "Hello?", "Where are the bees?"):
        chain.invoke({"input": text} if keys else [HumanMessage(text)], config)
    assert texts(history(memory)) == [
        FACT, "Noted.", "Hello?", "Noted.", "Where are the bees?", "Noted.",
    ]  # fmt: skip
    assert FACT in model.prompt


def test_what_no_user_typed_is_logged_and_not_remembered(memory):
    said = [
        HumanMessage("A summary.", additional_kwargs={"lc_source": "summarization"}),
        HumanMessage("A task has ended.", additional_kwargs={"lc_source": "async_subagent"}),
        SystemMessage("Be terse."),
        ToolMessage("result", tool_call_id="c"),
        HumanMessage("Hello."),
    ]
    history(memory).add_messages(said)
    assert history(memory).messages == said
    assert [message.text for message in memory.messages(USER)] == ["Hello."]
