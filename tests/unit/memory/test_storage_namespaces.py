from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.store.tiers import checked, decode, encode, under

HOSTILE = [
    "a", "a.b", "a/b", 'a"b', "a'b", "a%", "a_", "%", "_", "ab", "a,b", "a]", '["a"', "\\",
    "\\u0061", "é", "e\u0301", "😀", "\x00", " ", "a ", "'; DROP TABLE messages; --", "-", ",",
]  # fmt: skip

labels = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
namespaces = st.lists(labels, min_size=1, max_size=4).map(tuple)


@given(namespaces)
def test_a_key_gives_its_namespace_back(namespace):
    assert decode(encode(namespace)) == namespace


@given(namespaces, namespaces)
def test_keys_fall_into_the_range_of_a_prefix_exactly_when_labels_do(prefix, other):
    low, high = (bound.encode() for bound in under(prefix, "key")[1][1:])
    inside = low <= encode(other).encode() < high
    assert inside == (len(other) > len(prefix) and other[: len(prefix)] == prefix)


@pytest.mark.parametrize("namespace", ["bare", (), ("",), ("a", 1), ("\ud800",), ("a" * 513,)])
def test_a_namespace_that_cannot_be_matched_is_refused(namespace):
    with pytest.raises(InvalidInputError):
        checked(namespace)


def test_hostile_labels_never_see_each_others_memories(open_memory):
    memory = open_memory()
    pairs = [*((label,) for label in HOSTILE), *product(HOSTILE[:6], HOSTILE[:6])]
    for number, namespace in enumerate(pairs):
        memory.add(f"secret number{number}", namespace=namespace)
    for number, namespace in enumerate(pairs):
        found = memory.recall(f"secret number{number}", namespace=namespace, threshold=-1.0, k=50)
        assert [item.text for item in found] == [f"secret number{number}"]
        below_it = [each for each in pairs if each[: len(namespace)] == namespace]
        assert sorted(memory.namespaces(namespace)) == sorted(below_it)
    for namespace in reversed(pairs):
        assert memory.forget(namespace).namespaces == (namespace,)
    assert memory.namespaces() == []


@pytest.mark.slow
def test_a_hundred_thousand_namespaces_open_no_index(open_memory):
    memory = open_memory()
    with memory._store.database.write() as connection:
        connection.executemany(
            "INSERT INTO namespaces (key, created) VALUES (?, 0)",
            ((encode(("user", str(number))),) for number in range(100_000)),
        )
    assert memory.add("here", namespace=("user", "7"))
    assert [item.text for item in memory.recall("here", namespace=("user", "7"))] == ["here"]
    assert memory.admin.stats(("user", "7")).indexes["open"] <= 2
