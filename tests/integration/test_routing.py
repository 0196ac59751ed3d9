"""Common behaviour of both routers: choose, build, count, fall back, refuse."""

import asyncio
import pickle
from types import SimpleNamespace

import pytest

from ecs_plugins.errors import ConfigurationError, InvalidInputError, StorageError
from ecs_plugins.frontier import EfficiencyFrontier, ReuseLedger
from ecs_plugins.frontier.answering import as_answer_model
from ecs_plugins.frontier.cost import Provenance
from ecs_plugins.frontier.prices import ModelPrice, PriceVector
from ecs_plugins.integrations import tracing
from tests.integration import routing_setup
from tests.integration.routing_setup import (
    NAMES,
    QUESTION,
    USAGE,
    Chat,
    Completing,
    first_answer_fails,
    point,
    points,
)
from tests.unit.frontier.conftest import sample_measurements

LOW = [("full_context", 0.6, 0, 600), ("memory_compression", 0.5, 9, 100), ("bm25", 0.4, 0, 9)]


class TestChoice:
    @pytest.mark.parametrize(
        ("reuse", "expected"), [(1, NAMES[0]), (2.9, NAMES[0]), (40, NAMES[1])]
    )
    async def test_reuse_decides_wherever_it_is_given(self, kind, frontier, reuse, expected):
        router = kind.named(frontier, target_f1=0.7, reuse=reuse)
        answer = kind.ask(router)
        assert answer.text == expected
        router = kind.named(frontier, target_f1=0.7, reuse=3)
        answer = kind.ask(router, reuse=reuse)
        assert answer.text == expected
        answer = await kind.aask(router, reuse=reuse)
        assert answer.text == expected

    @pytest.mark.parametrize("request_", [{"budget": 60}, {"weight": 0.0}])
    def test_an_objective_of_the_call_replaces_that_of_the_router(self, kind, frontier, request_):
        router = kind.named(frontier, target_f1=0.7)
        answer = kind.ask(router, **request_)
        assert answer.text == "bm25"

    def test_the_ledger_gives_n_and_counts_each_query_once(self, kind, frontier, ledger):
        for _ in range(60):
            ledger.count_query("handbook")
        router = kind.named(frontier, target_f1=0.7, ledger=ledger)
        answer = kind.ask(router, context_id="handbook")
        assert answer.text == "memory_compression"
        decision = kind.decide(router, context_id="handbook")
        assert decision.strategy == answer.text
        assert decision.why_not()
        assert ledger.count("handbook") == 61

    def test_preparation_is_recorded_and_sunk_for_the_next_query(self, kind, frontier, ledger):
        router = kind.routed(frontier, ledger=ledger)
        answer = kind.ask(router, reuse=40)
        assert answer.report["strategy"] == NAMES[1]
        # At N = 1 compression would not pay, if it were not there already.
        answer = kind.ask(router, reuse=1)
        assert answer.report["strategy"] == NAMES[1]
        assert answer.report["sunk"]
        assert sum(spend.queries for spend in ledger.spent_by_tenants()) == 2

    def test_cautious_and_in_time_are_settings(self, kind, ledger):
        rows, _ = sample_measurements(questions=60)
        measured = EfficiencyFrontier.from_measurements(rows)
        memory = measured.get("memory", ratio=0.25)
        lower = measured.f1_interval(memory).low
        known = {
            "names": ("full", "tfidf", "memory"),
            "reuse": 100,
            "target_f1": (memory.f1 + lower) / 2,
            "ledger": ledger,
        }
        router = kind.named(measured, **known)
        assert kind.ask(router).text == "memory"
        router = kind.named(measured, routing={"cautious": True}, **known)
        assert kind.ask(router).text == "full"
        with pytest.raises(ValueError, match="at p95"):
            kind.named(measured, routing={"max_seconds": 0.1}, **known)

    def test_an_unreachable_objective_is_refused_at_the_start(self, kind, frontier):
        for settings in ({"target_f1": 0.95}, {"routing": {"budget": 1.0}}):
            with pytest.raises(ValueError, match=r"the nearest|costs at most"):
                kind.named(frontier, **settings)

    @pytest.mark.parametrize(
        ("newer", "provenance", "said"),
        [
            ([*points(), point("dense", 0.9, 0, 70)], Provenance(), "nothing runs"),
            (points()[:2], Provenance(), "never chooses bm25"),
            ([point("full_context", 0.6, 0, 600), *points()[2:]], Provenance(), "never chooses"),
            ([point(*each) for each in LOW], Provenance(), "no measured strategy"),
            (points()[1:], Provenance(models={"answer": "other"}), "answer: other"),
            (None, Provenance(), "not valid JSON"),
        ],
    )
    def test_only_a_compatible_new_artefact_is_loaded(
        self, kind, frontier, tmp_path, caplog, newer, provenance, said
    ):
        path = tmp_path / "f.json"
        frontier.save(path)
        router = kind.named(str(path), target_f1=0.7)
        answer = kind.ask(router)
        assert answer.text == "full_context"
        if newer is None:
            path.write_text("{")
        else:
            EfficiencyFrontier(newer, provenance=provenance).save(path)
        for _ in range(2):
            answer = kind.ask(router)
            assert answer.text == "full_context"
        assert len(caplog.records) == 1
        assert said in caplog.text
        first, second, *_ = points()
        better = point("bm25", 0.9, 0, 70, depth=9)
        EfficiencyFrontier([first, second, better]).save(path)
        answer = kind.ask(router)
        assert answer.text == "bm25"


class TestCounting:
    def test_the_prompt_of_the_calibration_is_filled_also_by_a_retriever(self, kind, frontier):
        llm = kind.model()
        router = kind.routed(frontier, llm=llm, target_f1=None, routing={"budget": 60})
        answer = kind.ask(router)
        assert answer.text == "Hester Vane did"
        (prompt,) = llm.prompts
        assert "Context:\nThe mill: Hester Vane built the mill in 1764." in prompt
        assert "32 blades" not in prompt
        assert prompt.endswith(f"Question: {QUESTION}\nAnswer:")
        router = kind.routed(frontier, llm=llm, found="Somebody built it.")
        kind.ask(router)
        assert "Somebody built it." in llm.prompts[1]

    async def test_reported_usage_stands_beside_the_forecast(self, kind, frontier):
        router = kind.routed(frontier)
        answers = [kind.ask(router)]
        answers.append(await kind.aask(router))
        for answer in answers:
            assert answer.report["label"] == "full_context"
            settlement = answer.settlement
            assert settlement["expected"] == {"stage1": 0.0, "stage2": 600}
            assert settlement["actual"] == {"stage1": 0.0, "stage2": 73.0}
            assert settlement["ratio"] == pytest.approx(73 / 600)
            assert settlement["tokens"] == {"query": USAGE}

    def test_cached_prompt_tokens_are_booked_at_their_price(self, kind, frontier):
        price = ModelPrice(input=1.0, output=1.0, cached_input=0.1)
        prices = PriceVector(unit="USD", answer=price)
        priced = EfficiencyFrontier(frontier.points, prices=prices)
        router = kind.routed(priced, llm=kind.model(cached=60))
        settlement = kind.ask(router).settlement
        billed = 10 + 60 * 0.1 + 3
        assert settlement["actual"]["stage2"] == pytest.approx(billed)
        assert settlement["cache"] == {"read": 60, "written": 0, "written_1h": 0}

    async def test_one_of_concurrent_queries_alone_pays_for_stage_one(self, kind, frontier):
        router = kind.routed(frontier, reuse=40)
        queries = [kind.aask(router) for _ in range(4)]
        answers = await asyncio.gather(*queries)
        spent = [answer.settlement["tokens"] for answer in answers]
        *others, one = sorted(spent, key=len)
        assert one["prepare"] == {"compress_input": 70, "compress_output": 3}
        assert one["query"] == USAGE
        assert others == [{"query": USAGE}] * 3
        later = kind.ask(router)
        assert later.settlement["tokens"] == {"query": USAGE}

    def test_a_silent_model_is_counted_by_the_given_counter(self, kind, frontier):
        router = kind.routed(frontier, llm=kind.model(reports=False))
        answer = kind.ask(router)
        tokens = answer.settlement["tokens"]["query"]
        assert tokens["answer_output"] == 3
        assert tokens["answer_input"] > 30

    def test_a_ledger_that_cannot_be_written_or_opened_does_not_cost_the_answer(
        self, kind, frontier, ledger, tmp_path, monkeypatch
    ):
        def full(*_, **__):
            raise StorageError("the disk is full")

        monkeypatch.setattr(ReuseLedger, "book", full)
        router = kind.routed(frontier, reuse=40, ledger=ledger)
        answer = kind.ask(router)
        assert answer.text == "Hester Vane did"
        assert answer.settlement["ledger_error"] == "the disk is full"
        file = tmp_path / "file"
        file.write_text("in the way")
        blocked = str(file / "reuse.db")
        router = kind.routed(frontier, ledger=blocked, cache_dir=str(tmp_path))
        answer = kind.ask(router, context_id="c")
        assert answer.text == "Hester Vane did"
        assert "the ledger failed: cannot open" in answer.report["note"]


class TestTrace:
    def test_decision_and_cost_are_attributes_of_the_span_of_opentelemetry(
        self, kind, frontier, monkeypatch
    ):
        set_on_span = {}
        span = SimpleNamespace(set_attribute=set_on_span.__setitem__)
        trace = SimpleNamespace(get_current_span=lambda: span)
        monkeypatch.setattr(tracing, "_opentelemetry", lambda: trace)
        router = kind.routed(frontier)
        kind.ask(router)
        assert set_on_span["ecs_plugins.frontier.label"] == "full_context"
        assert set_on_span["ecs_plugins.frontier.settlement.actual.stage2"] == 73


class TestFallback:
    async def test_it_answers_when_the_choice_fails_and_says_why(self, kind, frontier):
        llm = kind.model(fails=True)
        router = kind.routed(frontier, llm=llm)
        router.fallback = kind.named(frontier, target_f1=0.7)
        answers = [kind.ask(router)]
        answers.append(await kind.aask(router))
        for answer in answers:
            assert answer.text == "full_context"
            assert answer.settlement["fallback_after"] == "RuntimeError: the provider is down"

    def test_without_fallback_the_error_is_raised_and_preparation_recorded(
        self, kind, frontier, ledger, monkeypatch
    ):
        router = kind.routed(frontier, ledger=ledger)
        monkeypatch.setattr(routing_setup, "reply_to", first_answer_fails)
        with pytest.raises(RuntimeError, match="provider"):
            kind.ask(router, context_id="c", reuse=40)
        assert ledger.prepared("c")

    def test_preparation_by_the_fallback_is_recorded_as_its_own(
        self, kind, frontier, ledger, monkeypatch
    ):
        router = kind.routed(frontier, ledger=ledger, fallback="memory_compression(ratio=0.5)")
        monkeypatch.setattr(routing_setup, "reply_to", first_answer_fails)
        answer = kind.ask(router, context_id="c", reuse=1)
        assert "fallback_after" in answer.settlement
        ((strategy, _),) = ledger.prepared("c")
        assert strategy == "memory_compression"

    def test_a_preparation_on_disk_is_found_before_the_decision(
        self, kind, frontier, ledger, tmp_path
    ):
        folder = str(tmp_path / "notes")
        kind.ask(kind.routed(frontier, cache_dir=folder, ledger=ledger), context_id="c", reuse=40)
        ledger.forget("c")
        for known in (ledger, None):
            router = kind.routed(frontier, cache_dir=folder, ledger=known)
            answer = kind.ask(router, context_id="c", reuse=1)
            assert answer.report["sunk"]
            assert answer.settlement["actual"]["stage1"] == 0


class TestBadInput:
    def test_no_objective_and_two_objectives_are_refused(self, kind, frontier):
        router = kind.named(frontier)
        with pytest.raises(ConfigurationError, match="exactly one objective"):
            kind.ask(router)
        with pytest.raises(InvalidInputError, match="at most one"):
            kind.ask(router, target_f1=0.7, weight=0.9)
        with pytest.raises(ValueError, match="at most one"):
            kind.named(frontier, target_f1=0.7, routing={"budget": 100})

    @pytest.mark.parametrize("as_path", [True, False])
    def test_a_strategy_that_was_not_measured_is_refused(self, kind, frontier, tmp_path, as_path):
        source = frontier
        if as_path:
            source = str(frontier.save(tmp_path / "f.json"))
        names = (*NAMES, "bm26")
        with pytest.raises(ValueError, match="never chooses bm26"):
            kind.ask(kind.named(source, names, target_f1=0.7))
        with pytest.raises(ValueError, match="is empty"):
            kind.named(source, (), target_f1=0.7)

    def test_a_choice_that_nothing_runs_is_refused_by_name(self, kind, frontier):
        with pytest.raises(ConfigurationError, match=r"chooses memory_compression\(ratio=0.5\)"):
            kind.named(frontier, ("full_context", "bm25"), target_f1=0.7)

    def test_a_missing_or_damaged_artefact_is_refused(self, kind, tmp_path):
        path = tmp_path / "frontier.json"
        with pytest.raises(StorageError, match="ecs-plugins calibrate"):
            kind.routed(str(path))
        path.write_text("{}")
        with pytest.raises(InvalidInputError):
            kind.routed(str(path))
        with pytest.raises(ValueError, match="EfficiencyFrontier"):
            kind.named(3, target_f1=0.7)

    def test_a_frontier_of_another_model_is_refused(self, kind):
        provenance = Provenance(models={"answer": "big"})
        frontier = EfficiencyFrontier(points(), provenance=provenance)
        with pytest.raises(ConfigurationError, match="measured with 'big'"):
            kind.routed(frontier)
        assert kind.routed(frontier, same_model=False)

    @pytest.mark.parametrize(
        ("settings", "said"),
        [
            ({"count_tokens": None}, "count_tokens"),
            ({"prompt": "no places"}, "context"),
            ({"fallback": "nothing"}, "nothing"),
            ({"routing": {"policy": "hope"}}, "policy"),
            ({"reuse": "5"}, "reuse"),
            ({"target_f2": 0.7}, "did you mean target_f1"),
        ],
    )
    def test_settings_that_do_not_fit_are_refused_by_name(self, kind, frontier, settings, said):
        with pytest.raises(ConfigurationError, match=said):
            kind.routed(frontier, **settings)


class TestCopies:
    def test_a_pickle_routes_and_settles_alike(self, kind, frontier, tmp_path):
        router = kind.routed(frontier, cache_dir=str(tmp_path / "notes"), fallback="full_context")
        copy = pickle.loads(pickle.dumps(router))
        for reuse in (1, 40):
            ours = kind.ask(router, reuse=reuse)
            theirs = kind.ask(copy, reuse=reuse)
            assert theirs.text == ours.text
            assert theirs.report["label"] == ours.report["label"]


def test_a_model_of_the_framework_answers_for_calibration(kind):
    model = as_answer_model(kind.model())
    names = {Chat: "Chat", Completing: "reporting"}
    assert model.name == names[kind.model]
    (reply,) = model.complete(["Who?"], max_new_tokens=8)
    assert reply.text == "Hester Vane did"
    assert reply.input_tokens == 70
    assert reply.output_tokens == 3
