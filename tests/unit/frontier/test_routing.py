import pickle
import random
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest

from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.frontier import reuse
from ecs_plugins.frontier.cost import StrategyPoint, Usage
from ecs_plugins.frontier.decision import RouterConfig, UnreachableTargetError
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.prices import ModelPrice, PriceVector
from ecs_plugins.frontier.rental import decide_online
from ecs_plugins.frontier.reuse import ReuseLedger
from ecs_plugins.frontier.routing import Router
from ecs_plugins.frontier.usage import reported_usage
from ecs_plugins.tokens import Role, Stage, TokenLedger

from .conftest import count, note_prepared, point

PROMPT = (Stage.QUERY, Role.ANSWER_INPUT)


def test_without_n_and_ledger_a_query_stands_alone(frontier):
    router = Router(frontier, RouterConfig(target_f1=0.78))
    decision = router.route()
    assert decision.strategy == "tfidf"
    assert decision.reuse == 1.0
    assert "no reuse was given" in decision.explain()
    assert "no reuse was given" in decision._repr_html_()


def test_unknown_n_is_rented_until_it_breaks_even(frontier, ledger):
    config = RouterConfig(target_f1=0.78, policy="deterministic")
    router = Router(frontier, config, ledger=ledger)
    chosen = [router.route(context_id="a").strategy for _ in range(11)]
    # 1500 / (566 - 409) = 9.55 queries to break even.
    assert chosen == ["tfidf"] * 9 + ["memory"] * 2


def spent(prepare, query):
    ledger = TokenLedger()
    ledger.book(Stage.PREPARE, Role.COMPRESS_INPUT, prepare)
    ledger.book(Stage.QUERY, Role.ANSWER_INPUT, query)
    return ledger


@pytest.mark.parametrize(("paid", "found"), [(1600, False), (0, True)])
def test_settling_reports_expected_against_actual_and_sinks_stage_one(
    frontier, ledger, paid, found
):
    router = Router(frontier, RouterConfig(target_f1=0.78), ledger=ledger)
    decision = router.route(context_id="a", reuse=100)
    done = None
    if found:
        done = {decision.point.key: TokenLedger()}
    settled = router.settle(decision, spent(paid, 450), context_id="a", prepared=done)
    assert settled.expected_stage1 == 1500
    assert settled.actual_stage1 == paid
    assert settled.ratio == pytest.approx(450 / 409)
    following = router.route(context_id="a", reuse=1)
    assert following.strategy == "memory"
    assert following.sunk
    assert following.stage1 == 0


def test_a_prompt_that_a_cache_holds_after_one_query_is_sunk(ledger):
    long = Usage({PROMPT: 1000.0}, shared_input=900.0)
    short = Usage({PROMPT: 400.0})
    price = ModelPrice(input=1.0, output=1.0, cached_input=0.1)
    full = StrategyPoint("full", {}, 0.8, 0, 1000, usage=long)
    bm25 = StrategyPoint("bm25", {}, 0.8, 0, 400, usage=short)
    frontier = EfficiencyFrontier([full, bm25]).priced(PriceVector(answer=price))
    router = Router(frontier, RouterConfig(target_f1=0.7), ledger=ledger)
    first = router.route(context_id="a", reuse=100)
    assert first.strategy == "full"
    assert first.stage1 == 810
    router.settle(first, spent(0, 1000), context_id="a")
    following = router.route(context_id="a", reuse=1)
    assert following.strategy == "full"
    assert ledger.prepared("a") == {first.point.key: 810}


def test_the_memory_of_a_scoring_model_is_sunk_only_where_it_is_found(ledger):
    tokens = {(Stage.PREPARE, Role.SCORER): 900.0, PROMPT: 300.0}
    ecs = StrategyPoint("ecs", {}, 0.8, 900, 300, usage=Usage(tokens))
    frontier = EfficiencyFrontier([ecs, point("full", 0.8, 0, 1000)])
    note_prepared(ledger, "a", ecs.key, 900)  # as the process before noted it
    router = Router(frontier, RouterConfig(target_f1=0.7), ledger=ledger)
    following = router.route(context_id="a", reuse=1)
    assert following.strategy == "full"
    following = router.route(context_id="a", reuse=1, stored={ecs.key: True})
    assert following.strategy == "ecs"
    assert following.sunk


def test_a_preparation_that_is_gone_is_due_whatever_the_ledger_says(frontier, ledger):
    router = Router(frontier, RouterConfig(target_f1=0.78), ledger=ledger)
    key = frontier.get("memory", ratio=0.3).key
    note_prepared(ledger, "a", key, 1500)
    assert router.route(context_id="a", reuse=1).sunk
    gone = router.route(context_id="a", reuse=1, stored={key: False})
    assert gone.strategy == "tfidf"
    there = router.route(context_id="b", reuse=1, stored={key: True})
    assert there.sunk
    alone = Router(frontier, RouterConfig(target_f1=0.78)).route(stored={key: True})
    assert alone.sunk


def test_the_first_context_is_expected_to_get_as_many_queries_as_have_come(frontier, ledger):
    router = Router(frontier, RouterConfig(target_f1=0.78), ledger=ledger)
    chosen = []
    for seen in range(1, 12):
        decision = router.route(context_id="a")
        assert decision.reuse == 1 + seen
        chosen.append(decision.strategy)
    # 1500 / (566 - 409) = 9.55, so from N = 10 on.
    assert chosen == ["tfidf"] * 8 + ["memory"] * 3
    assert "query 11 of this context, 11.0 more expected" in decision.note


def test_a_new_context_is_expected_to_get_as_many_queries_as_the_others(frontier, ledger):
    router = Router(frontier, RouterConfig(target_f1=0.78), ledger=ledger)
    for context in range(40):
        count(ledger, f"c{context}", 40)
    assert router.route(context_id="new").strategy == "memory"
    for context in range(40):
        count(ledger, f"once {context}")
    assert router.route(context_id="newer").strategy == "tfidf"


@pytest.mark.parametrize(
    "asked", [{"target_f1": 0.95}, {"budget": 1.0}, {"target_f1": 0.5, "max_seconds": 1e-9}]
)
def test_a_query_that_is_refused_is_not_counted(measured_frontier, ledger, asked):
    router = Router(measured_frontier, RouterConfig(**asked), ledger=ledger)
    for _ in range(3):
        with pytest.raises(UnreachableTargetError):
            router.route(context_id="a")
    assert ledger.count("a") == 0
    with pytest.raises(UnreachableTargetError):
        router.check_reachable()


def test_a_stage_1_is_expected_once_while_its_query_is_under_way(frontier, ledger):
    router = Router(frontier, RouterConfig(target_f1=0.78), ledger=ledger)
    decisions = [router.route(context_id="a", reuse=40) for _ in range(16)]
    assert {decision.strategy for decision in decisions} == {"memory"}
    assert [decision.stage1 > 0 for decision in decisions] == [True] + [False] * 15


def recorded_trace():
    """(seconds, context, usage) of 200 calls about 4 documents, with the provider's cache."""
    rng = random.Random(3)
    alive = {}
    now = 0.0
    for _ in range(200):
        now += rng.expovariate(1 / 100)
        context = rng.randrange(4)
        question = rng.randint(20, 60)
        shared = 3000 + 500 * context
        kind = "cache_creation"
        if now <= alive.get(context, -1):
            kind = "cache_read"
        alive[context] = now + 300
        usage = {
            "input_tokens": shared + question,
            "output_tokens": rng.randint(5, 30),
            "input_token_details": {kind: shared},
        }
        yield now, context, usage


def billed_by_hand(usage):
    """Return the provider's price of a call in USD."""
    details = usage["input_token_details"]
    read = details.get("cache_read", 0)
    written = details.get("cache_creation", 0)
    fresh = usage["input_tokens"] - read - written
    prompt = 3e-6 * fresh + 0.3e-6 * read + 3.75e-6 * written
    return prompt + 15e-6 * usage["output_tokens"]


def test_a_recorded_trace_of_200_calls_is_billed_and_forecast_within_five_percent(tmp_path):
    price = ModelPrice(input=3e-6, output=15e-6, cached_input=0.3e-6, cache_write=3.75e-6)
    tokens = {PROMPT: 3790, (Stage.QUERY, Role.ANSWER_OUTPUT): 17.5}
    full = StrategyPoint("full", {}, 0.8, 0, 1, usage=Usage(tokens, shared_input=3750))
    other = StrategyPoint("none", {}, 0.1, 0, 1, usage=Usage(tokens))
    prices = PriceVector(unit="USD", answer=price)
    frontier = EfficiencyFrontier([full, other]).priced(prices)
    clock = [0.0]
    bill = 0.0
    billed = 0.0
    forecast = 0.0
    ledger = ReuseLedger(tmp_path / "r.db", clock=lambda: clock[0])
    router = Router(frontier, RouterConfig(target_f1=0.7), ledger=ledger)
    for clock[0], context, usage in recorded_trace():
        bill += billed_by_hand(usage)
        name = f"c{context}"
        decision = router.route(context_id=name)
        actual = spent(0, usage["input_tokens"])
        actual.book(Stage.QUERY, Role.ANSWER_OUTPUT, usage["output_tokens"])
        cache = reported_usage({"usage_metadata": usage}).cache
        settled = router.settle(decision, actual, context_id=name, cache=cache)
        billed += settled.actual_stage1 + settled.actual_stage2
        forecast += settled.expected_stage1 + settled.expected_stage2
    assert billed == pytest.approx(bill, rel=1e-6)
    assert forecast == pytest.approx(bill, rel=0.05)


@pytest.mark.parametrize("policy", [None, "deterministic"])
def test_only_what_answers_in_time_is_chosen_and_the_others_say_why(
    measured_frontier, ledger, policy
):
    full = measured_frontier.get("full")
    tfidf = measured_frontier.get("tfidf", depth=4)
    slow = measured_frontier.latency(full).p95
    fast = measured_frontier.latency(tfidf).p95
    between = (slow + fast) / 2
    config = RouterConfig(target_f1=tfidf.f1 - 0.01, policy=policy, max_seconds=between)
    router = Router(measured_frontier, config, ledger=ledger)
    reuse = None if policy else 1.0
    decision = router.route(context_id="a", reuse=reuse)
    assert decision.strategy in ("tfidf", "memory")
    reasons = decision.why_not()
    assert "p95 latency of 1.3" in reasons["full"]
    with pytest.raises(UnreachableTargetError, match="no measured strategy"):
        router.route(target_f1=full.f1)
    with pytest.raises(UnreachableTargetError, match="the nearest is") as refused:
        measured_frontier.decide(reuse=1, weight=0.9, max_seconds=0.01)
    nearest = refused.value.nearest
    decision = measured_frontier.decide(reuse=1, weight=0.9, max_seconds=nearest)
    assert decision.strategy == "memory"


def test_more_cached_tokens_than_were_read_are_refused(frontier, ledger):
    router = Router(frontier, RouterConfig(target_f1=0.78), ledger=ledger)
    decision = router.route(reuse=10)
    with pytest.raises(InvalidInputError, match="of 10 prompt"):
        router.settle(decision, spent(0, 10), cache=(9, 2, 0))


def test_what_was_paid_is_not_forgotten_when_it_is_found_later(frontier, ledger):
    router = Router(frontier, RouterConfig(target_f1=0.78), ledger=ledger)
    decision = router.route(context_id="a", reuse=100)
    key = decision.point.key
    for tokens in (spent(1500, 0), TokenLedger()):
        router.settle(decision, spent(0, 450), context_id="a", prepared={key: tokens})
    assert ledger.prepared("a") == {key: 1500}


def test_a_locked_ledger_costs_no_answer_and_the_decision_says_so(
    frontier, ledger, tmp_path, monkeypatch
):
    monkeypatch.setattr(reuse, "BUSY_SECONDS", 0.01)
    path = tmp_path / "r.db"
    other = ReuseLedger(path)
    router = Router(frontier, RouterConfig(target_f1=0.78), ledger=other)
    with sqlite3.connect(path, isolation_level=None) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        alone = router.route(context_id="a")
        known = router.route(context_id="a", reuse=100)
        settled = router.settle(known, spent(1600, 450), context_id="a")
        writer.execute("ROLLBACK")
    assert alone.strategy == "tfidf"
    assert known.strategy == "memory"
    for decision in (alone, known):
        assert "the ledger failed" in decision.note
        assert "locked" in decision.note
    assert "locked" in settled.ledger_error
    assert settled.actual_stage1 == 1600
    assert ledger.count("a") == 0


def test_a_pickled_router_serves_many_threads(frontier, ledger, monkeypatch):
    monkeypatch.setattr(reuse, "BUSY_SECONDS", 60.0)  # a busy machine is no locked ledger
    router = Router(frontier, RouterConfig(target_f1=0.78), ledger=ledger)
    router = pickle.loads(pickle.dumps(router))

    def ask(_):
        decision = router.route(context_id="a", reuse=1)
        router.settle(decision, spent(0, 100), context_id="a")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(80)))
    assert ledger.count("a") == 80


@pytest.mark.parametrize(
    "settings",
    [
        {"target_f1": 0.5, "weight": 0.5},
        {"weight": 0.5, "policy": "deterministic"},
        {"target_f1": 0.5, "policy": "hope"},
        {"target_f1": 0.5, "max_seconds": 0},
    ],
)
def test_impossible_router_settings_are_refused(settings):
    with pytest.raises(ConfigurationError):
        RouterConfig(**settings)


def test_what_was_prepared_before_the_first_query_is_part_of_the_optimum():
    rented = point("a", 0.8, 0, 100)
    prepared = point("b", 0.8, 500, 50)
    dear = point("c", 0.8, 9000, 1)
    frontier = EfficiencyFrontier([rented, prepared, dear])
    free = [prepared.key]
    paid = 0.0
    owned = set(free)
    for seen in range(1, 400):
        decision = decide_online(frontier, 0.8, seen, prepared=owned, free=free)
        chosen = decision.point
        paid += chosen.effective(1, sunk=chosen.key in owned)
        owned.add(chosen.key)
        optimum = min(50 * seen, 9000 + seen)
        assert paid <= 2 * optimum


def test_the_reason_gives_the_numbers(frontier):
    decision = decide_online(frontier, 0.78, 3)
    assert decision.strategy == "tfidf"
    assert "tfidf(depth=10) for 7 queries yet, then memory(ratio=0.3)" in decision.note
    assert "Never more than 1.25 times the optimum" in decision.note
    memory = decide_online(frontier, 0.78, 10).point
    assert memory.strategy == "memory"
    ready = decide_online(frontier, 0.78, 1, prepared=[memory.key])
    assert ready.point == memory
    assert "however many follow" in ready.note
