"""Random op sequences on `EntropicStore` and on LangGraph's `InMemoryStore`: the same answers.

Where the reference is known to be wrong it is led around the mistake: puts are applied one by one
(two equal texts in one batch raise there) and after a deletion (an overwrite keeps old vectors
there). A read creates namespaces there, so that their listing is left to the conformance suite.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.store.base import GetOp, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from ecs_plugins.langgraph import EntropicStore
from ecs_plugins.memory import EntropicMemory
from ecs_plugins.ranking.embedder import FakeEmbedder

LABELS = st.sampled_from(["a", "b", "a-b", "a%", "A"])
NAMESPACES = st.lists(LABELS, min_size=1, max_size=3).map(tuple)
PREFIXES = st.lists(LABELS, max_size=2).map(tuple)
KEYS = st.sampled_from(["k1", "k2", "k3"])
WORDS = st.sampled_from(["heron", "weir", "ferry", "kettle", "sardine", "clock"])
LANGUAGE = st.fixed_dictionaries({"lang": st.sampled_from(["en", "de"])})
VALUES = st.fixed_dictionaries(
    {
        "text": st.lists(WORDS, min_size=1, max_size=3).map(" ".join),
        "n": st.one_of(st.integers(-3, 3), st.sampled_from([0.5, "2", "1.5"])),
    },
    optional={
        "flag": st.booleans(),
        "meta": LANGUAGE,
        "tags": st.lists(WORDS, max_size=2, unique=True),
    },
)
OPERAND = st.integers(-3, 3)
OPERATORS = st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"])
COMPARED = st.one_of(OPERAND, st.dictionaries(OPERATORS, OPERAND, min_size=1, max_size=2))
FILTERS = st.one_of(
    st.none(),
    st.fixed_dictionaries({"n": COMPARED}),
    st.fixed_dictionaries({"meta": LANGUAGE}),
    st.fixed_dictionaries({"tags": st.lists(WORDS, max_size=2)}),
    st.fixed_dictionaries({"flag": st.sampled_from([True, False, {"$ne": True}])}),
)
INDEX = st.sampled_from([None, False, ["text"], ["meta.lang", "tags[*]"]])
PUTS = st.builds(PutOp, NAMESPACES, KEYS, VALUES, INDEX, st.none())
DELETES = st.builds(PutOp, NAMESPACES, KEYS, st.none(), st.none(), st.none())
GETS = st.builds(GetOp, NAMESPACES, KEYS)
QUERIES = st.one_of(st.none(), st.lists(WORDS, min_size=1, max_size=2).map(" ".join))
SEARCHES = st.builds(SearchOp, PREFIXES, FILTERS, st.just(1000), st.just(0), QUERIES)
OPS = st.one_of(PUTS, PUTS, DELETES, GETS, SEARCHES)
BATCHES = st.lists(st.lists(OPS, min_size=1, max_size=6), min_size=1, max_size=5)


def embed(texts) -> list[list[float]]:
    return FakeEmbedder(64).embed_documents(list(texts)).tolist()


class Reference:
    """`InMemoryStore`, led around its known mistakes."""

    def __init__(self) -> None:
        self._store = InMemoryStore(index={"dims": 64, "embed": embed})

    def batch(self, ops):
        results = [None if isinstance(op, PutOp) else self._store.batch([op])[0] for op in ops]
        for op in {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}.values():
            self._store.batch([PutOp(op.namespace, op.key, None)])
            self._store.batch([op])
        return results


def plain(result):
    """A result in comparable form: the order among equal scores is free, the scores are not."""
    if not isinstance(result, list):
        return result and (result.namespace, result.key, result.value)
    scores = [item.score for item in result if item.score is not None]
    assert scores == sorted(scores, reverse=True)
    rows = [
        (
            None if item.score is None else round(item.score, 4),
            item.namespace,
            item.key,
            sorted(item.value.items()),
        )
        for item in result
    ]
    return sorted(rows, key=repr)


@pytest.fixture(scope="module")
def store():
    with EntropicMemory.open(":memory:", embedder=FakeEmbedder(64)) as memory:
        yield EntropicStore(memory)


@pytest.mark.slow
@given(batches=BATCHES)
@settings(
    max_examples=200,
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
