import pytest
from typer.testing import CliRunner

from ecs_plugins.cli import app
from ecs_plugins.frontier.reuse import ReuseLedger
from ecs_plugins.frontier.router_config import RouterConfig
from ecs_plugins.frontier.routing import Router
from ecs_plugins.frontier.spending import SpendCap, SpendCapError, savings
from ecs_plugins.tokens import Role, Stage, TokenLedger

BOTH_ENGINES = True
DAY = 86_400.0


def spent(tokens):
    return TokenLedger({(Stage.QUERY, Role.ANSWER_INPUT): tokens})


def set_time(ledger, now):
    ledger._clock = lambda: now


def ask(router, tokens):
    decision = router.route(context_id="a", reuse=1)
    router.settle(decision, spent(tokens), context_id="a")
    return decision


def test_what_was_spent_and_saved_is_kept_by_day_and_strategy(frontier, ledger):
    router = Router(frontier, RouterConfig(target_f1=0.78), ledger=ledger)
    for now, tokens in ((0.0, 500), (10.0, 600), (DAY, 700)):
        set_time(ledger, now)
        ask(router, tokens)
    first, second = savings(ledger)
    assert first.day == "1970-01-01"
    assert first.strategy == "tfidf"
    assert first.queries == 2
    assert first.cost == 1100
    assert first.baseline == 2 * 1308
    assert first.saved == pytest.approx(1 - 1100 / 2616)
    assert second.day == "1970-01-02"
    assert second.queries == 1
    assert second.cost == 700
    assert ledger.spent_today("tokens") == 700


def test_when_the_cap_of_a_day_is_reached_the_cheapest_answers_until_the_next(frontier, ledger):
    config = RouterConfig(target_f1=0.78, spend_cap=SpendCap(per_day=1000))
    router = Router(frontier, config, ledger=ledger)
    usual = "tfidf(depth=10)"
    cheapest = "tfidf(depth=2)"
    for now, expected in ((0.0, usual), (1.0, usual), (2.0, cheapest), (DAY, usual)):
        set_time(ledger, now)
        assert ask(router, 600).label == expected


def test_a_cap_holds_for_queries_about_no_context_too(frontier, ledger):
    cap = SpendCap(per_day=1000, then="refuse")
    router = Router(frontier, RouterConfig(target_f1=0.78, spend_cap=cap), ledger=ledger)
    router.settle(router.route(), spent(1000))
    assert ledger.spent_today("tokens") == 1000
    with pytest.raises(SpendCapError):
        router.route()
    with pytest.raises(SpendCapError):
        router.route(context_id="a")
    assert ledger.count("a") == 0


def test_a_cap_may_refuse_and_holds_for_one_tenant(frontier, tmp_path, located):
    cap = SpendCap(per_day=1000, then="refuse")
    routers = []
    config = RouterConfig(target_f1=0.78, spend_cap=cap)
    for tenant in ("a", "b"):
        path = located(tmp_path / "r.db")
        ledger = ReuseLedger(path, namespace=(tenant,))
        routers.append(Router(frontier, config, ledger=ledger))
    spender, other = routers
    ask(spender, 1000)
    with pytest.raises(SpendCapError, match="1,000 tokens of 1,000 tokens"):
        ask(spender, 1000)
    assert ask(other, 1000)


def test_the_command_shows_savings_by_tenant_and_writes_a_page(frontier, tmp_path):
    path = tmp_path / "reuse.db"
    with ReuseLedger(path, namespace=("team",)) as ledger:
        router = Router(frontier, RouterConfig(target_f1=0.78), ledger=ledger)
        ask(router, 654)
    done = CliRunner().invoke(app, ["report", "--ledger", str(path)])
    assert done.exit_code == 0, done.output
    _, row, *_ = done.output.splitlines()
    cells = row.split()
    assert cells[1:3] == ["team", "tfidf"]
    assert cells[-1] == "50.0%"
    page = tmp_path / "spending.html"
    assert "<td>team</td>" in page.read_text()
