import json
import math

import pytest

from ecs_plugins.errors import ConfigurationError, StorageError
from ecs_plugins.frontier.cost import Usage
from ecs_plugins.frontier.prices import ModelPrice, PriceTier, PriceVector
from ecs_plugins.tokens import Role, Stage

PROMPT = (Stage.QUERY, Role.ANSWER_INPUT)


def entry(price, **more):
    return {
        "mode": "chat",
        "input_cost_per_token": price,
        "output_cost_per_token": 4 * price,
    } | more


MAP = {
    "azure/eu/gpt-4o": entry(2.75e-6),
    "azure/gpt-4o": entry(2.5e-6),
    "gpt-4o": entry(
        2.5e-6, input_cost_per_token_batches=1.25e-6, output_cost_per_token_batches=8e-6
    ),
    "one/only": entry(1e-6),
    "two/only": entry(1e-6),
    "one/torn": entry(1e-6),
    "two/torn": entry(2e-6),
    "image/gpt-4o": {"mode": "image_generation", "output_cost_per_image": 0.04},
    "anthropic/big": entry(
        3e-6,
        cache_read_input_token_cost=3e-7,
        cache_creation_input_token_cost=3.75e-6,
        cache_creation_input_token_cost_above_1hr=6e-6,
        max_tokens=8192,
    ),
    "cached": entry(1e-6, cache_read_input_token_cost=1e-7, prompt_cache_min_tokens=1024.0),
    "qwen/ranges": {
        "tiered_pricing": [
            {"input_cost_per_token": 1e-6, "output_cost_per_token": 4e-6, "range": [0, 32_000.0]},
            {"input_cost_per_token": 2e-6, "output_cost_per_token": 9e-6, "range": [32_000.0, 9e5]},
        ]
    },
    "odd/ranges": {"tiered_pricing": [{"input_cost_per_query": 1, "max_results_range": [0, 25]}]},
    "gemini/long": entry(
        1e-6,
        cache_read_input_token_cost=1e-7,
        input_cost_per_token_above_200k_tokens=2e-6,
        output_cost_per_token_above_200k_tokens=6e-6,
        cache_read_input_token_cost_above_200k_tokens=2e-7,
    ),
}


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "model_prices_and_context_window.json"
    file.write_text(json.dumps(MAP))
    return file


@pytest.mark.parametrize(
    ("name", "price"),
    [("gpt-4o", 2.5e-6), ("azure/eu/gpt-4o", 2.75e-6), ("eu/gpt-4o", 2.75e-6), ("only", 1e-6)],
)
def test_the_exact_name_comes_first_then_a_price_that_all_providers_ask(path, name, price):
    assert PriceVector.read(path, {"answer": name}).answer.input == price


def test_prices_of_a_cache_and_of_a_compressor_are_read(path):
    prices = PriceVector.read(path, {"answer": "big", "compressor": "only", "scorer": "local"})
    assert (prices.unit, prices.scorer) == ("USD", 0.0)
    assert prices.answer == ModelPrice(
        input=3e-6, output=1.2e-5, cached_input=3e-7, cache_write=3.75e-6, cache_write_1h=6e-6
    )
    assert prices.compressor == ModelPrice(input=1e-6, output=4e-6)
    with pytest.raises(ConfigurationError, match="no price of 'huge'"):
        PriceVector.read(path, {"answer": "huge"})


def test_a_name_with_several_prices_is_refused_with_the_candidates(path):
    with pytest.raises(
        ConfigurationError, match="different prices: name one of one/torn, two/torn"
    ):
        PriceVector.read(path, {"answer": "torn"})


def test_stage_one_has_the_prices_of_a_batch_interface(path):
    written = Usage({(Stage.PREPARE, Role.COMPRESS_OUTPUT): 1e6})
    read = Usage({(Stage.PREPARE, Role.COMPRESS_INPUT): 1e6, PROMPT: 1e6})
    usual = PriceVector.read(path, {"answer": "gpt-4o"})
    batched = PriceVector.read(path, {"answer": "gpt-4o"}, batch=True)
    assert usual.stages(read) == pytest.approx((2.5, 2.5))
    assert batched.stages(read) == pytest.approx((1.25, 2.5))
    assert usual.stages(written)[0] == pytest.approx(10.0)
    assert batched.stages(written)[0] == pytest.approx(8.0)


def test_short_prompts_are_not_cached_where_the_map_says_so(path):
    price = PriceVector.read(path, {"answer": "cached"})
    short, long = (Usage({PROMPT: 1024.0}, shared_input=shared) for shared in (1023.0, 1024.0))
    assert price.lapsing(short) == 0
    assert price.lapsing(long) > 0


def test_ranges_of_prices_are_tiers(path):
    prices = PriceVector.read(path, {"answer": "ranges"}).answer
    assert prices.input == 1e-6
    assert prices.tiers == (PriceTier(above=32_000, input=2e-6, output=9e-6),)


def test_long_prompts_have_the_prices_of_their_tier(path):
    prices = PriceVector.read(path, {"answer": "gemini/long"})
    short, long = Usage({PROMPT: 200_000.0}), Usage({PROMPT: 200_001.0})
    assert prices.stages(short)[1] == pytest.approx(0.2)
    assert prices.stages(long)[1] == pytest.approx(0.400002)
    tier = PriceTier(above=200_000, input=2e-6, output=6e-6, cached_input=2e-7)
    assert prices.answer.tiers == (tier,)
    assert PriceVector.from_json(prices.to_json()) == prices
    assert prices.answer.without_tiers(200_001).read_price == 2e-7


TIER = {"above": 10, "input": 4}
LIST = {
    "unit": "USD",
    "answer": {"input": 2, "cached_input": 0.075, "output": 4.5, "tiers": [TIER]},
    "compressor": {"input": 0.1, "output": 0.4},
    "prepare_factor": 0.5,
}


def test_a_price_list_is_per_million_tokens(tmp_path):
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(LIST))
    prices = PriceVector.read(path)
    assert prices.answer.input == pytest.approx(2e-6)
    assert prices.answer.cached_input == pytest.approx(0.075e-6)
    assert prices.answer.tiers == (PriceTier(above=10, input=4e-6),)
    assert prices.compressor.output == pytest.approx(0.4e-6)
    assert (prices.unit, prices.scorer, prices.prepare_factor) == ("USD", 0.0, 0.5)
    path.write_bytes(b'{"unit": "\xe9"}')
    with pytest.raises(StorageError, match="is not UTF-8; convert it first"):
        PriceVector.read(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unit": None}, "unit"),
        ({"unit": ""}, "unit"),
        ({"answer": {"input": 1}}, "output"),
        ({"answer": 3}, "answer"),
        ({"answer": {"input": 10**400, "output": 1}}, "no price list"),
        ({"anwser": {}}, "unknown setting 'anwser'; did you mean answer"),
        ({"scorer": "free"}, "scorer"),
        ({"prepare_factor": -1}, "prepare_factor"),
        ({"per_second": math.nan}, "per_second"),
    ],
)
def test_a_wrong_price_list_says_what_is_wrong(tmp_path, change, message):
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(LIST | change))
    with pytest.raises(ConfigurationError, match=message):
        PriceVector.read(path)
