"""Who is near, by the short forms and in full."""

import numpy as np
import pytest

from ecs_plugins.memory.store.screening import near_pairs, screened, shortened
from ecs_plugins.memory.store.tail import Tail


def unit_vectors(seed, count, dimension, spread):
    """Vectors around ten directions, the nearer the smaller ``spread`` is."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(10, dimension))
    vectors = centres[rng.integers(10, size=count)] + spread * rng.normal(size=(count, dimension))
    return np.float32(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


@pytest.mark.parametrize("dimension", [8, 128, 384])
@pytest.mark.parametrize("spread", [0.3, 3.0], ids=["many are near", "few are near"])
@pytest.mark.parametrize("least", [-1.0, 0.5, 0.9])
def test_the_pairs_are_those_of_the_full_product(dimension, spread, least):
    queries = unit_vectors(1, 30, dimension, spread)
    stored = np.concatenate([unit_vectors(2, 200, dimension, spread), queries[:3]])
    found = near_pairs(screened(queries), screened(stored), least)
    cosines = queries @ stored.T
    wanted = np.argwhere(cosines >= least).tolist()
    assert [[query, other] for query, other, _ in found] == wanted != []
    assert [score for *_, score in found] == pytest.approx(cosines[cosines >= least], abs=1e-6)


def test_a_product_of_short_forms_is_no_less_than_the_cosine():
    vectors = np.concatenate([unit_vectors(3, 60, 384, spread) for spread in (0.0, 0.1, 1.0)])
    short = shortened(vectors)
    assert short.shape == (180, 96)
    assert (short @ short.T >= vectors @ vectors.T - 1e-5).all()


def test_nothing_is_near_to_nothing():
    nothing, one = screened(np.empty((0, 384), np.float32)), screened(unit_vectors(4, 1, 384, 1.0))
    assert near_pairs(one, nothing, 0.5) == near_pairs(nothing, one, 0.5) == []


def test_a_tail_holds_what_was_added_put_and_not_dropped():
    rng = np.random.default_rng(5)
    tail, held = Tail(128), np.empty((0, 128), np.float32)
    for _ in range(200):
        change = rng.integers(6)
        if change == 0:
            count = int(rng.integers(len(held) + 1)) // 4
            tail.drop(count)
            held = held[count:]
        elif change == 1 and len(held):
            kept = rng.random(len(held)) < 0.9
            tail.keep(kept)
            held = held[kept]
        elif change == 2:
            tail.compact()
        elif change == 3 and len(held):
            places = rng.choice(len(held), size=min(3, len(held)), replace=False)
            held[places] = unit_vectors(int(rng.integers(1000)), len(places), 128, 1.0)
            tail.put(places, held[places])
        else:
            new = unit_vectors(int(rng.integers(1000)), int(rng.integers(1, 20)), 128, 1.0)
            tail.append(new)
            held = np.concatenate([held, new])
        assert len(tail) == len(held)
        assert (tail.vectors == held).all()
        if rng.random() < 0.3:
            assert (tail.screened().short == shortened(held)).all()
