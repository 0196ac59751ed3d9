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


def test_what_was_spent_and_saved_is_kept_by_day_and_strategy(frontier, ledger):
    now = [0.0]
    ledger._clock = lambda: now[0]
    router = Router(frontier, RouterConfig(target_f1=0.78), ledger=ledger)
    for now[0], tokens in ((0.0, 500), (10.0, 600), (DAY, 700)):
        router.settle(router.route(context_id="a", reuse=1), spent(tokens), context_id="a")
    rows = savings(ledger)
    assert [(row.day, row.strategy, row.queries, row.cost) for row in rows] == [
        ("1970-01-01", "tfidf", 2, 1100),
        ("1970-01-02", "tfidf", 1, 700),
    ]
    assert rows[0].baseline == 2 * 1308
    assert rows[0].saved == pytest.approx(1 - 1100 / 2616)
    assert ledger.spent_today("tokens") == 700


def test_when_the_cap_of_a_day_is_reached_the_cheapest_answers_until_the_next(frontier, ledger):
    now = [0.0]
    ledger._clock = lambda: now[0]
    config = RouterConfig(target_f1=0.78, spend_cap=SpendCap(per_day=1000))
    router = Router(frontier, config, ledger=ledger)
    chosen = []
    for now[0] in (0.0, 1.0, 2.0, DAY):
        decision = router.route(context_id="a", reuse=1)
        chosen.append(decision.label)
        router.settle(decision, spent(600), context_id="a")
    assert chosen == ["tfidf(depth=10)", "tfidf(depth=10)", "tfidf(depth=2)", "tfidf(depth=10)"]


def test_a_cap_may_refuse_and_holds_for_one_tenant(frontier, tmp_path, located):
    cap = SpendCap(per_day=1000, then="refuse")
    routers = []
    for tenant in ("a", "b"):
        ledger = ReuseLedger(located(tmp_path / "r.db"), namespace=(tenant,))
        config = RouterConfig(target_f1=0.78, spend_cap=cap)
        routers.append(Router(frontier, config, ledger=ledger))
    decision = routers[0].route(context_id="x", reuse=1)
    routers[0].settle(decision, spent(1000), context_id="x")
    with pytest.raises(SpendCapError, match="1,000 tokens of 1,000 tokens"):
        routers[0].route(context_id="x", reuse=1)
    assert routers[1].route(context_id="x", reuse=1)


def test_the_command_shows_savings_by_tenant_and_writes_a_page(frontier, tmp_path):
    path = tmp_path / "reuse.db"
    with ReuseLedger(path, namespace=("team",)) as ledger:
        router = Router(frontier, RouterConfig(target_f1=0.78), ledger=ledger)
        router.settle(router.route(context_id="a", reuse=1), spent(654), context_id="a")
    done = CliRunner().invoke(app, ["report", "--ledger", str(path)])
    assert done.exit_code == 0, done.output
    row = done.output.splitlines()[1].split()
    assert row[1:3] == ["team", "tfidf"]
    assert row[-1] == "50.0%"
    assert "<td>team</td>" in (tmp_path / "spending.html").read_text()
