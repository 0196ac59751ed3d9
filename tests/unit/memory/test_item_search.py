"""Search among key-value items after every kind of write."""

import numpy as np
import pytest

from ecs_plugins.memory.store import item_index
from ecs_plugins.memory.store.items import NewItem
from ecs_plugins.memory.store.namespaces import key_of
from ecs_plugins.ranking.embedder import FakeEmbedder

HERE = ("notes", "u1")
ABOVE = ("notes",)
QUESTION = "where is the spare key"

BOTH_ENGINES = True


def item(key, text, namespace=HERE, **options):
    value = {"text": text, "n": len(text)}
    return NewItem(namespace, key, value, {"text": text}, **options)


def put(memory, *items):
    memory.items.write(items)


def search(memory, query=QUESTION, prefix=ABOVE, **options):
    vector = memory.items.embed_query(query)
    with memory.items.view(search=True) as view:
        return view.search(prefix, query, vector, **options)


def keys(hits):
    return [each.key for each, _ in hits]


def test_items_have_the_order_and_the_scores_that_a_recall_gives_the_same_texts(open_memory):
    memory = open_memory(embedder=FakeEmbedder(384))
    texts = ["the spare key is under the pot", "a boat is blue", "the mill is far", "key"]
    memory.add(texts, role="user")
    put(memory, *[item(text, text) for text in texts])
    recalled = memory.recall(QUESTION, threshold=0.0, k=9, record=False)
    hits = search(memory)
    assert keys(hits) == [each.text for each in recalled]
    scores = [score for _, score in hits]
    assert scores == pytest.approx([each.score for each in recalled])


def test_a_reply_is_found_by_the_question_before_it_until_that_is_gone(open_memory):
    memory = open_memory(embedder=FakeEmbedder(384))
    asks = item("asks", "Ana: Where is the spare key?")
    put(memory, asks, item("reply", "Ben: Under it."), item("other", "Ben: Under them."))
    assert keys(search(memory)) == ["asks", "reply", "other"]
    put(memory, item("asks", "Ana: What a day."))
    assert_as_anew(memory, open_memory)
    put(memory, asks)
    assert keys(search(memory))[:2] == ["asks", "reply"]
    memory.items.write(deletes=[(HERE, "asks")])
    assert_as_anew(memory, open_memory)


def assert_as_anew(memory, open_memory):
    """Check that a search equals the search after reopening."""
    with open_memory(embedder=memory._store.embedder) as anew:
        for prefix in (ABOVE, (*ABOVE, "u1"), ()):
            assert search(memory, prefix=prefix) == search(anew, prefix=prefix)


def changes(rng, number):
    """Some puts and deletes of a few keys in two namespaces."""
    words = ["key", "pot", "boat", "mill", "spare", "blue", "where?"]
    puts = []
    deletes = []
    for _ in range(3):
        namespace = (*ABOVE, f"u{rng.integers(2)}")
        key = f"k{rng.integers(8)}"
        if rng.random() < 0.3:
            deletes.append((namespace, key))
        else:
            text = f"{'Ana' if number % 2 else 'Ben'}: {' '.join(rng.choice(words, 3))}"
            puts.append(item(key, text, namespace))
    return puts, deletes


@pytest.mark.parametrize("seed", range(3))
def test_an_updated_index_equals_a_rebuilt_one(open_memory, seed):
    rng = np.random.default_rng(seed)
    memory = open_memory()
    writer = open_memory()  # as another process would
    for number in range(12):
        puts, deletes = changes(rng, number)
        who = writer if number % 3 else memory
        who.items.write(puts, deletes=deletes)
        assert_as_anew(memory, open_memory)


def test_pages_filters_and_texts_that_are_missing(open_memory):
    memory = open_memory()
    put(memory, *[item(f"k{number}", f"spare {number}") for number in range(150)])
    put(memory, NewItem(HERE, "silent", {"n": 1}))
    every = search(memory)
    assert len(every) == 151
    assert every[-1][0].key == "silent"
    assert every[-1][1] is None
    assert search(memory, limit=90) == every[:90]
    is_long = search(memory, condition=lambda value: value["n"] >= 9)
    assert len(is_long) == 50
    silent = search(memory, condition=lambda value: value["n"] == 1, limit=5)
    assert keys(silent) == ["silent"]


def test_an_item_is_found_by_its_best_text_once(open_memory):
    memory = open_memory()
    texts = {"title": "a boat", "body": QUESTION}
    put(memory, NewItem(HERE, "both", {"n": 1}, texts), item("one", "the spare boat"))
    assert keys(search(memory)) == ["both", "one"]


def test_other_namespaces_do_not_affect_a_score(open_memory):
    memory = open_memory()
    put(memory, item("mine", "the spare key"), item("also", "a blue pot"))
    before = search(memory, prefix=HERE)
    put(memory, *[item(f"k{number}", "spare key", ("notes", "u10")) for number in range(40)])
    assert search(memory, prefix=HERE) == before
    assert len(search(memory, prefix=ABOVE)) == 42


def test_a_rolled_back_write_is_never_found(open_memory):
    memory = open_memory()
    put(memory, item("kept", "the spare key"))
    kept = search(memory)

    def fail():
        put(memory, item("lost", QUESTION))
        assert "lost" in keys(search(memory))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        memory.items.together([], fail)
    assert search(memory) == kept
    put(memory, item("later", "another key"))
    assert sorted(keys(search(memory))) == ["kept", "later"]


def test_an_item_that_has_expired_takes_no_place(open_memory):
    memory = open_memory()
    gone = [item(f"k{number}", QUESTION, ttl=100.0) for number in range(5)]
    put(memory, *gone, item("kept", "the spare boat"))
    assert len(search(memory)) == 6
    with memory._store.database.write() as connection:  # time passes
        connection.execute("UPDATE items SET expires = 3.0 WHERE expires IS NOT NULL")
    assert keys(search(memory, limit=1)) == ["kept"]


def test_beyond_its_budget_the_index_that_was_used_last_stays(open_memory, monkeypatch):
    monkeypatch.setattr(item_index, "_BUDGET", 0)
    memory = open_memory()
    put(memory, item("kept", "the spare key"))
    search(memory, prefix=ABOVE)
    search(memory, prefix=HERE)
    (((_, kept), _),) = memory.items._indexes._open.items()
    assert kept == key_of(HERE)
