"""Second answers by what was not chosen: in the background, booked apart, learned from."""

import random

import pytest

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier import EfficiencyFrontier, Router, RouterConfig, Shadow
from ecs_plugins.frontier.shadow import background
from ecs_plugins.frontier.spending import savings
from ecs_plugins.integrations.routed_query import RoutedQuery
from ecs_plugins.integrations.supported import SupportJudge
from ecs_plugins.lm import FakeLanguageModel


def shadowed(kind, frontier, ledger, judge=None, **settings):
    shadow = Shadow(share=1.0, judge=judge)
    return kind.routed(frontier, ledger=ledger, shadow=shadow, **settings)


def test_a_second_answer_is_judged_observed_and_booked_apart(kind, frontier, ledger, monkeypatch):
    # Of those that are known as little, the one without a stage 1: it changes no later choice.
    monkeypatch.setattr(random, "choice", lambda points: min(points, key=lambda each: each.stage1))
    judged = []

    def judge(answer):
        judged.append(answer)
        return 0.25

    router = shadowed(kind, frontier, ledger, judge)
    for _ in range(2):
        answer = kind.ask(router, context_id="handbook", reuse=1)
        assert answer.report["strategy"] == "full_context"
        background.finish()
    labels = {each.label for each in judged}
    assert labels == {"memory_compression(ratio=0.5)", "bm25(depth=1)"}
    for each in judged:
        assert each.question == "Who built the mill?"
        assert each.answer == each.chosen_answer == "Hester Vane did"
        assert each.chosen_label == "full_context"
    scores = ledger.observed("score")
    assert {strategy for strategy, _ in scores} == {"memory_compression", "bm25"}
    assert all(mean == 0.25 for _, mean, _ in scores.values())
    booked = {row.strategy: row for row in savings(ledger)}
    assert booked["full_context"].queries == 2
    assert booked["full_context"].cost == 146
    assert booked["bm25 (shadow)"].cost == 73
    assert booked["bm25 (shadow)"].baseline == 0
    assert ledger.count("handbook") == 2


async def test_no_answer_waits_or_fails_because_of_a_second_one(kind, frontier, ledger, caplog):
    def judge(answer):
        raise ZeroDivisionError("the judge is ill")

    router = shadowed(kind, frontier, ledger, judge)
    answer = await kind.aask(router, context_id="handbook", reuse=1)
    assert answer.text == "Hester Vane did"
    background.finish()
    assert "a second answer failed" in caplog.text
    assert ledger.observed("score") == {}
    costs = ledger.observed("cost")
    assert len(costs) == 2  # of the choice, and of the second answer


def test_a_share_is_drawn_and_without_a_shadow_nothing_is_asked_twice(kind, frontier, ledger):
    rare = Shadow(share=1e-9)
    router = kind.routed(frontier, ledger=ledger, shadow=rare)
    kind.ask(router, context_id="handbook", reuse=1)
    background.finish()
    (row,) = savings(ledger)
    assert row.strategy == "full_context"


def test_a_shadow_without_a_ledger_is_refused(kind, frontier):
    with pytest.raises(ValueError, match="give a ledger"):
        kind.routed(frontier, shadow=Shadow(share=0.1))


def test_recalibration_pools_observations_in_running_routers(kind, frontier, ledger, tmp_path):
    path = tmp_path / "frontier.json"
    frontier.save(path)
    running = kind.named(str(path), target_f1=0.7, ledger=ledger)
    assert kind.ask(running, context_id="a", reuse=1).text == "full_context"
    router = Router(frontier, RouterConfig(target_f1=0.7), ledger=ledger)
    bm25 = frontier.decide(budget=60, reuse=1)
    for _ in range(9):
        router.observe(bm25, 0.9)
        ledger.observe(bm25.point.key, "cost", 2.0)
    pooled = router.recalibrate(path).get("bm25", depth=1)
    assert pooled.f1 == pytest.approx((0.5 + 9 * 0.9) / 10)
    assert pooled.n == 10
    assert pooled.stage2 == pytest.approx(50 * (1 + 9 * 2) / 10)
    assert EfficiencyFrontier.load(path).get("bm25", depth=1) == pooled
    assert ledger.observed("score") == {}
    assert kind.ask(running, context_id="a", reuse=1).text == "bm25"


def test_without_a_ledger_there_is_nothing_to_recalibrate_from(frontier, tmp_path):
    router = Router(frontier, RouterConfig(target_f1=0.7))
    with pytest.raises(InvalidInputError, match="ledger"):
        router.recalibrate(tmp_path / "f.json")


def test_a_router_learns_how_well_answers_are_supported_by_their_context(
    kind, frontier, ledger, monkeypatch
):
    monkeypatch.setattr(random, "choice", lambda points: min(points, key=lambda each: each.stage1))
    settings = {"observe_support": True, "support_model": FakeLanguageModel()}
    router = shadowed(kind, frontier, ledger, **settings)
    kind.ask(router, context_id="handbook", reuse=1)
    background.finish()
    scores = {strategy: mean for (strategy, _), (_, mean, _) in ledger.observed("score").items()}
    # The whole context says "Hester Vane built the mill", and so does its best passage.
    assert scores.keys() == {"full_context", "bm25"}
    assert min(scores.values()) > 0.4


def test_the_question_in_a_prompt_supports_no_answer_and_silence_teaches_nothing(
    kind, frontier, ledger
):
    judge = SupportJudge(FakeLanguageModel())
    query = RoutedQuery(Router(frontier, RouterConfig(target_f1=0.7)), None)
    question = "Did Paul Otter of Bergen build it?"
    assert judge.score(query, question) is None
    query.last_call = (f"Context: the wheel has blades.\n\nQuestion: {question}", "Paul Otter did")
    unsupported = judge.score(query, question)
    query.last_call = ("Context: Paul Otter built the wheel.", "Paul Otter did")
    assert unsupported < judge.score(query, question)
    query.last_call = ("Context: the wheel.", "I don't know.")
    assert judge.score(query, question) is None


def test_support_without_a_ledger_is_refused(kind, frontier):
    with pytest.raises(ValueError, match="give a ledger"):
        kind.routed(frontier, observe_support=True)


def test_observations_during_recalibration_are_kept(frontier, ledger, tmp_path, monkeypatch):
    router = Router(frontier, RouterConfig(target_f1=0.7), ledger=ledger)
    bm25 = frontier.decide(budget=60, reuse=1)
    for score in (0.2, 0.4):
        router.observe(bm25, score)
    save = EfficiencyFrontier.save

    def meanwhile(pooled, path):
        router.observe(bm25, 0.9)
        return save(pooled, path)

    monkeypatch.setattr(EfficiencyFrontier, "save", meanwhile)
    router.recalibrate(tmp_path / "f.json")
    (seen,) = ledger.observed("score").values()
    assert seen == pytest.approx((1, 0.9, 0.0), abs=1e-6)
