import json
import math

import pytest

from ecs_plugins.errors import ConfigurationError, StorageError
from ecs_plugins.frontier.cost import PriceVector

LIST = {
    "unit": "USD",
    "answer": {"input": 0.75, "cached_input": 0.075, "output": 4.5},
    "compressor": {"input": 0.1, "output": 0.4},
    "prepare_factor": 0.5,
}


def test_a_price_list_is_per_million_tokens(tmp_path):
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(LIST))
    prices = PriceVector.read(path)
    assert prices.answer.input == pytest.approx(0.75e-6)
    assert prices.answer.cached_input == pytest.approx(0.075e-6)
    assert prices.compressor.output == pytest.approx(0.4e-6)
    assert (prices.scorer, prices.prepare_factor, prices.unit) == (0.0, 0.5, "USD")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unit": None}, "unit"),
        ({"answer": {"input": 1}}, "output"),
        ({"answer": 3}, "answer"),
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


def test_a_missing_price_list_is_a_storage_error(tmp_path):
    with pytest.raises(StorageError):
        PriceVector.read(tmp_path / "none.json")
