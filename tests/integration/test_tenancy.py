"""The tenancy suite against everything that remembers for several users."""

import asyncio
from pathlib import Path

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from llama_index.core.base.llms.types import ChatMessage

from ecs_plugins.langchain import (
    EntropicChatMessageHistory,
    EntropicMemoryMiddleware,
    EntropicMemoryRetriever,
)
from ecs_plugins.langgraph import EntropicStore
from ecs_plugins.llama_index import EntropicChatMemory, EntropicMemoryBlock
from ecs_plugins.memory import EntropicMemory
from ecs_plugins.ranking.embedder import FakeEmbedder
from tests.conformance.tenancy import TenancyConformance


class Direct:
    """The engine itself, and what the others have in common."""

    def __init__(self, memory: EntropicMemory) -> None:
        self.memory = memory

    def space(self, user: str) -> tuple[str, ...]:
        return ("memories", user)

    def remember(self, user, text):
        self.memory.add(text, namespace=self.space(user))

    def recall(self, user, question):
        found = self.memory.recall(question, namespace=self.space(user), threshold=0.2)
        return "\n".join(each.text for each in found)

    def forget_user(self, user):
        self.memory.forget(self.space(user))

    def forget_text(self, user, text):
        self.memory.sleep(self.space(user))
        for message in self.memory.messages(self.space(user)):
            if message.text == text:
                self.memory.delete(message.id)

    def files(self):
        return [file for file in Path(self.memory.path).parent.rglob("*") if file.is_file()]


class Retriever(Direct):
    def recall(self, user, question):
        retriever = EntropicMemoryRetriever(memory=self.memory, namespace=self.space(user))
        return "\n".join(document.page_content for document in retriever.invoke(question))


class Histories(Direct):
    def history(self, user):
        return EntropicChatMessageHistory(self.memory, self.space(user), "s1")

    def remember(self, user, text):
        self.history(user).add_user_message(text)

    def recall(self, user, question):
        history = self.history(user)
        found = [each.text for each in history.recall(question)]
        return "\n".join([*found, *(message.text for message in history.messages)])

    def forget_user(self, user):
        self.history(user).clear()


class Middleware(Direct):
    def run(self, user, text):
        prompts = []

        class Model(GenericFakeChatModel):
            def _generate(self, messages, *args, **kwargs):
                prompts.append("\n".join(str(message.text) for message in messages))
                return super()._generate(messages, *args, **kwargs)

        middleware = EntropicMemoryMiddleware(
            self.memory, namespace=("memories", "{user_id}"), remember=("user",)
        )
        agent = create_agent(Model(messages=iter([AIMessage("ok")])), [], middleware=[middleware])
        config = {"configurable": {"user_id": user}}
        agent.invoke({"messages": [HumanMessage(text)]}, config)
        return prompts[-1]

    def remember(self, user, text):
        self.run(user, text)

    def recall(self, user, question):
        return self.run(user, question)


class StoreItems(Direct):
    def __init__(self, memory):
        super().__init__(memory)
        self.store = EntropicStore(memory, messages_under=("chats",))

    def remember(self, user, text):
        self.store.put(self.space(user), text, {"text": text})

    def recall(self, user, question):
        found = [
            *self.store.search(self.space(user), query=question),
            *self.store.search(self.space(user)),
        ]
        return "\n".join(str(item.value) for item in found)

    def forget_user(self, user):
        self.memory.forget(self.space(user), below=True)

    def forget_text(self, user, text):
        self.memory.sleep(self.space(user))
        self.store.delete(self.space(user), text)


class StoreMessages(StoreItems):
    def space(self, user):
        return ("chats", user)

    def remember(self, user, text):
        self.store.put(self.space(user), text, {"role": "user", "content": text})


class Block(Direct):
    def block(self):
        # One block for all users, as several sessions share one.
        return EntropicMemoryBlock(memory=self.memory, namespace=("memories",), per_session=True)

    def remember(self, user, text):
        message = ChatMessage(role="user", content=text)
        asyncio.run(self.block().aput([message], session_id=user))

    def recall(self, user, question):
        message = ChatMessage(role="user", content=question)
        return asyncio.run(self.block().aget([message], session_id=user))


class ChatMemories(Direct):
    def chat(self, user, session="s1"):
        return EntropicChatMemory.from_defaults(
            self.memory, namespace=self.space(user), session_id=session
        )

    def remember(self, user, text):
        self.chat(user).put(ChatMessage(role="user", content=text))

    def recall(self, user, question):
        here, elsewhere = self.chat(user), self.chat(user, "s2")
        found = [*here.get_all(), *here.get(question), *elsewhere.get(question)]
        return "\n".join(str(message.content) for message in found)

    def forget_user(self, user):
        self.chat(user).reset()


@pytest.mark.parametrize(
    "kind",
    [
        Direct,
        Retriever,
        Histories,
        Middleware,
        StoreItems,
        StoreMessages,
        Block,
        ChatMemories,
    ],
)
class TestTenancy(TenancyConformance):
    @pytest.fixture
    def place(self, kind, tmp_path):
        with EntropicMemory.open(tmp_path / "m" / "m.db", embedder=FakeEmbedder()) as memory:
            yield kind(memory)
