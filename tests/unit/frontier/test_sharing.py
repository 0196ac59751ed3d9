"""Shared state of routers with one ledger."""

import pytest

from ecs_plugins.frontier.decision import RouterConfig
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.reuse import ReuseLedger
from ecs_plugins.frontier.routing import Router
from ecs_plugins.tokens import Role, Stage, TokenLedger

from .conftest import point

BOTH_ENGINES = True


def workers(frontier, tmp_path, located, count):
    path = located(tmp_path / "shared.db")
    config = RouterConfig(target_f1=0.78)
    routers = []
    for _ in range(count):
        router = Router(frontier, config, ledger=ReuseLedger(path))
        routers.append(router)
    return routers


def asked_at_once(routers):
    return [router.route(context_id="new", reuse=100).strategy for router in routers]


def test_one_of_many_workers_prepares_a_new_context_and_the_others_answer_without(
    frontier, tmp_path, located
):
    routers = workers(frontier, tmp_path, located, 4)
    decisions = [router.route(context_id="new", reuse=100) for router in routers]
    assert [decision.strategy for decision in decisions] == ["memory", "tfidf", "tfidf", "tfidf"]
    assert "memory(ratio=0.3) is being prepared elsewhere" in decisions[1].note
    prepared = TokenLedger({(Stage.PREPARE, Role.COMPRESS_INPUT): 1500})
    routers[0].settle(decisions[0], prepared, context_id="new")
    assert routers[3].route(context_id="new", reuse=100).sunk


def test_who_fails_to_prepare_lets_the_next_try_at_once(frontier, tmp_path, located):
    first, second = workers(frontier, tmp_path, located, 2)
    failing = first.route(context_id="new", reuse=100)
    waiting = second.route(context_id="new", reuse=100)
    second.settle(waiting, TokenLedger(), context_id="new")
    assert asked_at_once([second]) == ["tfidf"]
    first.settle(failing, TokenLedger(), context_id="new")
    assert asked_at_once([second, first]) == ["memory", "tfidf"]


def test_who_never_says_that_it_has_prepared_is_not_waited_for(frontier, tmp_path, located):
    routers = workers(frontier, tmp_path, located, 2)
    for now, expected in ((0.0, ["memory", "tfidf"]), (200.0, ["memory", "tfidf"])):
        for router in routers:
            router.ledger._clock = lambda now=now: now
        assert asked_at_once(routers) == expected


def test_a_preparation_that_nothing_can_do_without_is_paid_by_each(tmp_path, located):
    memory = point("memory", 0.8, 1000, 10)
    tfidf = point("tfidf", 0.5, 0, 10)
    frontier = EfficiencyFrontier([memory, tfidf])
    routers = workers(frontier, tmp_path, located, 2)
    assert asked_at_once(routers) == ["memory", "memory"]


@pytest.mark.parametrize("policy", [None, "deterministic"])
def test_queries_at_another_target_are_a_game_of_their_own(ledger, policy):
    points = [
        point("bm25", 0.55, 0, 150, depth=2),
        point("full", 0.84, 0, 1308),
        point("notes", 0.79, 20_000, 409),
    ]
    config = RouterConfig(target_f1=0.5, policy=policy)
    router = Router(EfficiencyFrontier(points), config, ledger=ledger)
    for _ in range(100):
        router.route(context_id="handbook")
    decision = router.route(context_id="handbook", target_f1=0.78)
    assert decision.strategy == "full"
    assert ledger.count("handbook") == 101
    assert "query 1 of this context" in decision.note
    usual = router.route(context_id="handbook", target_f1=0.5)
    assert "query 102" not in usual.note


@pytest.mark.parametrize("context", ["\ud800", "nul\0", "Bücher", "x" * 5000])
def test_any_text_is_an_id(frontier, ledger, context):
    router = Router(frontier, RouterConfig(target_f1=0.78), ledger=ledger)
    router.route(context_id=context)
    assert ledger.count(context) == 1
    assert ledger.count(context + "y") == 0


def test_of_points_that_cost_the_same_the_better_is_chosen_at_every_weight():
    worse = point("a", 0.5, 0, 100)
    better = point("b", 0.7, 0, 100)
    frontier = EfficiencyFrontier([worse, better])
    for weight in (0.0, 0.5, 1.0):
        decision = frontier.decide(weight=weight, reuse=1)
        assert decision.point == better


@pytest.mark.parametrize("asked", [{"target_f1": 0.4}, {"weight": 0.5}, {"budget": 1e301}])
def test_costs_as_far_apart_as_floats_can_be_are_explained(asked):
    tiny = point("a", 0.5, 0, 1e-310)
    huge = point("b", 0.7, 0, 1e300)
    frontier = EfficiencyFrontier([tiny, huge])
    decision = frontier.decide(reuse=1, **asked)
    assert decision.explain()
    assert len(decision.why_not()) == 1


def test_without_a_context_id_the_note_says_why_nothing_is_counted(frontier, ledger):
    router = Router(frontier, RouterConfig(target_f1=0.78), ledger=ledger)
    decision = router.route()
    assert "no context_id by which the ledger could count" in decision.note
