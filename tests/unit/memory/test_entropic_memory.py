import inspect
import math
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from operator import methodcaller

import pytest

from ecs_plugins.errors import ConfigurationError, InvalidInputError, StorageError
from ecs_plugins.memory import EntropicMemory, MemoryConfig, StoreConfig
from ecs_plugins.memory.admin import MemoryAdmin
from ecs_plugins.memory.prior import worth
from ecs_plugins.memory.store.messages import NewMessage
from ecs_plugins.ranking.embedder import FakeEmbedder

BOTH_ENGINES = True
SOON = time.time() + 3600


def texts(found) -> list[str]:
    return [item.text for item in found]


BAD = [
    "",
    "  ",
    "\ud800",
    NewMessage,
    None,
    5,
    {"content": ""},
    {"text": "a", "oops": 1},
    *({"content": "x", "at": at} for at in ("2025-01-01T10:00:00", math.nan, 2**63)),
    *({"content": "x", "ttl": ttl} for ttl in ("5", math.inf, 10**400)),
    {"content": "x", "role": 5},
    {"content": "x", "writer": 5},
    *(
        {"content": "x", "metadata": {"key": value}}
        for value in (math.nan, math.inf, object(), {1, 2}, "\ud800", [math.nan])
    ),
]


@pytest.mark.parametrize("bad", BAD)
def test_a_message_that_cannot_be_kept_is_refused_before_anything_is_written(open_memory, bad):
    memory = open_memory()
    for said in (["fine", bad], bad):
        with pytest.raises(InvalidInputError):
            memory.add(said)
    assert memory.messages() == []


def test_missing_settings_of_a_mapping_are_defaults(open_memory):
    memory = open_memory()
    draft = {"content": "hello", "role": None, "metadata": None, "ttl": 5.0}
    memory.add(draft, role="tool", metadata={"a": 1}, writer="agent", at=SOON)
    memory.add({"text": "you"}, role=None)
    first, second = memory.messages()
    assert first.text == "hello"
    assert first.role == "tool"
    assert first.metadata == {"a": 1}
    assert first.writer == "agent"
    assert first.created == SOON
    assert first.expires == SOON + 5
    assert second.text == "you"
    assert second.role == "user"


def test_repetitions_in_one_batch_are_one_item(open_memory):
    memory = open_memory()
    memory.add(["the boat is blue", *["the server is up"] * 40, "the boat is blue"])
    memory.add(["the server is up"] * 20)
    recalled = memory.recall("the server is up", k=9, threshold=0.0)
    assert [each.support for each in recalled] == [60, 2]


def test_sleep_runs_by_itself_every_so_many_messages(open_memory):
    memory = open_memory(config=MemoryConfig(sleep_every=5), store=None)
    memory.add([f"subject{i} does thing{i}" for i in range(13)])
    assert len(memory.sleeps()) == 2
    assert memory.admin.stats().namespaces[0].since_sleep == 3


def test_a_sleep_phase_moves_supported_items_and_records_reasons(open_memory):
    memory = open_memory()
    memory.add(["the boat is blue", "the boat is blue", "cats chase birds"])
    report = memory.sleep()
    assert report is not None
    assert report.cold[1] == report.counts["insert"]
    assert texts(memory.recall("the boat is blue", tiers="cold")) == ["the boat is blue"]
    assert all(each.agrees for each in memory.replay())
    explanation = memory.explain(memory.memories()[0].id)
    assert explanation.tier == "cold"
    assert explanation.free_energy is not None
    assert any("insert" in line for line in explanation.lines)
    assert explanation.prior == worth("the boat is blue")
    assert any(f"{explanation.prior:+.4f} nats are the prior" in line for line in explanation.lines)


def test_pinning_more_than_the_cold_tier_holds_is_refused(open_memory):
    memory = open_memory(config=MemoryConfig(cold_capacity=1))
    memory.add("first", pinned=True)
    with pytest.raises(InvalidInputError, match="raise cold_capacity"):
        memory.add("second", pinned=True)
    assert texts(memory.messages()) == ["first"]


def test_pinning_a_message_moves_its_item_and_unpinning_lets_it_go(open_memory):
    memory = open_memory()
    name = memory.add("the boat is blue")[0]
    memory.update(name, pinned=True)
    kept = memory.memories()[0]
    assert (kept.pinned, kept.provenance) == (True, (name,))
    assert texts(memory.recall("the boat is blue", tiers="hot")) == []
    memory.update(kept.id, pinned=False)
    assert not memory.memories()[0].pinned
    assert memory.admin.verify().ok


def test_a_filter_selects_by_metadata(open_memory):
    memory = open_memory(config=MemoryConfig(merge_threshold=1.0))
    kinds = ["report", "a%", 'ä"\\u0000\0', "A%", "note"]
    for year in range(10):
        metadata = {
            "year": year,
            "kind": kinds[year % 5],
            "old": year < 5,
            "twice": 2.0 * year,
        }
        memory.add(f"a report of that year {year}", metadata=metadata)
    for year in range(5, 9):
        wanted = {
            "year": {"$gte": 4},
            "kind": kinds[year % 5],
            "old": 0,
            "twice": 2 * year,
        }
        recalled = memory.recall("a report of that year", filter=wanted, k=9, threshold=0)
        assert [each.metadata["year"] for each in recalled] == [year]
    with pytest.raises(InvalidInputError, match=r"\$like"):
        memory.recall("report", filter={"year": {"$like": 7}})


def test_hits_and_outcomes_raise_demand(open_memory):
    memory = open_memory()
    memory.add(["the boat is blue"] * 2 + ["cats chase birds"] * 2)
    memory.sleep()
    for _ in range(5):
        memory.add(f"filler {_}")
        found = memory.recall("the boat is blue", k=1)
    memory.observe("the boat is blue", "blue it is", used=[found[0].id])
    energy = {m.text: memory.explain(m.id).free_energy.total for m in memory.memories()}
    assert energy["the boat is blue"] < energy["cats chase birds"]
    assert memory.admin.stats().pending == 0


def test_another_embedder_is_refused_and_reembedding_takes_it(open_memory):
    memory = open_memory()
    memory.add(["the boat is blue"] * 2 + ["cats chase birds"])
    memory.close()
    with pytest.raises(ConfigurationError, match="reembed=True"):
        open_memory(embedder=FakeEmbedder(16))
    memory = open_memory(embedder=FakeEmbedder(16), reembed=True)
    assert texts(memory.recall("the boat is blue")) == ["the boat is blue"]
    assert memory.admin.stats().embedder["dimension"] == 16
    assert memory.admin.verify().ok


def test_a_process_that_still_has_the_old_embedder_is_told(open_memory):
    old, new = open_memory(), open_memory()
    old.add("the boat is blue")
    new.admin.reembed(FakeEmbedder(16))
    with pytest.raises(StorageError, match="re-embedded"):
        old.recall("the boat is blue")
    with pytest.raises(StorageError, match="re-embedded"):
        old.add("more", namespace=("another",))
    assert texts(new.recall("the boat is blue")) == ["the boat is blue"]


@pytest.mark.slow
@pytest.mark.parametrize("path", ["memory.db", ":memory:"])
def test_eight_threads_add_and_recall_while_sleeps_run(open_memory, tmp_path, path):
    memory = open_memory(
        path=path if path == ":memory:" else tmp_path / path,
        config=MemoryConfig(sleep_every=10, hot_capacity=20),
        store=StoreConfig(sleep="background"),
    )

    def work(number: int) -> None:
        for i in range(15):
            memory.add(f"worker{number} says thing{i}", namespace=("shared",))
            memory.recall(f"worker{number} thing{i}", namespace=("shared",))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert memory.admin.wait(60)
    assert len(memory.messages(("shared",))) == 120
    assert memory.sleeps(("shared",))
    memory.admin.compact()
    assert memory.admin.verify().ok
    memory.forget(("shared",))
    assert memory.namespaces() == []


def test_settings_are_taken_as_json_and_unknown_ones_are_refused(open_memory):
    memory = open_memory(config={"cold_capacity": 7}, store={"sleep": "manual"})
    assert memory.config == MemoryConfig(cold_capacity=7)
    for wrong in ({"cold_capacty": 7}, ["cold_capacity"], "cold"):
        with pytest.raises(ConfigurationError):
            open_memory(config=wrong)


VERBS = ["sleep", "sleeps", "decisions", "replay", "messages", "memories", "namespaces", "forget"]


@pytest.mark.parametrize(
    "use",
    [
        lambda memory: memory.add("text", namespace="user"),
        lambda memory: memory.recall("text", namespace="user"),
        lambda memory: memory.recall("text", also=["user"]),
        lambda memory: memory.recall("text", also="user"),
        lambda memory: memory.observe("text", "answer", namespace="user"),
        *(methodcaller(verb, "user") for verb in VERBS),
        lambda memory: memory.admin.stats("user"),
        lambda memory: memory.admin.export("out.jsonl", namespace="user"),
    ],
)
def test_a_text_is_refused_as_a_namespace(open_memory, use):
    memory = open_memory()
    with pytest.raises(InvalidInputError, match="write"):
        use(memory)
    assert memory.namespaces() == []


def test_the_id_of_another_namespace_is_not_found(open_memory):
    memory = open_memory()
    (mine,) = memory.add("Ada keeps bees.", namespace=("ada",))
    own = memory.get(mine, namespace=("ada",))
    assert own.text == "Ada keeps bees."
    explanation = memory.explain(mine, namespace=("ada",))
    assert explanation.id == mine
    for stranger in (("bob",), ("ada", "work"), ("default",)):
        memory.add("Something else.", namespace=stranger)
        assert memory.get(mine, namespace=stranger) is None
        assert memory.history(mine, namespace=stranger) == []
        for verb in (memory.explain, memory.delete, memory.update):
            with pytest.raises(InvalidInputError, match=f"the id '{mine}'"):
                verb(mine, namespace=stranger)
    memory.delete(mine, namespace=("ada",))
    assert memory.get(mine) is None


@pytest.mark.parametrize(
    "options",
    [
        {"k": "5"},
        {"k": math.nan},
        {"threshold": "0.5"},
        {"threshold": math.nan},
        {"namespace": None},
        {"namespace": 5},
        {"at": math.nan},
    ],
)
def test_a_recall_out_of_range_is_refused(open_memory, options):
    memory = open_memory()
    memory.add("Ada keeps bees.")
    with pytest.raises(InvalidInputError):
        memory.recall("Who keeps bees?", **options)


def test_half_of_a_surrogate_pair_is_no_crash(open_memory):
    memory = open_memory()
    memory.observe("who\ud800?", "Ada\udfff", used=["\ud800"])
    assert memory.get("\ud800") is None
    assert memory.history("\ud800") == []
    for verb in (memory.explain, memory.delete, memory.update):
        with pytest.raises(InvalidInputError):
            verb("\ud800")


@pytest.mark.parametrize("kind", [EntropicMemory, MemoryAdmin])
def test_every_method_has_an_async_form(kind):
    methods = {
        name
        for name, value in vars(kind).items()
        if not name.startswith("_") and inspect.isfunction(value)
    }
    forms = {name for name in methods if inspect.iscoroutinefunction(vars(kind)[name])}
    lacking = {
        name
        for name in methods - forms
        if not {f"a{name}", f"a{name.rstrip('_')}", f"a{name}_"} & forms  # `await` is taken
    }
    assert lacking == set()


# Namespaces

HOSTILE = [
    "a",
    "a.b",
    "a/b",
    'a"b',
    "a'b",
    "a%",
    "a_",
    "%",
    "_",
    "ab",
    "a,b",
    "a]",
    '["a"',
    "\\",
    "\\u0061",
    "é",
    "e\u0301",
    "😀",
    "\x00",
    " ",
    "a ",
    "'; DROP TABLE messages; --",
    "-",
    ",",
]


@pytest.mark.slow
def test_hostile_labels_never_see_each_others_memories(open_memory):
    memory = open_memory()
    namespaces = [(label,) for label in HOSTILE]
    namespaces += product(HOSTILE[:6], HOSTILE[:6])
    for number, namespace in enumerate(namespaces):
        memory.add(f"secret number{number}", namespace=namespace)
    for number, namespace in enumerate(namespaces):
        secret = f"secret number{number}"
        recalled = memory.recall(secret, namespace=namespace, threshold=-1.0, k=50)
        assert texts(recalled) == [secret]
        depth = len(namespace)
        below_it = [each for each in namespaces if each[:depth] == namespace]
        assert sorted(memory.namespaces(namespace)) == sorted(below_it)
    for namespace in reversed(namespaces):
        receipt = memory.forget(namespace)
        assert receipt.namespaces == (namespace,)
    assert memory.namespaces() == []
