import pytest
from typer.testing import CliRunner

from ecs_plugins.cli import app
from ecs_plugins.frontier.decision import RouterConfig
from ecs_plugins.frontier.reuse import ReuseLedger, savings
from ecs_plugins.frontier.routing import Router
from ecs_plugins.frontier.settlement import spent_of
from ecs_plugins.tokens import Role, Stage, TokenLedger

BOTH_ENGINES = True
DAY = 86_400.0


def spent(tokens):
    return TokenLedger({(Stage.QUERY, Role.ANSWER_INPUT): tokens})


def set_time(ledger, now):
    ledger._clock = lambda: now


def ask(router, tokens, namespace=(), **facts):
    decision = router.route(context_id="a", reuse=1, namespace=namespace)
    used = spent_of(spent(tokens), **facts)
    router.settle(decision, used, context_id="a", namespace=namespace)


def test_what_was_spent_and_saved_is_kept_by_day_and_strategy(frontier, ledger):
    router = Router(frontier, RouterConfig(target_f1=0.78), ledger=ledger)
    for now, tokens in ((0.0, 500), (10.0, 600), (DAY, 700)):
        set_time(ledger, now)
        ask(router, tokens, whole_context=1000)
    first, second = savings(ledger)
    assert first.day == "1970-01-01"
    assert first.strategy == "tfidf"
    assert first.queries == 2
    assert first.cost == 1100
    assert first.baseline == 2 * 1000
    assert first.saved == pytest.approx(1 - 1100 / 2000)
    assert second.day == "1970-01-02"
    assert second.queries == 1
    assert second.cost == 700


def test_the_command_shows_savings_by_tenant_and_writes_a_page(frontier, tmp_path):
    path = tmp_path / "reuse.db"
    with ReuseLedger(path, namespace=("team",)) as ledger:
        router = Router(frontier, RouterConfig(target_f1=0.78), ledger=ledger)
        ask(router, 500, whole_context=1000)
    done = CliRunner().invoke(app, ["report", "--ledger", str(path)])
    assert done.exit_code == 0, done.output
    _, row, *_ = done.output.splitlines()
    cells = row.split()
    assert cells[1:3] == ["team", "tfidf"]
    assert cells[-2:] == ["50.0%", "0"]
    page = tmp_path / "spending.html"
    assert "<td>team</td>" in page.read_text()


def test_savings_compare_the_same_queries_and_leave_out_the_unknown(frontier, ledger):
    router = Router(frontier, RouterConfig(target_f1=0.78), ledger=ledger)
    ask(router, 500, whole_context=2000)
    ask(router, 500)  # nobody counted its context
    ask(router, 0, unknown=1)
    (row,) = savings(ledger)
    assert (row.queries, row.unknown) == (3, 1)
    assert row.cost == 1000
    assert (row.compared, row.baseline) == (500, 2000)
    assert row.saved == 0.75


def test_queries_without_a_baseline_are_said_to_be_unknown(frontier, ledger):
    router = Router(frontier, RouterConfig(target_f1=0.78), ledger=ledger)
    ask(router, 500)
    (row,) = savings(ledger)
    assert row.saved is None
    assert row.cells()[-3:] == ["unknown", "unknown", "0"]


@pytest.mark.parametrize("tokens", [130, 1308, 13_080])
def test_always_the_whole_context_saves_nothing(frontier, ledger, tokens):
    router = Router(frontier, RouterConfig(target_f1=0.84), ledger=ledger)
    ask(router, tokens)
    (row,) = savings(ledger)
    assert row.saved == 0.0


def test_a_tenant_of_a_call_is_booked_and_counted_by_itself(frontier, ledger):
    router = Router(frontier, RouterConfig(target_f1=0.78), ledger=ledger)
    for tenant in ("acme", "acme", "globex"):
        ask(router, 500, namespace=(tenant,))
    assert [(row.tenant, row.queries) for row in savings(ledger)] == [("acme", 2), ("globex", 1)]
    assert ledger.count("a") == 0
    assert ledger.within(("acme",)).count("a") == 2


def test_the_cost_of_a_fallback_stands_under_the_strategy_that_answered(frontier, ledger):
    router = Router(frontier, RouterConfig(target_f1=0.78), ledger=ledger)
    decision = router.route(context_id="a", reuse=1)
    full = frontier.get("full")
    router.settle(decision, spent(1300), context_id="a", fallback=full.key, failed=spent(300))
    costs = {row.strategy: (row.queries, row.cost) for row in savings(ledger)}
    assert costs == {"full": (1, 1000), "tfidf": (0, 300)}
