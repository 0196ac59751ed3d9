import numpy as np
import pytest

from ecs_plugins.memory.pairs import pairs_above


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (7, 5)])
@pytest.mark.parametrize("least", [-1.0, 0.5, 2.0])
def test_pairs_are_those_that_a_search_of_the_rectangle_finds(shape, least):
    matrix = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    wanted = [tuple(each) for each in np.argwhere(matrix >= least).tolist()]
    assert pairs_above(matrix, least) == wanted
    assert pairs_above(np.asfortranarray(matrix), least) == wanted
