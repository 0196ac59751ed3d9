"""Conformance tests of a LangGraph store; see README.md in this folder."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from langgraph.store.base import InvalidNamespaceError, ListNamespacesOp, MatchCondition

NS = ("notes", "u1")
ODD_LABELS = [
    "%",
    "_",
    "a,b",
    'q"',
    "[",
    "\\",
    "*",
    "A'--",
    "ä",
    "🙂",
]
"""Marks of patterns, of quoting and of other scripts."""


def keys(items) -> list[str]:
    return [item.key for item in items]


class StoreConformance:
    """Subclass it, and fill in the fixture ``store`` with an empty store."""

    @pytest.fixture
    def store(self):
        raise NotImplementedError("fill in an empty store")

    def test_a_value_is_returned_verbatim(self, store):
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
        zone = item.created_at.tzinfo
        assert zone is not None
        other_key = store.get(NS, "other")
        assert other_key is None
        above = store.get(("notes",), "k")
        assert above is None

    def test_the_last_put_of_a_key_wins_and_keeps_its_creation(self, store):
        store.put(NS, "k", {"v": 1})
        first = store.get(NS, "k")
        time.sleep(0.01)
        store.put(NS, "k", {"v": 2})
        item = store.get(NS, "k")
        assert item.value == {"v": 2}
        assert item.updated_at > first.created_at
        assert item.created_at == first.created_at

    def test_a_deleted_item_is_gone_everywhere(self, store):
        store.put(NS, "k", {"text": "a heron on the weir"})
        store.put(NS, "other", {"text": "a kettle"})
        store.delete(NS, "k")
        store.delete(NS, "never")
        gone = store.get(NS, "k")
        assert gone is None
        (left,) = store.search(NS)
        assert left.key == "other"
        (nearest,) = store.search(NS, query="heron")
        assert nearest.key == "other"

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
            text = f"item {name}"
            store.put(NS, name, {"text": text})
        whole = store.search(NS, query=query, limit=10)
        found = keys(whole)
        paged = []
        sizes = []
        for offset in (0, 3, 6, 9):
            page = store.search(NS, query=query, limit=3, offset=offset)
            paged += keys(page)
            sizes.append(len(page))
        assert paged == found
        assert sizes == [3, 3, 1, 0]
        assert sorted(found) == names

    def test_a_search_ranks_similar_values_first(self, store):
        store.put(NS, "boat", {"text": "the ferry to the island"})
        store.put(NS, "food", {"text": "grilled sardines and lemon"})
        food, boat = store.search(NS, query="sardines with lemon")
        assert food.key == "food"
        assert boat.key == "boat"
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
        every = listed()
        assert every == [abc, abd, axc, z]
        by_prefix = listed(prefix=("a", "b"))
        assert by_prefix == [abc, abd]
        by_suffix = listed(suffix=("c",))
        assert by_suffix == [abc, axc]
        by_wildcard = listed(prefix=("a", "*", "c"))
        assert by_wildcard == [abc, axc]
        cut = listed(max_depth=2)
        assert cut == [("a", "b"), ("a", "x"), z]
        page = listed(limit=2, offset=1)
        assert page == [abd, axc]
        begins = MatchCondition("prefix", ("a",))
        ends = MatchCondition("suffix", ("d",))
        both = ListNamespacesOp((begins, ends))
        (by_both,) = store.batch([both])
        assert by_both == [abd]

    @pytest.mark.parametrize("namespace", [(), ("a.b",), ("",), ("a", 1), ("langgraph", "x")])
    def test_a_bad_namespace_is_refused(self, store, namespace):
        with pytest.raises(InvalidNamespaceError):
            store.put(namespace, "k", {})

    def test_an_item_expires_unless_it_is_read(self, store):
        store.put(NS, "k", {"text": "short"}, ttl=0.02)
        store.put(NS, "kept", {"text": "long"}, ttl=None)
        time.sleep(0.7)
        refreshed = store.get(NS, "k", refresh_ttl=True)
        assert refreshed is not None
        time.sleep(0.7)
        untouched = store.get(NS, "k", refresh_ttl=False)
        assert untouched is not None
        time.sleep(0.7)
        expired = store.get(NS, "k")
        assert expired is None
        (left,) = store.search(NS)
        assert left.key == "kept"
        (nearest,) = store.search(NS, query="short")
        assert nearest.key == "kept"

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
        puts = []
        for number in range(4):
            note = {"text": f"note {number}"}
            puts.append(store.aput(NS, f"k{number}", note))
        await asyncio.gather(*puts)
        got = await store.aget(NS, "k")
        assert got.value == heron
        every = await store.asearch(NS, limit=10)
        assert len(every) == 5
        (nearest,) = await store.asearch(NS, query="heron", limit=1)
        assert nearest.key == "k"
        namespaces = await store.alist_namespaces()
        assert namespaces == [NS]
        await store.adelete(NS, "k")
        gone = await store.aget(NS, "k")
        assert gone is None
