import numpy as np
import pytest

from ecs_plugins import ShapingConfig
from ecs_plugins.errors import ConfigurationError


@pytest.mark.parametrize(
    ("make", "setting", "value", "said"),
    [
        (ShapingConfig, "top_k", "5", "top_k must be a whole number or None, got '5'"),
        (ShapingConfig, "top_k", 2.5, "whole number or None, got 2.5"),
        (ShapingConfig, "pool_size", None, "pool_size must be a whole number, got None"),
        (ShapingConfig, "threshold", "0.1", "threshold must be a number or None"),
        (ShapingConfig, "seed", True, "seed must be a whole number"),
    ],
)
def test_a_setting_that_is_no_number_is_refused_by_name(make, setting, value, said) -> None:
    with pytest.raises(ConfigurationError, match=said):
        make(**{setting: value})


def test_numbers_of_numpy_are_numbers() -> None:
    config = ShapingConfig(top_k=np.int64(3), threshold=np.float32(0.5))
    assert (config.top_k, config.threshold) == (3, 0.5)
