"""A processor that only imitates bfloat16 is told of once."""

import warnings

import pytest

from ecs_plugins.errors import ModelNotFoundError
from ecs_plugins.lm import loading


@pytest.mark.parametrize(
    ("bfloat16", "dtype", "told"), [(9, "bfloat16", 1), (1, "bfloat16", 0), (9, "auto", 0)]
)
def test_slow_bfloat16_is_told_of_once_and_never_chosen(monkeypatch, bfloat16, dtype, told) -> None:
    loading._warn_of_slow_bfloat16.cache_clear()
    monkeypatch.setattr(
        loading, "_seconds_of_a_product", {"bfloat16": bfloat16, "float32": 1}.__getitem__
    )
    options = loading.LoadingOptions(device="cpu", dtype=dtype)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            with pytest.raises(ModelNotFoundError):
                loading.load("nobody/nothing", options)
    assert sum("9 times as long" in str(w.message) for w in caught) == told
    loading._warn_of_slow_bfloat16.cache_clear()


def test_a_product_in_bfloat16_is_measured() -> None:
    assert loading._seconds_of_a_product("bfloat16") > 0
