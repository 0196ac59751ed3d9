"""The router inside LangChain: what it chooses, what shows, what it books, what it refuses."""

import pickle

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.load import dumps, loads
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import ConfigurableField, RunnableLambda, RunnableSequence

from ecs_plugins.errors import ConfigurationError, InvalidInputError, StorageError
from ecs_plugins.frontier import (
    EfficiencyFrontier,
    Provenance,
    ReuseLedger,
    UnreachableTargetError,
    as_answer_model,
    save,
)
from ecs_plugins.langchain import FrontierContext, FrontierRouter, LocalChatModel
from ecs_plugins.lm.fake import FakeLanguageModel
from tests.integration.router_setup import QUESTION, point, points, words

DOCUMENTS = [
    Document("Hester Vane built the mill in 1764.", metadata={"title": "The mill"}),
    Document("The wheel has 32 blades of oak.", metadata={"title": "The wheel"}),
    Document("Bread is baked on Sundays from a red wheat.", metadata={"title": "Bread"}),
]


class SerialisableChat(LocalChatModel):
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


@pytest.fixture
def frontier():
    return EfficiencyFrontier(points())


class Chat(BaseChatModel):
    """Says which prompt it got, with or without usage; streams word by word."""

    reports: bool = True
    fails: bool = False

    @property
    def _llm_type(self):
        return "chat"

    def count_tokens(self, texts):
        return words(texts)

    def _usage(self, text, read, written):
        usage = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
        return usage if self.reports else None

    def _reply(self, messages):
        if self.fails:
            raise RuntimeError("the provider is down")
        text = messages[-1].text
        return "notes of the mill" if "Notes:" in text else "Hester Vane did"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        reply = self._reply(messages)
        message = AIMessage(reply, usage_metadata=self._usage(reply, 70, 3))
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        first, *rest = self._reply(messages).split(" ")
        usage = self._usage("", 70, 3)
        yield ChatGenerationChunk(message=AIMessageChunk(content=first, usage_metadata=usage))
        for word in rest:
            yield ChatGenerationChunk(message=AIMessageChunk(content=f" {word}"))


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
    @pytest.mark.parametrize(
        ("reuse", "expected"),
        [(1, "full_context"), (2.9, "full_context"), (40, "memory_compression")],
    )
    def test_reuse_of_the_field_decides(self, named, reuse, expected):
        assert FrontierRouter(**named, target_f1=0.7, reuse=reuse).invoke("q") == expected

    def test_configurable_overrides_the_field(self, named):
        router = FrontierRouter(**named, target_f1=0.7, reuse=1)
        assert router.invoke("q", {"configurable": {"reuse": 40}}) == "memory_compression"

    def test_input_overrides_configurable(self, named):
        router = FrontierRouter(**named, target_f1=0.7)
        config = {"configurable": {"reuse": 40}}
        assert router.invoke({"question": "q", "reuse": 1}, config) == "full_context"

    def test_an_objective_of_the_call_replaces_that_of_the_router(self, named):
        router = FrontierRouter(**named, target_f1=0.7)
        assert router.invoke({"budget": 60}) == "bm25"
        assert router.invoke("q", {"configurable": {"weight": 0.0}}) == "bm25"

    def test_the_ledger_gives_n_and_counts_each_query_once(self, named, tmp_path):
        ledger = ReuseLedger(tmp_path / "reuse.db")
        ledger.record("handbook", 500)
        router = FrontierRouter(**named, target_f1=0.7, ledger=ledger)
        assert router.invoke({"context_id": "handbook"}) == "memory_compression"
        assert ledger.count("handbook") == 501

    def test_a_dry_run_decides_alike_and_counts_nothing(self, named, tmp_path):
        ledger = ReuseLedger(tmp_path / "reuse.db")
        ledger.record("handbook", 500)
        router = FrontierRouter(**named, target_f1=0.7, ledger=ledger)
        decision = router.decide({"context_id": "handbook"})
        assert decision.strategy == "memory_compression"
        assert decision.why_not()
        assert ledger.count("handbook") == 500

    def test_a_label_is_preferred_to_its_strategy(self, named):
        named["chains"]["memory_compression(ratio=0.5)"] = chain("exactly this")
        assert FrontierRouter(**named, target_f1=0.7, reuse=40).invoke("q") == "exactly this"

    def test_a_policy_rents_before_it_buys_when_n_is_unknown(self, named, tmp_path):
        router = FrontierRouter(
            **named, target_f1=0.7, policy="deterministic", ledger=str(tmp_path / "reuse.db")
        )
        chosen = [router.invoke({"context_id": "c"}) for _ in range(4)]
        assert chosen[0] == "full_context"
        assert chosen[-1] == "memory_compression"


class TestRunning:
    def test_batch_and_abatch_route_every_input_by_itself(self, named):
        router = FrontierRouter(**named, target_f1=0.7)
        inputs = [{"reuse": 1}, {"reuse": 40}]
        assert router.batch(inputs) == ["full_context", "memory_compression"]

    async def test_async_forms_agree_with_the_synchronous_ones(self, named):
        router = FrontierRouter(**named, target_f1=0.7)
        inputs = [{"reuse": 1}, {"reuse": 40}]
        assert await router.abatch(inputs) == router.batch(inputs)
        assert await router.ainvoke(inputs[1]) == "memory_compression"
        assert [c async for c in router.astream(inputs[1])] == ["memory_compression"]

    def test_configurable_fields_rebuild_the_router(self, named):
        router = FrontierRouter(**named, target_f1=0.7).configurable_fields(
            reuse=ConfigurableField(id="queries", name="N"),
            weight=ConfigurableField(id="w"),
        )
        assert {spec.id for spec in router.config_specs} == {"queries", "w"}
        assert router.invoke("q") == "full_context"
        assert router.with_config(configurable={"queries": 40}).invoke("q") == "memory_compression"

    def test_the_default_chain_fills_the_prompt_of_the_calibration(self, frontier):
        prompts = []

        class Listening(Chat):
            def _reply(self, messages):
                prompts.append(messages[-1].text)
                return super()._reply(messages)

        router = default_router(frontier, llm=Listening(), target_f1=None, budget=60)
        assert router.invoke(QUESTION).text == "Hester Vane did"
        assert "Context:\nThe mill: Hester Vane built the mill in 1764." in prompts[0]
        assert "32 blades" not in prompts[0]
        assert prompts[0].endswith(f"Question: {QUESTION}\nAnswer:")

    def test_a_retriever_gives_what_is_asked_about(self, frontier):
        found = RunnableLambda(lambda question: DOCUMENTS[1:] if "blades" in question else [])
        router = default_router(frontier, documents=None, retriever=found)
        assert router.invoke("How many blades?").text == "Hester Vane did"
        with pytest.raises(InvalidInputError, match="document"):
            router.invoke("Who?")

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

    def test_the_decision_is_an_event_before_the_chain_and_the_cost_one_behind_it(self, frontier):
        seen = Recorder()
        default_router(frontier, reuse=40).invoke(QUESTION, {"callbacks": [seen]})
        names = [name for name, _ in seen.events]
        assert names == ["frontier_decision", "frontier_context", "frontier_settlement"]

    def test_a_refused_call_ends_its_run_with_the_error(self, named):
        seen = Recorder()
        with pytest.raises(UnreachableTargetError):
            FrontierRouter(**named, target_f1=0.99).invoke("q", {"callbacks": [seen]})
        assert isinstance(seen.errors[0], UnreachableTargetError)


class TestBooks:
    def test_reported_usage_stands_beside_the_forecast(self, frontier):
        message = default_router(frontier).invoke(QUESTION)
        settlement = message.response_metadata["frontier"]["settlement"]
        assert settlement["expected"] == {"stage1": 0.0, "stage2": 600}
        assert settlement["actual"] == {"stage1": 0.0, "stage2": 73.0}
        assert settlement["ratio"] == pytest.approx(73 / 600)
        assert settlement["tokens"] == {"query": {"answer_input": 70, "answer_output": 3}}

    def test_stage_one_is_paid_by_the_first_query_alone(self, frontier):
        router = default_router(frontier, reuse=40)
        first, second = (
            router.invoke(QUESTION).response_metadata["frontier"]["settlement"]["tokens"]
            for _ in range(2)
        )
        assert first["prepare"] == {"compress_input": 70, "compress_output": 3}
        assert "prepare" not in second
        assert first["query"] == second["query"]

    async def test_concurrent_queries_about_a_new_context_compress_it_once(self, frontier):
        router = default_router(frontier, reuse=40)
        messages = await router.abatch([QUESTION] * 4)
        paid = [
            "prepare" in m.response_metadata["frontier"]["settlement"]["tokens"] for m in messages
        ]
        assert sum(paid) == 1

    def test_what_is_prepared_is_noted_and_sunk_for_the_next_query(self, frontier, tmp_path):
        ledger = ReuseLedger(tmp_path / "reuse.db")
        router = default_router(frontier, reuse=40, ledger=ledger)
        router.invoke(QUESTION)
        # At N = 1 compression would not pay, if it were not there already.
        report = router.invoke({"question": QUESTION, "reuse": 1}).response_metadata["frontier"]
        assert report["strategy"] == "memory_compression"
        assert report["sunk"]

    def test_a_silent_model_is_counted_by_the_given_counter(self, frontier):
        router = default_router(frontier, llm=Chat(reports=False), count_tokens=words)
        tokens = router.invoke(QUESTION).response_metadata["frontier"]["settlement"]["tokens"]
        assert tokens["query"]["answer_output"] == 3
        assert tokens["query"]["answer_input"] > 30

    def test_without_a_counter_a_silent_model_leaves_the_ratio_open(self, frontier):
        message = default_router(frontier, llm=Chat(reports=False)).invoke(QUESTION)
        settlement = message.response_metadata["frontier"]["settlement"]
        assert settlement["uncounted"] == 1
        assert settlement["ratio"] is None

    def test_a_ledger_that_cannot_be_written_does_not_cost_the_answer(self, frontier, tmp_path):
        class Full(ReuseLedger):
            def mark_prepared(self, *args, **kwargs):
                raise StorageError("the disk is full")

        router = default_router(frontier, reuse=40, ledger=Full(tmp_path / "reuse.db"))
        message = router.invoke(QUESTION)
        assert message.text == "Hester Vane did"
        settlement = message.response_metadata["frontier"]["settlement"]
        assert settlement["ledger_error"] == "the disk is full"


class TestFallback:
    def test_it_answers_when_the_chain_fails_and_says_why(self, frontier):
        seen = Recorder()
        router = FrontierRouter(
            frontier=frontier,
            chains={"full_context": Chat(fails=True)},
            fallback=Chat(),
            target_f1=0.7,
        )
        message = router.invoke(QUESTION, {"callbacks": [seen]})
        assert message.text == "Hester Vane did"
        error = "RuntimeError: the provider is down"
        assert seen.named("frontier_fallback") == [{"label": "full_context", "error": error}]
        assert message.response_metadata["frontier"]["settlement"]["fallback_after"] == error

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

    def test_without_one_the_error_is_raised_and_what_was_spent_is_settled(self, frontier):
        seen = Recorder()
        broken = Chat() | RunnableLambda(lambda _: 1 / 0)
        router = FrontierRouter(frontier=frontier, chains={"full_context": broken}, target_f1=0.7)
        with pytest.raises(ZeroDivisionError):
            router.invoke("q", {"callbacks": [seen]})
        (report,) = seen.named("frontier_settlement")
        assert report["settlement"]["actual"]["stage2"] == 73

    def test_a_refused_request_is_not_answered_by_it(self, frontier):
        router = default_router(frontier, fallback="full_context", target_f1=0.99)
        with pytest.raises(UnreachableTargetError):
            router.invoke(QUESTION)


class TestBadInput:
    def test_a_target_above_what_was_measured_names_the_nearest(self, named):
        with pytest.raises(UnreachableTargetError, match=r"nearest is 0\.8000") as caught:
            FrontierRouter(**named, target_f1=0.9).invoke("q")
        assert caught.value.nearest == 0.8

    @pytest.mark.parametrize("reuse", [0, -1, 0.5, float("nan"), "ten", True])
    def test_an_impossible_n_is_refused(self, named, reuse):
        with pytest.raises(InvalidInputError):
            FrontierRouter(**named, target_f1=0.7).invoke({"reuse": reuse})

    def test_no_objective_and_two_objectives_are_refused(self, named):
        with pytest.raises(ConfigurationError, match="exactly one objective"):
            FrontierRouter(**named).invoke("q")
        with pytest.raises(InvalidInputError, match="at most one"):
            FrontierRouter(**named).invoke({"target_f1": 0.7, "weight": 0.9})

    def test_two_objectives_are_refused_when_the_router_is_made(self, named):
        with pytest.raises(ValueError, match="at most one"):
            FrontierRouter(**named, target_f1=0.7, budget=100)

    def test_a_chain_for_a_strategy_that_was_not_measured_is_refused(self, named):
        named["chains"]["bm26"] = chain("?")
        with pytest.raises(ValueError, match="never chooses bm26"):
            FrontierRouter(**named, target_f1=0.7)

    def test_the_same_of_an_artefact_is_refused_when_it_is_read(self, named, tmp_path):
        named["chains"]["bm26"] = chain("?")
        named["frontier"] = str(save(named["frontier"], tmp_path / "frontier.json"))
        with pytest.raises(ConfigurationError, match="never chooses bm26"):
            FrontierRouter(**named, target_f1=0.7).invoke("q")

    def test_a_choice_without_a_chain_is_refused_by_name(self, named):
        del named["chains"]["memory_compression"]
        with pytest.raises(ConfigurationError, match=r"chose memory_compression\(ratio=0.5\)"):
            FrontierRouter(**named, target_f1=0.7, reuse=40).invoke("q")

    def test_a_measured_strategy_that_nothing_here_runs_is_refused_at_once(self):
        frontier = EfficiencyFrontier([*points(), point("graph", 0.9, 0, 900, hops=2)])
        with pytest.raises(ConfigurationError, match="no strategy graph"):
            default_router(frontier)

    def test_a_missing_artefact_is_refused_before_anything_runs(self, tmp_path):
        with pytest.raises(StorageError, match="ecs-plugins calibrate"):
            default_router(str(tmp_path / "none.json"))

    def test_a_damaged_artefact_is_refused(self, tmp_path):
        path = tmp_path / "frontier.json"
        path.write_text("{}")
        with pytest.raises(InvalidInputError):
            default_router(str(path))

    def test_a_frontier_of_another_model_is_refused(self):
        frontier = EfficiencyFrontier(points(), provenance=Provenance(models={"answer": "big"}))
        with pytest.raises(ConfigurationError, match="measured with 'big'"):
            default_router(frontier)
        assert default_router(frontier, same_model=False)

    def test_a_ledger_that_outlives_the_compressions_is_refused(self, frontier, tmp_path):
        with pytest.raises(ConfigurationError, match="cache_dir"):
            default_router(frontier, ledger=str(tmp_path / "reuse.db"))

    def test_compression_without_a_token_counter_is_refused_at_once(self, frontier):
        with pytest.raises(ConfigurationError, match="count_tokens"):
            default_router(frontier, llm=FakeListChatModel(responses=["x"]))

    @pytest.mark.parametrize(
        "fields",
        [
            {"chains": {}},
            {"chains": {"bm25": "not a chain"}},
            {"fallback": "full_context"},
            {"documents": DOCUMENTS, "retriever": RunnableLambda(lambda q: [])},
            {"ledger": 3},
            {"policy": "hope"},
            {"frontier": 3},
        ],
    )
    def test_fields_that_do_not_fit_are_refused(self, named, fields):
        with pytest.raises(ValueError, match=r".+"):
            FrontierRouter(**{**named, "target_f1": 0.7, **fields})

    def test_an_empty_question_is_refused(self, frontier):
        with pytest.raises(InvalidInputError, match="question"):
            default_router(frontier).invoke("  ")


class TestCopies:
    def test_a_pickle_routes_alike(self, frontier, tmp_path):
        ledger = ReuseLedger(tmp_path / "reuse.db")
        router = default_router(frontier, ledger=ledger, reuse=40)
        copy = pickle.loads(pickle.dumps(router))
        assert copy.invoke(QUESTION).text == router.invoke(QUESTION).text
        assert copy.decide(QUESTION).label == router.decide(QUESTION).label

    @pytest.mark.parametrize("as_path", [True, False])
    def test_its_json_routes_alike(self, frontier, tmp_path, as_path):
        source = str(save(frontier, tmp_path / "f.json")) if as_path else frontier
        llm = SerialisableChat(model=None)
        router = default_router(source, llm=llm, reuse=40, policy="deterministic")
        text = dumps(router)
        copy = loads(
            text,
            allowed_objects=CLASSES,
            valid_namespaces=["ecs_plugins", "langchain_core", __name__],
        )
        assert copy.decide(QUESTION) == router.decide(QUESTION)
        assert list(copy.chains) == list(router.chains)
        assert copy.policy == router.policy

    def test_an_artefact_that_was_measured_again_is_read_again(self, frontier, tmp_path, named):
        path = save(frontier, tmp_path / "f.json")
        named["frontier"] = str(path)
        router = FrontierRouter(**named, target_f1=0.7)
        assert router.invoke("q") == "full_context"
        save(EfficiencyFrontier([*points()[1:], point("bm25", 0.9, 0, 70, depth=9)]), path)
        named["chains"].pop("full_context")
        assert FrontierRouter(**named, target_f1=0.7).invoke("q") == "bm25"


def test_a_local_chat_model_lays_a_prompt_out_as_calibration_does():
    scored, answering = FakeLanguageModel(), FakeLanguageModel()
    prompt = "the mill\nWho built it?\nAnswer:"
    as_answer_model(scored).complete([prompt], max_new_tokens=8)
    LocalChatModel(model=answering, open_reply=True).invoke(prompt)
    assert answering.prompts == scored.prompts


def test_a_chat_model_answers_for_calibration():
    model = as_answer_model(Chat())
    (reply,) = model.complete(["Who?"], max_new_tokens=8)
    assert (reply.text, reply.input_tokens, reply.output_tokens) == ("Hester Vane did", 70, 3)
