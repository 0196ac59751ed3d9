import asyncio
import json
import math
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, ToolMessage
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore
from langmem import create_manage_memory_tool, create_search_memory_tool

from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.langgraph import EntropicStore
from ecs_plugins.memory import EntropicMemory
from ecs_plugins.ranking.embedder import FakeEmbedder
from tests.conformance.store import NS, StoreConformance, keys
from tests.integration.scripted_model import ScriptedModel, call

INDEX_64 = {"dims": 64, "embed": FakeEmbedder(64)}

BOTH_ENGINES = True


@pytest.fixture
def store(memory):
    return EntropicStore(memory)


class TestConformance(StoreConformance):
    @pytest.fixture
    def store(self, memory):
        return EntropicStore(memory)


@pytest.mark.parametrize(
    "op",
    [
        PutOp(NS, "bad", {"v": float("nan")}),
        PutOp(NS, "bad", {"v": object()}),
        PutOp(NS, "bad", ["no mapping"]),
        PutOp(NS, "bad", {}, ttl=-1),
        PutOp(NS, "bad", {}, ttl=10**400),
        SearchOp(NS, limit=-1),
        SearchOp(NS, {"v') = 1 OR ('1": 1}),
        "no operation",
        GetOp(("a.b",), "k"),
        PutOp(("a", ""), "k", {}),
        SearchOp(("a", 1)),
        ListNamespacesOp((MatchCondition("prefix", ("a.b",)),)),
        GetOp("u1", "k"),
        PutOp("u1", "k", {"v": 1}),
        SearchOp("u1"),
        ListNamespacesOp((MatchCondition("prefix", "u1"),)),
    ],
)
def test_invalid_values_are_refused_before_writing(store, op):
    with pytest.raises((InvalidInputError, InvalidNamespaceError)):
        store.batch([PutOp(NS, "k", {"v": 1}), op])
    assert store.search(()) == []


def test_a_time_to_live_by_default_and_a_sweep(memory):
    ttl = {"default_ttl": 0.03, "refresh_on_read": False}
    store = EntropicStore(memory, ttl=ttl)
    store.put(NS, "k", {"text": "short"})
    living = store.get(NS, "k")
    assert living is not None
    threading.Event().wait(2)
    expired = store.get(NS, "k")
    assert expired is None
    namespaces = store.list_namespaces()
    assert namespaces == []
    swept = store.sweep_ttl()
    assert swept == 1
    swept = store.sweep_ttl()
    assert swept == 0


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"user.name": "Ada"}, ["deep"]),
        ({"user.e-mail": {"$ne": "a@b"}}, ["flat", "other"]),
        ({"user.absent.deeper": 1}, []),
        ({"n": {"$lt": math.inf}}, ["deep", "flat"]),
        ({"n": math.nan}, []),
    ],
)
def test_filters_have_paths_and_any_number(store, condition, expected):
    values = {
        "deep": {"user": {"name": "Ada", "e-mail": "a@b"}, "n": 1},
        "flat": {"user.name": "Bob", "user": {"name": "Ada"}, "n": 2},
        "other": {"user": "Ada"},
    }
    for key, value in values.items():
        store.put(NS, key, value)
    found = store.search(list(NS), filter=condition)
    assert keys(found) == expected


def test_it_opens_a_file_with_langgraphs_settings_and_closes_it(tmp_path, located):
    path = str(located(tmp_path / "m.db"))
    options = {"index": {**INDEX_64, "fields": ["title"]}}
    with EntropicStore.from_conn_string(path, **options) as store:
        store.setup()
        store.put(NS, "a", {"title": "a heron", "body": "a kettle"})
        store.put(NS, "b", {"title": "a kettle", "body": "a heron"})
        created = store.get(NS, "a").created_at
        found = store.search(NS, query="heron")
    assert keys(found) == ["a", "b"]
    assert store.memory.closed
    with EntropicStore.from_conn_string(path, **options) as again:
        found = again.search(NS, query="heron")
        item = again.get(NS, "a")
    assert keys(found) == ["a", "b"]
    assert item.created_at == created


@pytest.mark.parametrize("wrong", [{"dims": 65}, {"feilds": ["title"]}, {"fields": "title"}])
def test_wrong_settings_of_an_index_are_named(tmp_path, located, wrong):
    index = {**INDEX_64, **wrong}
    path = str(located(tmp_path / "m.db"))
    names = "|".join(wrong)
    with (
        pytest.raises(ConfigurationError, match=names),
        EntropicStore.from_conn_string(path, index=index),
    ):
        pass


async def test_an_event_loop_that_it_is_opened_in_is_not_blocked(tmp_path):
    path = tmp_path / "m.db"
    async with EntropicStore.from_conn_string(path, index=INDEX_64) as store:
        await store.aput(NS, "k", {"v": 1})
        with pytest.raises(asyncio.InvalidStateError):
            store.get(NS, "k")
        item = await asyncio.to_thread(store.get, NS, "k")
    assert item.value == {"v": 1}
    assert store.memory.closed


async def test_a_refused_call_fails_alone_in_a_batch(store):
    puts = []
    for number in range(9):
        put = store.aput(NS, f"k{number}", {"v": number})
        puts.append(put)
    bad = store.aput(NS, "bad", {"v": math.nan})
    puts.append(bad)
    results = await asyncio.gather(*puts, return_exceptions=True)
    last = results[-1]
    assert isinstance(last, InvalidInputError)
    stored = await store.asearch(NS, limit=99)
    assert len(stored) == 9


def run(store, tools, message, user="u1"):
    """Return the messages of an agent's tools."""
    model = ScriptedModel(replies=[message, "done"])
    agent = create_agent(model, tools, store=store)
    config = {"configurable": {"user_id": user}}
    question = HumanMessage("go")
    result = agent.invoke({"messages": [question]}, config)
    messages = result["messages"]
    return [each.text for each in messages if isinstance(each, ToolMessage)]


def test_langmems_tools_read_and_write_it(store):
    template = ("memories", "{user_id}")
    tools = [
        create_manage_memory_tool(namespace=template),
        create_search_memory_tool(namespace=template),
    ]
    own = ("memories", "u1")

    create = call("manage_memory", action="create", content="I keep bees.")
    (told,) = run(store, tools, create)
    *_, last = told.split(" ")
    key = last.strip(".")
    created = store.get(own, key)
    assert created.value["content"] == "I keep bees."

    search = call("search_memory", query="who keeps bees")
    (found,) = run(store, tools, search)
    (item,) = json.loads(found)
    value = item["value"]
    assert value["content"] == "I keep bees."
    (found,) = run(store, tools, search, user="u10")
    found_by_other = json.loads(found)
    assert found_by_other == []

    update = call("manage_memory", action="update", id=key, content="I keep wasps.")
    run(store, tools, update)
    updated = store.get(own, key)
    assert updated.value["content"] == "I keep wasps."

    delete = call("manage_memory", action="delete", id=key)
    run(store, tools, delete)
    deleted = store.get(own, key)
    assert deleted is None


# Random sequences of operations, on this store and on LangGraph's `InMemoryStore`

LABELS = st.sampled_from(["a", "b", "a-b", "a%", "A"])
NAMESPACES = st.lists(LABELS, min_size=1, max_size=3).map(tuple)
PREFIXES = st.lists(LABELS, max_size=2).map(tuple)
KEYS = st.sampled_from(["k1", "k2", "k3"])
WORDS = st.sampled_from(["heron", "weir", "ferry", "kettle", "sardine", "clock"])
LANGUAGE = st.fixed_dictionaries({"lang": st.sampled_from(["en", "de"])})
TEXTS = st.lists(WORDS, min_size=1, max_size=3).map(" ".join)
ODD_NUMBERS = st.sampled_from([0.5, "2", "1.5"])
NUMBERS = st.one_of(st.integers(-3, 3), ODD_NUMBERS)
TAGS = st.lists(WORDS, max_size=2, unique=True)
VALUES = st.fixed_dictionaries(
    {
        "text": TEXTS,
        "n": NUMBERS,
    },
    optional={
        "flag": st.booleans(),
        "meta": LANGUAGE,
        "tags": TAGS,
    },
)
OPERAND = st.integers(-3, 3)
OPERATORS = st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"])
COMPARISONS = st.dictionaries(OPERATORS, OPERAND, min_size=1, max_size=2)
COMPARED = st.one_of(OPERAND, COMPARISONS)
FLAGS = st.sampled_from([True, False, {"$ne": True}])
WANTED_TAGS = st.lists(WORDS, max_size=2)
FILTERS = st.one_of(
    st.none(),
    st.fixed_dictionaries({"n": COMPARED}),
    st.fixed_dictionaries({"meta": LANGUAGE}),
    st.fixed_dictionaries({"tags": WANTED_TAGS}),
    st.fixed_dictionaries({"flag": FLAGS}),
)
INDEX = st.sampled_from([None, False, ["text"], ["meta.lang", "tags[*]"]])
PUTS = st.builds(PutOp, NAMESPACES, KEYS, VALUES, INDEX, st.none())
DELETES = st.builds(PutOp, NAMESPACES, KEYS, st.none(), st.none(), st.none())
GETS = st.builds(GetOp, NAMESPACES, KEYS)
QUESTIONS = st.lists(WORDS, min_size=1, max_size=2).map(" ".join)
QUERIES = st.one_of(st.none(), QUESTIONS)
EVERYTHING = st.just(1000)
FIRST = st.just(0)
SEARCHES = st.builds(SearchOp, PREFIXES, FILTERS, EVERYTHING, FIRST, QUERIES)
OPS = st.one_of(PUTS, PUTS, DELETES, GETS, SEARCHES)
BATCH = st.lists(OPS, min_size=1, max_size=6)
BATCHES = st.lists(BATCH, min_size=1, max_size=5)


def embed(texts) -> list[list[float]]:
    vectors = FakeEmbedder(64).embed_documents(list(texts))
    return vectors.tolist()


class Reference:
    """`InMemoryStore`, led around its known mistakes.

    Puts are applied one by one (two equal texts in one batch raise there) and after a deletion (an
    overwrite keeps old vectors there). A read creates namespaces there, so that their listing is
    left to the conformance suite.
    """

    def __init__(self) -> None:
        self._store = InMemoryStore(index={"dims": 64, "embed": embed})

    def batch(self, ops):
        results = []
        puts = {}
        for op in ops:
            if isinstance(op, PutOp):
                puts[op.namespace, op.key] = op
                results.append(None)
            else:
                results += self._store.batch([op])
        for (namespace, key), op in puts.items():
            deletion = PutOp(namespace, key, None)
            self._store.batch([deletion])
            self._store.batch([op])
        return results


def plain(result):
    """Return a result in comparable form, without scores and order.

    Theirs is a cosine.
    """
    if result is None:
        return None
    if not isinstance(result, list):
        return result.namespace, result.key, result.value
    scores = [item.score for item in result if item.score is not None]
    falling = sorted(scores, reverse=True)
    assert scores == falling
    rows = [row(item) for item in result]
    return sorted(rows, key=repr)


def row(item):
    is_scored = item.score is not None
    value = sorted(item.value.items())
    return is_scored, item.namespace, item.key, value


@pytest.mark.slow
@given(batches=BATCHES)
@settings(
    max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
def test_random_sequences_equal_langgraphs_own_store(batches):
    with EntropicMemory.open(embedder=FakeEmbedder(64)) as memory:
        store = EntropicStore(memory)
        reference = Reference()
        for ops in batches:
            ours = [plain(result) for result in store.batch(ops)]
            theirs = [plain(result) for result in reference.batch(ops)]
            assert ours == theirs, ops


@pytest.mark.parametrize("settings", [{}, {"pipeline": True, "pool_config": {"min_size": 1}}])
async def test_the_lines_of_langgraphs_asynchronous_stores_work(tmp_path, settings):
    path = tmp_path / "a.db"
    async with EntropicStore.from_conn_string(path, index=INDEX_64, **settings) as store:
        await store.setup()
        await store.aput(NS, "k", {"text": "tea"}, ttl=0.001)
        task = await store.start_ttl_sweeper(sweep_interval_minutes=5)
        await asyncio.sleep(0.1)
        swept = await store.sweep_ttl()
        is_stopped = await store.stop_ttl_sweeper()
    assert swept == 1
    assert is_stopped is True
    assert task.result(1) is None


def test_half_of_a_surrogate_pair_ends_no_run(store):
    half = "tea \ud83d"
    whole = "tea \ufffd"
    value = {"text": half, half: [half]}
    mended = {"text": whole, whole: [whole]}

    store.put(NS, half, value, index=["text"])
    item = store.get(NS, half)
    assert item.value == mended
    (found,) = store.search(NS, query=half)
    assert found.key == whole

    store.put((*NS, half), "k", {"text": half})
    for prefix in ((*NS, half), (*NS, whole)):
        (found,) = store.search(prefix, filter={"text": half})
        assert found.namespace == (*NS, whole)
        assert store.list_namespaces(prefix=prefix) == [(*NS, whole)]

    store.delete(NS, half)
    gone = store.get(NS, half)
    assert gone is None
