"""Features of LangChain's router alone: configuration, batches, streams, traces, JSON."""

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.language_models import BaseLLM
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import Generation, LLMResult
from langchain_core.runnables import ConfigurableField, RunnableLambda

from ecs_plugins.frontier.decision import UnreachableTargetError
from ecs_plugins.langchain import FrontierRouter
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


@pytest.mark.parametrize("sizes", [(10, 10), (1000, 30)])
def test_savings_are_against_the_whole_context_of_each_query(frontier, ledger, sizes):
    router = LangChain().routed(frontier, ledger=ledger, documents=None, reuse=40, llm=Chat())
    texts = ["word " * size for size in sizes]
    for text in texts:
        router.invoke({"question": QUESTION, "documents": [Document(text)]})
    (spend,) = ledger.spent_by_tenants()
    assert spend.compared == spend.cost
    whole = sum(words([f"{text} {QUESTION}"])[0] for text in texts)
    assert spend.baseline == whole + 3 * len(texts)  # and the answers


@pytest.mark.parametrize("counter", [None, words])
def test_a_stream_that_is_left_early_is_counted_or_unknown(frontier, ledger, counter):
    chat = GenericFakeChatModel(messages=iter([AIMessage("one two three four")]))
    router = FrontierRouter(
        frontier=frontier,
        chains=dict.fromkeys(NAMES, chat),
        target_f1=0.7,
        ledger=ledger,
        count_tokens=counter,
    )
    chunks = router.stream("Who built it?")
    next(chunks)
    chunks.close()
    (spend,) = ledger.spent_by_tenants()
    assert (spend.queries, spend.unknown) == (1, int(counter is None))
    assert (spend.cost > 3) == (counter is not None)


def test_a_batch_of_a_completion_model_is_counted_once(frontier, ledger):
    class Classic(BaseLLM):
        @property
        def _llm_type(self):
            return "classic"

        def _generate(self, prompts, stop=None, run_manager=None, **kwargs):
            usage = {"prompt_tokens": 100 * len(prompts), "completion_tokens": len(prompts)}
            generations = [[Generation(text="a")] for _ in prompts]
            return LLMResult(generations=generations, llm_output={"token_usage": usage})

    llm = Classic()
    mapped = RunnableLambda(lambda _: llm.batch(["q"] * 3)[0])
    router = FrontierRouter(
        frontier=frontier, chains=dict.fromkeys(NAMES, mapped), target_f1=0.7, ledger=ledger
    )
    router.invoke("Who built it?")
    (spend,) = ledger.spent_by_tenants()
    assert (spend.unknown, spend.cost) == (0, 303)
