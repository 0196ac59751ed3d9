import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.cost import Usage, efficiency_score, exchange_rate, weight_crossover
from ecs_plugins.frontier.prices import ModelPrice, PriceVector
from ecs_plugins.tokens import Role, Stage

from .conftest import point

f1s = st.floats(0, 1)
costs = st.floats(1, 1e6)


def test_equation_one_amortises_stage_one():
    strategy = point("a", 0.5, 1000, 300)
    assert strategy.effective(1) == 1300
    assert strategy.effective(100) == 310
    assert strategy.effective(math.inf) == 300
    for reuse in (0, 0.99, -1, math.nan):
        with pytest.raises(InvalidInputError, match="at least 1"):
            strategy.effective(reuse)


def test_equation_two_uses_the_natural_logarithm_and_gives_the_exchange_rate_of_the_paper():
    assert efficiency_score(0.8, math.e**5, 0.5) == pytest.approx(0.4 - 2.5)
    assert efficiency_score(0.8, 500, 1.0) == 0.8
    assert exchange_rate(0.7, gain=0.10) == pytest.approx(0.26, abs=0.005)
    assert exchange_rate(0.0) == 0.0
    assert exchange_rate(1.0) == math.inf
    for f1 in (0.8, 0.7):
        assert weight_crossover(f1, 100, 0.7, 200) is None  # it dominates


@given(f1s, costs, f1s, costs)
def test_scores_are_equal_at_the_weight_crossover(f1_a, cost_a, f1_b, cost_b):
    weight = weight_crossover(f1_a, cost_a, f1_b, cost_b)
    if weight is None or abs(f1_a - f1_b) < 1e-6:
        return
    score_a = efficiency_score(f1_a, cost_a, weight)
    score_b = efficiency_score(f1_b, cost_b, weight)
    assert abs(score_a - score_b) < 1e-9


USAGE = Usage(
    {
        (Stage.PREPARE, Role.COMPRESS_INPUT): 1000.0,
        (Stage.PREPARE, Role.COMPRESS_OUTPUT): 200.0,
        (Stage.QUERY, Role.ANSWER_INPUT): 300.0,
        (Stage.QUERY, Role.ANSWER_OUTPUT): 10.0,
        (Stage.QUERY, Role.SCORER): 500.0,
    },
    shared_input=250.0,
    prepare_seconds=4.0,
    query_seconds=0.5,
)


def test_roles_have_prices_of_their_own_and_seconds_and_joules_count_wall_time():
    prices = PriceVector(
        unit="USD",
        answer=ModelPrice(input=2.0, output=8.0),
        compressor=ModelPrice(input=1.0, output=4.0),
        scorer=0.1,
        prepare_factor=0.5,
    )
    assert prices.stages(USAGE) == (0.5 * (1000 + 800), 600 + 80 + 50)
    assert PriceVector().stages(USAGE) == (1200.0, 810.0)
    free = ModelPrice(input=0.0, output=0.0)
    joules = PriceVector(unit="J", answer=free, scorer=0.0, per_second=65.0)
    assert joules.stages(USAGE) == (260.0, 32.5)


def test_prompt_cache_is_exact_for_every_reuse():
    prices = PriceVector(
        unit="USD", answer=ModelPrice(input=2.0, output=8.0, cached_input=0.2), scorer=0.0
    )
    one, two = prices.stages(USAGE)
    for reuse in (1, 2, 17):
        prepared = 2.0 * 1000 + 8.0 * 200
        fresh = 2.0 * 50 + 8.0 * 10
        cached = 2.0 * 250 + 0.2 * 250 * (reuse - 1)
        paid = prepared + reuse * fresh + cached
        strategy = point("a", 0.5, one, two)
        assert strategy.effective(reuse) == pytest.approx(paid / reuse)


def test_writing_to_the_cache_and_short_prompts_are_billed_as_they_are():
    price = ModelPrice(input=2.0, output=8.0, cached_input=0.2, cache_write=2.5, cache_write_1h=4.0)
    prices = PriceVector(unit="USD", answer=price, scorer=0.0)
    one, two = prices.stages(USAGE)
    # 250 tokens are shared; of N queries the first writes them.
    assert one == pytest.approx(2.0 * 1000 + 8.0 * 200 + 250 * 2.3)
    assert two == pytest.approx(2.0 * 50 + 8.0 * 10 + 250 * 0.2)
    assert price.cache_extra(100, 10, 1) == pytest.approx(-180 + 5 + 2)
    uncached = price.replace(cache_least=1024)
    _, short = prices.replace(answer=uncached).stages(USAGE)
    assert short == 680
