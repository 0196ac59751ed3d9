"""Arguments of the wrong type raise errors of the package and write nothing."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from ecs_plugins.errors import EcsPluginsError, StorageError
from ecs_plugins.frontier import (
    CalibrationQuestion,
    Context,
    EfficiencyFrontier,
    PriceVector,
    ReuseLedger,
    Router,
    RouterConfig,
    StrategyPoint,
    calibrate,
)
from ecs_plugins.frontier.preparations import PreparationStore
from ecs_plugins.frontier.prices import ModelPrice
from ecs_plugins.tokens import Role, Stage, TokenLedger

HUGE = 10**5000  # too long to be written as digits
NUMBERS = [None, True, "1", b"1", [1], {("a",): 1}, complex(1, 1), Decimal("nan"), np.ones(2)]
IMPOSSIBLE = [*NUMBERS, math.nan, math.inf, -1.0, -HUGE]
PATHS = [None, 1.5, b"x", "\ud800", "a\0b"]
THINGS = [None, 1, HUGE, "x", b"x", [None], np.array(0.5), object()]
KEY = ("notes", "{}")


@pytest.fixture
def kept():
    with ReuseLedger(":memory:") as made:
        yield made


@pytest.fixture
def router(frontier, kept):
    return Router(frontier, RouterConfig(target_f1=0.7), ledger=kept)


@pytest.mark.parametrize("value", IMPOSSIBLE, ids=lambda value: type(value).__name__)
def test_numbers_that_cannot_be(value, frontier, router, kept):
    decision = router.route(context_id="c")
    used = TokenLedger()
    used.book(Stage.QUERY, Role.ANSWER_INPUT, 10)
    calls = [
        lambda: StrategyPoint("s", {}, value, 0, 1),
        lambda: StrategyPoint("s", {}, 0.5, value, 1),
        lambda: StrategyPoint("s", {}, 0.5, 0, value),
        lambda: ModelPrice(input=value, output=1.0),
        lambda: router.settle(decision, used, context_id="c", seconds=value),
        lambda: router.settle(decision, used, context_id="c", cache=(0, value, 0)),
        lambda: ReuseLedger(":memory:", expire_seconds=value),
    ]
    for call in calls:
        with pytest.raises(EcsPluginsError):
            call()
    assert kept.count("c") == 1
    assert kept.spent_by_tenants() == []


@pytest.mark.parametrize("value", THINGS, ids=lambda value: type(value).__name__)
def test_things_of_another_kind(value, frontier, router, kept):
    decision = router.route(context_id="c")
    question = CalibrationQuestion("q", "Who?", ("a",), Context.of(["text"]))
    calls = [
        lambda: EfficiencyFrontier(value),
        lambda: EfficiencyFrontier([value, value]),
        lambda: frontier.priced(value),
        lambda: frontier.only(value),
        lambda: frontier.regimes(value),
        lambda: StrategyPoint("s", {}, 0.5, 0, 1, usage=value or 1),
        lambda: Router(value, RouterConfig(target_f1=0.5)),
        lambda: Router(frontier, value),
        lambda: router.settle(value, TokenLedger(), context_id="c"),
        lambda: router.settle(decision, value, context_id="c"),
        lambda: ReuseLedger(":memory:", namespace=value),
        lambda: Context.of(value),
        lambda: CalibrationQuestion("q", "Who?", ("a",), value),
        lambda: calibrate(value, []),
        lambda: calibrate([question], value),
    ]
    for call in calls:
        with pytest.raises(EcsPluginsError):
            call()
    assert not kept.prepared("c")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("strategy", 3),
        ("strategy", ""),
        ("config", [1]),
        ("config", {1: 2}),
        ("config", {"a": {1}}),
    ],
    ids=repr,
)
def test_a_point_without_a_name_or_a_plain_configuration(name, value):
    point = {"strategy": "a", "config": {}, "f1": 0.5, "stage1": 0, "stage2": 1}
    with pytest.raises(EcsPluginsError):
        StrategyPoint(**point | {name: value})


@pytest.mark.parametrize("value", ["ten", True, [0.5], b"a"], ids=repr)
@pytest.mark.parametrize("name", ["context_id", "reuse", "target_f1", "budget", "weight"])
def test_settings_of_a_query_of_another_kind(router, kept, name, value):
    if (name, value) != ("context_id", "ten"):
        with pytest.raises(EcsPluginsError):
            router.route(**{"context_id": "c", name: value})
    assert kept.count("c") == 0


@pytest.mark.parametrize("path", PATHS, ids=repr)
def test_paths_that_name_no_file(path, frontier):
    for call in (EfficiencyFrontier.load, frontier.save, PriceVector.read, ReuseLedger):
        with pytest.raises(EcsPluginsError):
            call(path)


def test_an_empty_path_is_not_the_working_directory(frontier):
    for call in (EfficiencyFrontier.load, frontier.save, PreparationStore):
        with pytest.raises(StorageError, match="names no file"):
            call("")


def test_other_numbers_are_the_numbers_that_they_hold():
    odd = StrategyPoint("s", {}, Fraction(1, 2), np.int64(3), np.float64(4), n=np.int64(2))
    other = StrategyPoint("t", {}, 0.25, 0, 1)
    frontier = EfficiencyFrontier.from_json(EfficiencyFrontier([odd, other]).to_json())
    assert frontier.get("s") == StrategyPoint("s", {}, 0.5, 3.0, 4.0, n=2)
    assert "0.5" in frontier.decide(reuse=1, target_f1=Fraction(1, 2)).explain()
