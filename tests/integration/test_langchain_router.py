"""Features of LangChain's router alone: configuration, batches, streams, traces, JSON."""

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.load import dumps, loads
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import ConfigurableField, RunnableLambda, RunnableSequence

from ecs_plugins.frontier.decision import UnreachableTargetError
from ecs_plugins.langchain import FrontierRouter
from ecs_plugins.langchain.context import FrontierContext
from tests.integration import routing_setup
from tests.integration.routing_setup import (
    NAMES,
    QUESTION,
    TEXTS,
    Chat,
    LangChain,
    first_answer_fails,
    words,
)


class SerialisableChat(Chat):
    """Chat model of a partner that LangChain serialises; counts its tokens."""

    @classmethod
    def is_lc_serializable(cls):
        return True

    def count_tokens(self, texts):
        return words(texts)


@pytest.fixture
def named(frontier):
    return LangChain().named(frontier, target_f1=0.7)


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_preparation_is_recorded_when_a_stream_closes_early(frontier, ledger, asynchronous):
    router = LangChain().routed(frontier, ledger=ledger)
    request = {"question": QUESTION, "context_id": "c", "reuse": 40}
    if asynchronous:
        chunks = router.astream(request)
        await anext(chunks)
        await chunks.aclose()
    else:
        chunks = router.stream(request)
        next(chunks)
        chunks.close()
    assert ledger.prepared("c")
    (spend,) = ledger.spent_by_tenants()
    assert (spend.queries, spend.unknown) == (1, 0)
    assert spend.cost > 100  # both stages, by the text that came until then


async def test_batches_route_every_input_by_itself(named):
    inputs = [{"reuse": 1}, {"reuse": 40}]
    expected = ["full_context", "memory_compression"]
    assert [message.text for message in named.batch(inputs)] == expected
    assert [message.text for message in await named.abatch(inputs)] == expected
    assert [chunk.text async for chunk in named.astream(inputs[1])] == expected[1:]


def test_configurable_fields_rebuild_the_router_and_the_input_overrides_them(named):
    config = {"configurable": {"reuse": 40}}
    assert named.invoke("q", config).text == "memory_compression"
    assert named.invoke({"question": "q", "reuse": 1}, config).text == "full_context"
    router = named.configurable_fields(
        reuse=ConfigurableField(id="queries", name="N"), context_id=ConfigurableField(id="w")
    )
    assert {spec.id for spec in router.config_specs} == {"queries", "w"}
    assert router.invoke("q").text == "full_context"
    assert router.with_config(configurable={"queries": 40}).invoke("q").text == NAMES[1]


async def test_attempts_of_with_retry_are_one_query(frontier, ledger, monkeypatch):
    monkeypatch.setattr(routing_setup, "reply_to", first_answer_fails)
    for name, ask in (("a", "invoke"), ("b", "ainvoke")):
        router = LangChain().routed(frontier, ledger=ledger, context_id=name, reuse=1)
        asked = getattr(router.with_retry(wait_exponential_jitter=False), ask)(QUESTION)
        assert (await asked if ask == "ainvoke" else asked).text
        assert ledger.count(name) == 1


def test_a_stream_over_input_documents_yields_words_then_numbers(frontier):
    router = LangChain().routed(frontier, documents=None)
    documents = [Document(text) for _, text in TEXTS]
    chunks = list(router.stream({"question": QUESTION, "documents": documents}))
    assert [chunk.text for chunk in chunks if chunk.text] == ["Hester", " Vane", " did"]
    report = chunks[-1].response_metadata["frontier"]
    assert report["label"] == "full_context"
    assert report["settlement"]["actual"] == {"stage1": 0.0, "stage2": 73.0}


async def test_astream_events_carry_chunks_tag_decision_and_settlement(frontier):
    router = LangChain().routed(frontier, reuse=40)
    events = [event async for event in router.astream_events(QUESTION, version="v2")]
    kinds = {event["event"] for event in events}
    assert {"on_chat_model_stream", "on_chain_stream"} <= kinds
    custom = [event["name"] for event in events if event["event"] == "on_custom_event"]
    assert custom[0] == "frontier_decision"
    assert custom[-1] == "frontier_settlement"
    root, child = [event for event in events if event["event"] == "on_chain_start"][:2]
    assert root["name"] == "FrontierRouter"
    assert "strategy:memory_compression(ratio=0.5)" in child["tags"]
    decision = child["metadata"]["frontier"]
    assert (decision["reuse"], decision["f1"]) == (40, 0.75)


def test_a_refused_call_ends_its_run_with_the_error(frontier):
    seen = []

    class Listener(BaseCallbackHandler):
        def on_chain_error(self, error, **kwargs):
            seen.append(error)

    asked = {"question": "q", "target_f1": 0.99}
    with pytest.raises(UnreachableTargetError):
        LangChain().named(frontier, target_f1=0.7).invoke(asked, {"callbacks": [Listener()]})
    assert isinstance(seen[0], UnreachableTargetError)


async def test_a_fallback_takes_over_a_stream_that_has_not_begun_and_no_other(named):
    def broken(_):
        yield "half"
        raise RuntimeError("cut off")

    named.fallback = Chat()
    named.chains = {**named.chains, "full_context": Chat(fails=True)}
    assert "".join(chunk.text for chunk in named.stream("q")) == "Hester Vane did"
    assert "".join([chunk.text async for chunk in named.astream("q")]) == "Hester Vane did"
    named.chains = {**named.chains, "full_context": RunnableLambda(broken)}
    chunks = named.stream("q")
    assert next(chunks) == "half"
    with pytest.raises(RuntimeError, match="cut off"):
        next(chunks)


@pytest.mark.parametrize(
    "fields",
    [
        {"chains": {"bm25": "not a chain"}},
        {"fallback": "full_context"},
        {"documents": [Document("x")], "retriever": RunnableLambda(lambda q: [])},
        {"ledger": 3},
    ],
)
def test_fields_that_do_not_fit_are_refused(frontier, fields):
    fields = {"chains": {"bm25": RunnableLambda(str)}, "target_f1": 0.7, **fields}
    with pytest.raises(ValueError, match=r".+"):
        FrontierRouter(frontier=frontier, **fields)


@pytest.mark.parametrize("as_path", [True, False])
def test_its_json_routes_alike(frontier, tmp_path, as_path):
    source = str(frontier.save(tmp_path / "f.json")) if as_path else frontier
    options = {"count_tokens": None, "reuse": 40, "routing": {"policy": "deterministic"}}
    router = LangChain().routed(source, llm=SerialisableChat(), **options)
    places = ["ecs_plugins", "langchain_core", "tests.integration.routing_setup", __name__]
    known = [FrontierRouter, FrontierContext, SerialisableChat]
    known += [RunnableSequence, PromptTemplate, Document]
    copy = loads(dumps(router), allowed_objects=known, valid_namespaces=places)
    assert copy.decide(QUESTION) == router.decide(QUESTION)
    assert list(copy.chains) == list(router.chains)
    assert copy.routing == router.routing
