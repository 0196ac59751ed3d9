"""What users of a LangGraph store rely on, as tests; see README.md in this folder."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest
from langgraph.store.base import InvalidNamespaceError, ListNamespacesOp, MatchCondition

NS = ("notes", "u1")
ODD_LABELS = ["%", "_", "a,b", 'q"', "[", "\\", "*", "A'--", "ä", "🙂"]
"""Marks of patterns, of quoting and of other scripts."""


def keys(items) -> list[str]:
    return [item.key for item in items]


class StoreConformance:
    """Subclass it, and fill in the fixture ``store`` with an empty store."""

    @pytest.fixture
    def store(self):
        raise NotImplementedError("fill in an empty store")

    def test_what_was_put_is_got_verbatim(self, store):
        value = {
            "text": "Ünïcode ✓",
            "n": 1,
            "f": 0.5,
            "none": None,
            "deep": {"list": [1, "a", {}]},
        }
        store.put(NS, "k", value)
        item = store.get(NS, "k")
        assert item.value == value
        assert item.key == "k"
        assert item.namespace == NS
        assert item.created_at.tzinfo is not None
        assert store.get(NS, "other") is None
        assert store.get(("notes",), "k") is None

    def test_the_last_put_of_a_key_wins_and_keeps_its_creation(self, store):
        store.put(NS, "k", {"v": 1})
        created_at = store.get(NS, "k").created_at
        time.sleep(0.01)
        store.put(NS, "k", {"v": 2})
        item = store.get(NS, "k")
        assert item.value == {"v": 2}
        assert item.updated_at > created_at
        assert item.created_at == created_at

    def test_a_deleted_item_is_gone_everywhere(self, store):
        store.put(NS, "k", {"text": "a heron on the weir"})
        store.put(NS, "other", {"text": "a kettle"})
        store.delete(NS, "k")
        store.delete(NS, "never")
        assert store.get(NS, "k") is None
        left = store.search(NS)
        nearest = store.search(NS, query="heron")
        assert keys(left) == ["other"]
        assert keys(nearest) == ["other"]

    def test_returned_values_are_copies(self, store):
        value = {"list": [1]}
        store.put(NS, "k", value)
        value["list"].append(2)
        got = store.get(NS, "k")
        got.value["list"].append(3)
        (found,) = store.search(NS)
        found.value["list"].append(4)
        again = store.get(NS, "k")
        assert again.value == {"list": [1]}

    @pytest.mark.parametrize("label", ODD_LABELS)
    def test_no_label_is_a_pattern(self, store, label):
        own = ("t", label)
        store.put(own, "k", {"own": True})
        store.put(("t", "x"), "k", {"own": False})
        (found,) = store.search(own)
        assert found.value == {"own": True}
        got = store.get(own, "k")
        assert got.value == {"own": True}

    def test_an_unknown_operator_is_refused(self, store):
        store.put(NS, "a", {"n": 1})
        with pytest.raises(ValueError, match=r"\$near"):
            store.search(NS, filter={"n": {"$near": 1}})

    @pytest.mark.parametrize("query", [None, "item"])
    def test_pages_partition_the_results(self, store, query):
        names = [f"k{n}" for n in range(7)]
        for name in names:
            store.put(NS, name, {"text": f"item {name}"})
        whole = store.search(NS, query=query, limit=10)
        pages = []
        for offset in (0, 3, 6, 9):
            page = store.search(NS, query=query, limit=3, offset=offset)
            pages.append(keys(page))
        assert [*chain.from_iterable(pages)] == keys(whole)
        assert [len(page) for page in pages] == [3, 3, 1, 0]
        assert sorted(keys(whole)) == names

    def test_a_search_finds_what_is_like_the_query_first(self, store):
        store.put(NS, "boat", {"text": "the ferry to the island"})
        store.put(NS, "food", {"text": "grilled sardines and lemon"})
        food, boat = store.search(NS, query="sardines with lemon")
        assert keys([food, boat]) == ["food", "boat"]
        assert food.score > boat.score
        assert isinstance(food.score, float)

    def test_namespaces_are_listed_by_prefix_suffix_wildcard_and_depth(self, store):
        abc = ("a", "b", "c")
        abd = ("a", "b", "d")
        axc = ("a", "x", "c")
        z = ("z",)
        for namespace in (abc, abd, axc, z):
            store.put(namespace, "k", {})
        listed = store.list_namespaces
        assert listed() == [abc, abd, axc, z]
        assert listed(prefix=("a", "b")) == [abc, abd]
        assert listed(suffix=("c",)) == [abc, axc]
        assert listed(prefix=("a", "*", "c")) == [abc, axc]
        assert listed(max_depth=2) == [abc[:2], axc[:2], z]
        assert listed(limit=2, offset=1) == [abd, axc]
        begins = MatchCondition("prefix", ("a",))
        ends = MatchCondition("suffix", ("d",))
        both = ListNamespacesOp((begins, ends))
        assert store.batch([both]) == [[abd]]

    @pytest.mark.parametrize("namespace", [(), ("a.b",), ("",), ("a", 1), ("langgraph", "x")])
    def test_a_bad_namespace_is_refused(self, store, namespace):
        with pytest.raises(InvalidNamespaceError):
            store.put(namespace, "k", {})

    def test_an_item_expires_unless_it_is_read(self, store):
        store.put(NS, "k", {"text": "short"}, ttl=0.02)
        store.put(NS, "kept", {"text": "long"}, ttl=None)
        time.sleep(0.7)
        assert store.get(NS, "k", refresh_ttl=True) is not None
        time.sleep(0.7)
        assert store.get(NS, "k", refresh_ttl=False) is not None
        time.sleep(0.7)
        assert store.get(NS, "k") is None
        left = store.search(NS)
        nearest = store.search(NS, query="short")
        assert keys(left) == ["kept"]
        assert keys(nearest) == ["kept"]

    def test_threads_do_not_disturb_each_other(self, store):
        def work(user: int) -> None:
            mine = ("users", f"u{user}")
            for n in range(5):
                note = {"text": f"note {n} of user {user}", "user": user}
                store.put(mine, f"k{n}", note)
                found = store.search(mine, query="note", limit=10)
                owners = {item.value["user"] for item in found}
                assert owners == {user}
            notes = store.search(mine, limit=10)
            assert len(notes) == 5

        with ThreadPoolExecutor(4) as threads:
            done = threads.map(work, range(4))
            assert len(list(done)) == 4

    async def test_the_async_methods_do_the_same(self, store):
        heron = {"text": "a heron"}
        await store.aput(NS, "k", heron)
        puts = [store.aput(NS, f"k{n}", {"text": f"note {n}"}) for n in range(4)]
        await asyncio.gather(*puts)
        got = await store.aget(NS, "k")
        every = await store.asearch(NS, limit=10)
        nearest = await store.asearch(NS, query="heron", limit=1)
        assert got.value == heron
        assert len(every) == 5
        assert keys(nearest) == ["k"]
        assert await store.alist_namespaces() == [NS]
        await store.adelete(NS, "k")
        assert await store.aget(NS, "k") is None
