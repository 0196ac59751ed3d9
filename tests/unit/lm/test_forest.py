import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecs_plugins.lm.scoring.forest import MIN_SAVED, plant
from ecs_plugins.lm.scoring.request import common_length

ALPHABET = st.integers(0, 2)
SEQUENCES = st.lists(st.lists(ALPHABET, min_size=1, max_size=60).map(tuple), min_size=1, max_size=9)


def spelt(forest, sequence, length):
    return tuple(forest.tokens[row] for row in forest.rows(sequence, range(length)))


def assert_sound(sequences, forest):
    for n, ids in enumerate(sequences):
        assert spelt(forest, n, len(ids)) == ids
        rows = list(forest.rows(n, range(len(ids))))
        assert [forest.depths[row] for row in rows] == list(range(len(ids)))
    covered = 0
    for node in forest.nodes:
        assert node.start == covered
        assert node.stop <= node.end <= len(forest.tokens)
        covered = node.stop
    assert covered == len(forest.tokens)
    for path in forest.paths:
        for ancestor, node in itertools.pairwise(path):
            assert ancestor.stop <= node.start < ancestor.end
            assert node.depth == ancestor.depth + ancestor.length


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(SEQUENCES)
def test_every_sequence_is_spelt_by_its_rows(sequences) -> None:
    assert_sound(sequences, plant(sequences))


@settings(max_examples=100, deadline=None)
@given(SEQUENCES, st.integers(1, 30))
def test_a_shared_head_stands_once_if_it_saves_enough(sequences, extra) -> None:
    head = tuple(range(10, 10 + MIN_SAVED))
    longer = [head + ids for ids in sequences]
    forest = plant([*longer, (*head, *range(100, 100 + extra))])
    assert sum(row == 10 for row in forest.tokens) == 1
    assert_sound(longer, plant(longer))


def test_duplicates_cost_nothing() -> None:
    ids = (5, 6, 7)
    forest = plant([ids, (8,), ids, ids])
    assert sorted(forest.tokens) == [5, 6, 7, 8]
    assert forest.paths[0] == forest.paths[2] == forest.paths[3]


def test_a_short_shared_head_is_repeated_and_a_long_one_is_not() -> None:
    def tokens(shared):
        head = tuple(range(shared))
        return len(plant([(*head, 500, 501), (*head, 600)]).tokens)

    assert tokens(MIN_SAVED - 1) == 2 * (MIN_SAVED - 1) + 3
    assert tokens(MIN_SAVED) == MIN_SAVED + 3


def test_heads_nest() -> None:
    a, b, c = (tuple(range(base, base + 30)) for base in (100, 200, 300))
    sequences = [a + b + c, (*a, *b, 1), (*a, 2), (*a, 3, 4)]
    forest = plant(sequences)
    assert_sound(sequences, forest)
    assert len(forest.tokens) == 90 + 1 + 1 + 2
    assert len(forest.paths[0]) == 3


@settings(max_examples=100, deadline=None)
@given(st.lists(ALPHABET), st.lists(ALPHABET))
def test_common_length_is_that_of_a_plain_loop(a, b) -> None:
    plain = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    expected = min(len(a), len(b)) if plain is None else plain
    assert common_length(tuple(a), tuple(b)) == expected
