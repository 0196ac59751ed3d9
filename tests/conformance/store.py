"""What users of a LangGraph store rely on, as tests; see README.md in this folder."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from langgraph.store.base import InvalidNamespaceError, ListNamespacesOp, MatchCondition

NS = ("notes", "u1")


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
        assert (item.value, item.key, item.namespace) == (value, "k", NS)
        assert item.created_at.tzinfo is not None
        assert store.get(NS, "other") is None
        assert store.get(("notes",), "k") is None

    def test_the_last_put_of_a_key_wins_and_keeps_its_creation(self, store):
        store.put(NS, "k", {"v": 1})
        first = store.get(NS, "k").created_at
        time.sleep(0.01)
        store.put(NS, "k", {"v": 2})
        item = store.get(NS, "k")
        assert item.value == {"v": 2}
        assert item.updated_at > first
        assert item.created_at == first

    def test_a_deleted_item_is_gone_everywhere(self, store):
        store.put(NS, "k", {"text": "a heron on the weir"})
        store.put(NS, "other", {"text": "a kettle"})
        store.delete(NS, "k")
        store.delete(NS, "never")
        assert store.get(NS, "k") is None
        assert keys(store.search(NS)) == ["other"]
        assert keys(store.search(NS, query="heron")) == ["other"]

    def test_returned_values_are_copies(self, store):
        value = {"list": [1]}
        store.put(NS, "k", value)
        value["list"].append(2)
        store.get(NS, "k").value["list"].append(3)
        store.search(NS)[0].value["list"].append(4)
        assert store.get(NS, "k").value == {"list": [1]}

    @pytest.mark.parametrize("label", ["%", "_", "a,b", 'q"', "[", "\\", "*", "A'--", "ä", "🙂"])
    def test_no_label_is_a_pattern(self, store, label):
        store.put(("t", label), "k", {"own": True})
        store.put(("t", "x"), "k", {"own": False})
        assert [item.value for item in store.search(("t", label))] == [{"own": True}]
        assert store.get(("t", label), "k").value == {"own": True}

    def test_an_unknown_operator_is_refused(self, store):
        store.put(NS, "a", {"n": 1})
        with pytest.raises(ValueError, match=r"\$near"):
            store.search(NS, filter={"n": {"$near": 1}})

    @pytest.mark.parametrize("query", [None, "item"])
    def test_pages_partition_the_results(self, store, query):
        for n in range(7):
            store.put(NS, f"k{n}", {"text": f"item number {n}"})
        whole = keys(store.search(NS, query=query, limit=10))
        pages = [
            keys(store.search(NS, query=query, limit=3, offset=offset)) for offset in (0, 3, 6, 9)
        ]
        assert [key for page in pages for key in page] == whole
        assert [len(page) for page in pages] == [3, 3, 1, 0]
        assert sorted(whole) == [f"k{n}" for n in range(7)]

    def test_a_search_finds_what_is_like_the_query_first(self, store):
        store.put(NS, "boat", {"text": "the ferry to the island"})
        store.put(NS, "food", {"text": "grilled sardines and lemon"})
        found = store.search(NS, query="sardines with lemon")
        assert keys(found) == ["food", "boat"]
        assert found[0].score > found[1].score
        assert isinstance(found[0].score, float)

    def test_namespaces_are_listed_by_prefix_suffix_wildcard_and_depth(self, store):
        spaces = [("a", "b", "c"), ("a", "b", "d"), ("a", "x", "c"), ("z",)]
        for namespace in spaces:
            store.put(namespace, "k", {})
        assert store.list_namespaces() == sorted(spaces)
        assert store.list_namespaces(prefix=("a", "b")) == spaces[:2]
        assert store.list_namespaces(suffix=("c",)) == [spaces[0], spaces[2]]
        assert store.list_namespaces(prefix=("a", "*", "c")) == [spaces[0], spaces[2]]
        assert store.list_namespaces(max_depth=2) == [("a", "b"), ("a", "x"), ("z",)]
        assert store.list_namespaces(limit=2, offset=1) == spaces[1:3]
        both = (MatchCondition("prefix", ("a",)), MatchCondition("suffix", ("d",)))
        assert store.batch([ListNamespacesOp(both)]) == [[spaces[1]]]

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
        assert keys(store.search(NS)) == ["kept"]
        assert keys(store.search(NS, query="short")) == ["kept"]

    def test_threads_do_not_disturb_each_other(self, store):
        def work(user: int) -> None:
            mine = ("users", f"u{user}")
            for n in range(5):
                store.put(mine, f"k{n}", {"text": f"note {n} of user {user}", "user": user})
                found = store.search(mine, query="note", limit=10)
                assert {item.value["user"] for item in found} == {user}
            assert len(store.search(mine, limit=10)) == 5

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, range(4)))

    async def test_the_async_methods_do_the_same(self, store):
        await store.aput(NS, "k", {"text": "a heron"})
        await asyncio.gather(*(store.aput(NS, f"k{n}", {"text": f"note {n}"}) for n in range(4)))
        assert (await store.aget(NS, "k")).value == {"text": "a heron"}
        assert len(await store.asearch(NS, limit=10)) == 5
        assert keys(await store.asearch(NS, query="heron", limit=1)) == ["k"]
        assert await store.alist_namespaces() == [NS]
        await store.adelete(NS, "k")
        assert await store.aget(NS, "k") is None
