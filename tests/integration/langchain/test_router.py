"""The router inside LangChain: configuration, batches, streams, traces, JSON.

What it shares with LlamaIndex's is in tests/integration/test_routing.py.
"""

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.load import dumps, loads
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import ConfigurableField, RunnableLambda, RunnableSequence

from ecs_plugins.frontier import EfficiencyFrontier
from ecs_plugins.frontier.decision import UnreachableTargetError
from ecs_plugins.langchain import FrontierRouter
from ecs_plugins.langchain.context import FrontierContext
from tests.integration.router_setup import QUESTION, TEXTS, points, words
from tests.integration.test_routing import Chat as Replying

DOCUMENTS = [Document(text, metadata={"title": title}) for title, text in TEXTS]


@pytest.fixture
def frontier():
    return EfficiencyFrontier(points())


class Chat(Replying):
    """Streams word by word; reports its usage."""

    def count_tokens(self, texts):
        return words(texts)

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        (reply,) = self._generate(messages).generations
        first, *rest = reply.text.split(" ")
        usage = reply.message.usage_metadata
        yield ChatGenerationChunk(message=AIMessageChunk(content=first, usage_metadata=usage))
        for word in rest:
            yield ChatGenerationChunk(message=AIMessageChunk(content=f" {word}"))


class SerialisableChat(Chat):
    """As a partner's chat model that LangChain writes as JSON."""

    @classmethod
    def is_lc_serializable(cls):
        return True


CLASSES = [
    FrontierRouter,
    FrontierContext,
    SerialisableChat,
    RunnableSequence,
    PromptTemplate,
    Document,
]


class Recorder(BaseCallbackHandler):
    run_inline = True

    def __init__(self):
        self.events, self.starts, self.errors = [], [], []

    def on_custom_event(self, name, data, **kwargs):
        self.events.append((name, data))

    def on_chain_start(self, serialized, inputs, *, tags=None, metadata=None, name=None, **kwargs):
        self.starts.append((name, tags or [], metadata or {}))

    def on_chain_error(self, error, **kwargs):
        self.errors.append(error)

    def named(self, name):
        return [data for event, data in self.events if event == name]


def chain(name):
    return RunnableLambda(lambda _: name)


@pytest.fixture
def named(frontier):
    """Chains that return their strategy's name."""
    names = ("full_context", "memory_compression", "bm25")
    return {"frontier": frontier, "chains": {name: chain(name) for name in names}}


def default_router(frontier, **fields):
    fields = {"llm": Chat(), "documents": DOCUMENTS, "target_f1": 0.7, **fields}
    return FrontierRouter.from_frontier(frontier, **fields)


class TestChoice:
    def test_input_overrides_configurable(self, named):
        router = FrontierRouter(**named, target_f1=0.7)
        config = {"configurable": {"reuse": 40}}
        assert router.invoke({"question": "q", "reuse": 1}, config) == "full_context"


class TestRunning:
    async def test_batches_route_every_input_by_itself(self, named):
        router = FrontierRouter(**named, target_f1=0.7)
        inputs = [{"reuse": 1}, {"reuse": 40}]
        assert router.batch(inputs) == ["full_context", "memory_compression"]
        assert await router.abatch(inputs) == router.batch(inputs)
        assert [c async for c in router.astream(inputs[1])] == ["memory_compression"]

    def test_configurable_fields_rebuild_the_router(self, named):
        router = FrontierRouter(**named, target_f1=0.7).configurable_fields(
            reuse=ConfigurableField(id="queries", name="N"),
            weight=ConfigurableField(id="w"),
        )
        assert {spec.id for spec in router.config_specs} == {"queries", "w"}
        assert router.invoke("q") == "full_context"
        assert router.with_config(configurable={"queries": 40}).invoke("q") == "memory_compression"

    def test_documents_may_come_with_the_input(self, frontier):
        router = default_router(frontier, documents=None)
        assert router.invoke({"question": QUESTION, "documents": DOCUMENTS}).text

    def test_stream_yields_the_words_and_at_last_the_numbers(self, frontier):
        chunks = list(default_router(frontier).stream(QUESTION))
        assert [chunk.text for chunk in chunks if chunk.text] == ["Hester", " Vane", " did"]
        report = chunks[-1].response_metadata["frontier"]
        assert report["label"] == "full_context"
        assert report["settlement"]["actual"] == {"stage1": 0.0, "stage2": 73.0}

    async def test_astream_events_carry_chunks_decision_and_settlement(self, frontier):
        router = default_router(frontier)
        events = [event async for event in router.astream_events(QUESTION, version="v2")]
        kinds = {event["event"] for event in events}
        custom = [event["name"] for event in events if event["event"] == "on_custom_event"]
        assert {"on_chat_model_stream", "on_chain_stream"} <= kinds
        assert custom[0] == "frontier_decision"
        assert custom[-1] == "frontier_settlement"


class TestTrace:
    def test_the_child_carries_the_tag_and_the_decision(self, named):
        seen = Recorder()
        FrontierRouter(**named, target_f1=0.7, reuse=40).invoke("q", {"callbacks": [seen]})
        (root, child) = seen.starts
        assert root[0] == "FrontierRouter"
        assert child[1] == ["strategy:memory_compression(ratio=0.5)"]
        assert child[2]["frontier"]["reuse"] == 40
        assert child[2]["frontier"]["f1"] == 0.75

    def test_a_refused_call_ends_its_run_with_the_error(self, named):
        seen = Recorder()
        with pytest.raises(UnreachableTargetError):
            FrontierRouter(**named, target_f1=0.99).invoke("q", {"callbacks": [seen]})
        assert isinstance(seen.errors[0], UnreachableTargetError)


class TestFallback:
    async def test_it_takes_over_a_stream_that_has_not_begun(self, frontier):
        router = FrontierRouter(
            frontier=frontier,
            chains={"full_context": Chat(fails=True)},
            fallback=Chat(),
            target_f1=0.7,
        )
        assert "".join(c.text for c in router.stream("q")) == "Hester Vane did"
        assert "".join([c.text async for c in router.astream("q")]) == "Hester Vane did"

    def test_a_stream_that_has_begun_raises(self, frontier):
        def broken(_):
            yield "half"
            raise RuntimeError("cut off")

        router = FrontierRouter(
            frontier=frontier,
            chains={"full_context": RunnableLambda(broken)},
            fallback=Chat(),
            target_f1=0.7,
        )
        chunks = router.stream("q")
        assert next(chunks) == "half"
        with pytest.raises(RuntimeError, match="cut off"):
            next(chunks)


class TestBadInput:
    @pytest.mark.parametrize(
        "fields",
        [
            {"chains": {}},
            {"chains": {"bm25": "not a chain"}},
            {"fallback": "full_context"},
            {"documents": DOCUMENTS, "retriever": RunnableLambda(lambda q: [])},
            {"ledger": 3},
        ],
    )
    def test_fields_that_do_not_fit_are_refused(self, named, fields):
        with pytest.raises(ValueError, match=r".+"):
            FrontierRouter(**{**named, "target_f1": 0.7, **fields})


class TestCopies:
    @pytest.mark.parametrize("as_path", [True, False])
    def test_its_json_routes_alike(self, frontier, tmp_path, as_path):
        source = str(frontier.save(tmp_path / "f.json")) if as_path else frontier
        router = default_router(source, llm=SerialisableChat(), reuse=40, policy="deterministic")
        text = dumps(router)
        copy = loads(
            text,
            allowed_objects=CLASSES,
            valid_namespaces=["ecs_plugins", "langchain_core", __name__],
        )
        assert copy.decide(QUESTION) == router.decide(QUESTION)
        assert list(copy.chains) == list(router.chains)
        assert copy.policy == router.policy
