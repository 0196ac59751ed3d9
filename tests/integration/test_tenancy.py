"""The tenancy suite against everything that remembers for several users."""

import asyncio
from types import SimpleNamespace

import pytest
from langchain.agents import create_agent
from llama_index.core.base.llms.types import ChatMessage

from ecs_plugins.langchain import EntropicMemoryMiddleware, EntropicMemoryRetriever
from ecs_plugins.langgraph import EntropicStore
from ecs_plugins.llama_index import EntropicMemoryBlock
from ecs_plugins.memory import EntropicMemory
from ecs_plugins.ranking.embedder import FakeEmbedder
from tests.conformance.tenancy import TenancyConformance
from tests.integration.scripted_model import ScriptedModel, asked
from tests.integration.test_session_memories import ChatMemory, History
from tests.unit.memory.factories import contents

BOTH_ENGINES = True


class Direct:
    """Common methods, and the engine itself."""

    def __init__(self, memory: EntropicMemory) -> None:
        self.memory = memory

    def space(self, user: str) -> tuple[str, ...]:
        return ("memories", user)

    def remember(self, user, text):
        space = self.space(user)
        self.memory.add(text, namespace=space)

    def recall(self, user, question):
        namespace = self.space(user)
        found = self.memory.recall(question, namespace=namespace, threshold=0.2)
        return "\n".join(each.text for each in found)

    def forget_user(self, user):
        self.memory.forget(self.space(user))

    def forget_text(self, user, text):
        space = self.space(user)
        self.memory.sleep(space)
        for message in self.memory.messages(space):
            if message.text == text:
                self.memory.delete(message.id)

    def files(self):
        held = contents(self.memory).values()
        return [SimpleNamespace(read_bytes=each.encode) for each in held]


class Retriever(Direct):
    def recall(self, user, question):
        namespace = self.space(user)
        retriever = EntropicMemoryRetriever(memory=self.memory, namespace=namespace)
        documents = retriever.invoke(question)
        return "\n".join(document.page_content for document in documents)


class Histories(Direct):
    """The session memories of both frameworks."""

    kind = History()

    def log(self, user, session="s1"):
        space = self.space(user)
        return self.kind.open(self.memory, session, space)

    def remember(self, user, text):
        messages = self.kind.messages(("user", text))
        log = self.log(user)
        self.kind.put(log, messages)

    def recall(self, user, question):
        space = self.space(user)
        found = self.memory.recall(question, namespace=space)
        texts = [each.text for each in found]
        log = self.log(user)
        texts += map(self.kind.text, self.kind.read(log))
        return "\n".join(texts)

    def forget_user(self, user):
        log = self.log(user)
        asyncio.run(self.kind.aclear(log))


class ChatMemories(Histories):
    kind = ChatMemory()

    def recall(self, user, question):
        texts = [super().recall(user, question)]
        for session in ("s1", "s2"):
            log = self.log(user, session)
            view = log.get(question)
            texts += map(self.kind.text, view)
        return "\n".join(texts)


class Middleware(Direct):
    def remember(self, user, text):
        self.recall(user, text)

    def recall(self, user, question):
        model = ScriptedModel(replies=["ok"])
        memory = EntropicMemoryMiddleware(
            self.memory,
            namespace=("memories", "{user_id}"),
            remember=("user",),
        )
        agent = create_agent(model, [], middleware=[memory])
        config = {"configurable": {"user_id": user}}
        agent.invoke(asked(question), config)
        return model.prompt


class StoreItems(Direct):
    def __init__(self, memory):
        super().__init__(memory)
        self.store = EntropicStore(memory)

    def remember(self, user, text):
        space = self.space(user)
        self.store.put(space, text, {"text": text})

    def recall(self, user, question):
        space = self.space(user)
        found = self.store.search(space, query=question)
        found += self.store.search(space)
        return "\n".join(str(item.value) for item in found)

    def forget_user(self, user):
        space = self.space(user)
        self.memory.forget(space, below=True)

    def forget_text(self, user, text):
        space = self.space(user)
        self.memory.sleep(space)
        self.store.delete(space, text)


class Block(Direct):
    def block(self):
        # One block for all users, as several sessions share one.
        return EntropicMemoryBlock(
            memory=self.memory,
            namespace=("memories",),
            per_session=True,
        )

    def remember(self, user, text):
        message = ChatMessage(role="user", content=text)
        block = self.block()
        put = block.aput([message], session_id=user)
        asyncio.run(put)

    def recall(self, user, question):
        message = ChatMessage(role="user", content=question)
        block = self.block()
        get = block.aget([message], session_id=user)
        return asyncio.run(get)


@pytest.mark.parametrize(
    "kind",
    [
        Direct,
        Retriever,
        Histories,
        ChatMemories,
        Middleware,
        StoreItems,
        Block,
    ],
)
class TestTenancy(TenancyConformance):
    @pytest.fixture
    def place(self, kind, tmp_path, located):
        file = located(tmp_path / "m" / "m.db")
        with EntropicMemory.open(file, embedder=FakeEmbedder()) as memory:
            yield kind(memory)
