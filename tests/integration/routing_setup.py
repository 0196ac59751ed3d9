"""Shared setup of both routers: a small frontier, scripted models and a caller."""

from dataclasses import dataclass
from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableLambda
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.types import CompletionResponse, LLMMetadata
from llama_index.core.llms import CustomLLM
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.query_engine import CustomQueryEngine
from llama_index.core.schema import Document as LlamaDocument
from llama_index.core.schema import NodeWithScore, TextNode
from pydantic import Field

from ecs_plugins.frontier import StrategyPoint
from ecs_plugins.langchain import FrontierRouter
from ecs_plugins.llama_index import FrontierQuery, FrontierQueryEngine, FrontierSelector

QUESTION = "Who built the mill?"
TEXTS = (
    ("The mill", "Hester Vane built the mill in 1764."),
    ("The wheel", "The wheel has 32 blades of oak."),
)


def point(strategy, f1, stage1, stage2, **config):
    return StrategyPoint(strategy, config, f1, stage1, stage2)


# At F1 >= 0.7, compression pays from N = 1500 / (600 - 100) = 3 on; bm25 misses the target.
def points():
    return [
        point("full_context", 0.8, 0, 600),
        point("memory_compression", 0.75, 1500, 100, ratio=0.5),
        point("bm25", 0.5, 0, 50, depth=1),
    ]


def words(texts):
    return [len(text.split()) for text in texts]


NAMES = ("full_context", "memory_compression", "bm25")
USAGE = {"answer_input": 70, "answer_output": 3}


def reply_to(model, prompt: str) -> str:
    model.prompts.append(prompt)
    if model.fails:
        raise RuntimeError("the provider is down")
    return "notes of the mill" if "Notes:" in prompt else "Hester Vane did"


def first_answer_fails(model, prompt):
    if "Notes:" not in prompt and not model.prompts:
        model.prompts.append(prompt)
        raise RuntimeError("the provider is down")
    return "notes of the mill"


@dataclass
class Asked:
    text: str
    report: dict[str, Any]

    @property
    def settlement(self) -> dict[str, Any]:
        return self.report["settlement"]


class Chat(BaseChatModel):
    fails: bool = False
    reports: bool = True
    cached: int = 0
    prompts: list[str] = Field(default_factory=list)

    @property
    def _llm_type(self):
        return "chat"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        text = reply_to(self, messages[-1].text)
        usage = {"input_tokens": 70, "output_tokens": 3, "total_tokens": 73}
        usage["input_token_details"] = {"cache_read": self.cached}
        message = AIMessage(text, usage_metadata=usage if self.reports else None)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        (reply,) = self._generate(messages).generations
        first, *rest = reply.text.split(" ")
        usage = reply.message.usage_metadata
        yield ChatGenerationChunk(message=AIMessageChunk(content=first, usage_metadata=usage))
        for word in rest:
            yield ChatGenerationChunk(message=AIMessageChunk(content=f" {word}"))


class LangChain:
    model = Chat

    def named(self, frontier, names=NAMES, **settings):
        """A router whose chains answer with the name of their strategy."""
        chains = {name: RunnableLambda(lambda _, name=name: AIMessage(name)) for name in names}
        return FrontierRouter(frontier=frontier, chains=chains, **settings)

    def routed(self, frontier, **settings):
        found = settings.pop("found", None)
        if found is not None:
            settings["retriever"] = RunnableLambda(lambda _: [Document(found)])
        elif "documents" not in settings:
            settings["documents"] = [
                Document(text, metadata={"title": title}) for title, text in TEXTS
            ]
        settings = {"llm": Chat(), "count_tokens": words, "target_f1": 0.7, **settings}
        return FrontierRouter.from_frontier(frontier, **settings)

    def ask(self, router, **request):
        return self.asked(router.invoke({"question": QUESTION, **request}))

    async def aask(self, router, **request):
        return self.asked(await router.ainvoke({"question": QUESTION, **request}))

    def asked(self, message):
        return Asked(message.text, message.response_metadata["frontier"])

    def decide(self, router, **request):
        return router.decide({"question": QUESTION, **request})


class Completing(CustomLLM):
    fails: bool = False
    reports: bool = True
    cached: int = 0
    prompts: list[str] = Field(default_factory=list)

    @property
    def metadata(self):
        return LLMMetadata(model_name="reporting")

    @llm_completion_callback()
    def complete(self, prompt, formatted=False, **kwargs):
        text = reply_to(self, prompt)
        usage = {"prompt_tokens": 70, "completion_tokens": 3} if self.reports else {}
        usage["prompt_tokens_details"] = {"cached_tokens": self.cached}
        return CompletionResponse(text=text, additional_kwargs=usage)

    @llm_completion_callback()
    def stream_complete(self, prompt, formatted=False, **kwargs):
        raise NotImplementedError


class Named(CustomQueryEngine):
    """Answers with its name."""

    name: str

    def custom_query(self, query_str):
        return self.name


class Found(BaseRetriever):
    def __init__(self, *texts):
        super().__init__()
        self.texts = texts

    def _retrieve(self, query_bundle):
        return [NodeWithScore(node=TextNode(id_=text, text=text)) for text in self.texts]


class LlamaIndex:
    model = Completing

    def named(self, frontier, names=NAMES, **settings):
        engines = {name: Named(name=name) for name in names}
        return FrontierQueryEngine(FrontierSelector(frontier, **settings), engines)

    def routed(self, frontier, **settings):
        found = settings.pop("found", None)
        if found is not None:
            settings["retriever"] = Found(found)
        elif "nodes" not in settings:
            settings["nodes"] = [
                LlamaDocument(text=text, metadata={"title": title}) for title, text in TEXTS
            ]
        settings = {"llm": Completing(), "count_tokens": words, "target_f1": 0.7, **settings}
        return FrontierQueryEngine.from_frontier(frontier, **settings)

    def ask(self, router, **request):
        return self.asked(router.query(FrontierQuery(QUESTION, **request)))

    async def aask(self, router, **request):
        return self.asked(await router.aquery(FrontierQuery(QUESTION, **request)))

    def asked(self, response):
        return Asked(str(response), response.metadata["frontier"])

    def decide(self, router, **request):
        return router.selector.decide(FrontierQuery(QUESTION, **request))
