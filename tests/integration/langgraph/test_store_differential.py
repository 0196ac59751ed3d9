"""Random op sequences on `EntropicStore` and on LangGraph's `InMemoryStore`: the same answers.

Where the reference is known to be wrong it is led around the mistake: puts are applied one by one
(two equal texts in one batch raise there) and after a deletion (an overwrite keeps old vectors
there), and namespaces are listed from what a search finds (a read creates namespaces there).
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from ecs_plugins.langgraph import EntropicStore
from ecs_plugins.memory import EntropicMemory
from ecs_plugins.ranking.embedder import FakeEmbedder

SEQUENCES = 1000

LABELS = st.sampled_from(["a", "b", "a-b", "a%", "A"])
NAMESPACES = st.lists(LABELS, min_size=1, max_size=3).map(tuple)
PREFIXES = st.lists(LABELS, max_size=2).map(tuple)
KEYS = st.sampled_from(["k1", "k2", "k3"])
WORDS = st.sampled_from(["heron", "weir", "ferry", "kettle", "sardine", "clock"])
VALUES = st.fixed_dictionaries(
    {
        "text": st.lists(WORDS, min_size=1, max_size=3).map(" ".join),
        "n": st.one_of(st.integers(-3, 3), st.sampled_from([0.5, "2", "1.5"])),
    },
    optional={
        "flag": st.booleans(),
        "meta": st.fixed_dictionaries({"lang": st.sampled_from(["en", "de"])}),
        "tags": st.lists(WORDS, max_size=2, unique=True),
    },
)
OPERAND = st.integers(-3, 3)
FILTERS = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {
            "n": st.one_of(
                OPERAND,
                st.dictionaries(
                    st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]),
                    OPERAND,
                    min_size=1,
                    max_size=2,
                ),
            )
        }
    ),
    st.fixed_dictionaries({"meta": st.fixed_dictionaries({"lang": st.sampled_from(["en", "de"])})}),
    st.fixed_dictionaries({"tags": st.lists(WORDS, max_size=2)}),
    st.fixed_dictionaries({"flag": st.sampled_from([True, False, {"$ne": True}])}),
)
INDEX = st.sampled_from([None, False, ["text"], ["meta.lang", "tags[*]"]])
PUTS = st.builds(PutOp, NAMESPACES, KEYS, VALUES, INDEX, st.none())
DELETES = st.builds(PutOp, NAMESPACES, KEYS, st.none(), st.none(), st.none())
GETS = st.builds(GetOp, NAMESPACES, KEYS)
SEARCHES = st.builds(
    SearchOp,
    PREFIXES,
    FILTERS,
    st.just(1000),
    st.just(0),
    st.one_of(st.none(), st.lists(WORDS, min_size=1, max_size=2).map(" ".join)),
)
LISTS = st.builds(
    ListNamespacesOp,
    st.one_of(
        st.none(),
        st.lists(
            st.builds(
                MatchCondition,
                st.sampled_from(["prefix", "suffix"]),
                st.lists(st.one_of(LABELS, st.just("*")), max_size=2).map(tuple),
            ),
            max_size=2,
        ).map(tuple),
    ),
    st.one_of(st.none(), st.integers(1, 3)),
    st.integers(0, 5),
    st.integers(0, 2),
)
BATCHES = st.lists(
    st.lists(st.one_of(PUTS, PUTS, DELETES, GETS, SEARCHES, LISTS), min_size=1, max_size=6),
    min_size=1,
    max_size=5,
)


def embed(texts) -> list[list[float]]:
    return FakeEmbedder(64).embed_documents(list(texts)).tolist()


class Reference:
    """`InMemoryStore`, led around its known mistakes."""

    def __init__(self) -> None:
        self._store = InMemoryStore(index={"dims": 64, "embed": embed})

    def batch(self, ops):
        results = [self._read(op) for op in ops]
        for op in {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}.values():
            self._store.batch([PutOp(op.namespace, op.key, None)])
            self._store.batch([op])
        return results

    def _read(self, op):
        if isinstance(op, PutOp):
            return None
        if isinstance(op, ListNamespacesOp):
            fresh = InMemoryStore()
            for item in self._store.search((), limit=1000):
                fresh.put(item.namespace, "k", {})
            return fresh.batch([op])[0]
        return self._store.batch([op])[0]


def plain(result):
    """A result in comparable form: the order among equal scores is free, the scores are not."""
    if isinstance(result, list) and result and hasattr(result[0], "score"):
        rows = [
            (
                None if item.score is None else round(item.score, 4),
                item.namespace,
                item.key,
                repr(sorted(item.value.items())),
            )
            for item in result
        ]
        assert [row[0] for row in rows if row[0] is not None] == sorted(
            (row[0] for row in rows if row[0] is not None), reverse=True
        )
        return sorted(rows, key=repr)
    if result is not None and hasattr(result, "value"):
        return (result.namespace, result.key, result.value)
    return result


@pytest.fixture(scope="module")
def store():
    with EntropicMemory.open(":memory:", embedder=FakeEmbedder(64)) as memory:
        yield EntropicStore(memory)


@pytest.mark.slow
@given(batches=BATCHES)
@settings(
    max_examples=SEQUENCES,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_random_sequences_give_what_the_reference_gives(store, batches):
    for namespace in store.list_namespaces(max_depth=1, limit=100):
        store.memory.forget(namespace, below=True)
    reference = Reference()
    for ops in batches:
        ours, theirs = store.batch(ops), reference.batch(ops)
        assert [plain(result) for result in ours] == [plain(result) for result in theirs], ops
