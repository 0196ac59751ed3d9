import random
from contextlib import suppress

import pytest

from ecs_plugins.errors import StorageError
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.memory import MemoryConfig
from ecs_plugins.memory.records import ERASED
from ecs_plugins.memory.store.values import pack, packed, packed_half
from ecs_plugins.ranking.embedder import FakeEmbedder
from tests.unit.memory.factories import SECRET, expire, holders, leftovers

MILL = "the old mill burned down"

BOTH_ENGINES = True


def fill(memory, count: int = 30) -> None:
    for i in range(count):
        memory.add(f"subject{i} does thing{i} " + "padding " * (37 * i % 200))


@pytest.mark.parametrize("how", ["delete", "update"])
def test_an_erased_text_is_in_no_file(open_memory, how):
    memory = open_memory()
    fill(memory)
    name = memory.add(SECRET, metadata={"note": "keep"})[0]
    fill(memory)
    if how == "delete":
        receipt = memory.delete(name)
        assert (receipt.messages, receipt.hot_erased) == ((name,), 1)
    else:
        receipt = memory.update(name, text="nothing to see here")
        assert memory.recall("nothing to see here")[0].metadata == {"note": "keep"}
    assert not receipt.scrubbed
    assert memory.admin.compact()
    assert receipt.scrubbed
    assert leftovers(memory) == []
    assert memory.admin.verify().ok


def test_erasure_follows_a_message_into_memories_and_their_versions(open_memory):
    memory = open_memory()
    first = memory.add(SECRET)[0]
    memory.sleep()
    second = memory.add(SECRET)[0]
    memory.sleep()
    assert memory.memories()[0].provenance == (first, second)
    memory.delete(first)
    memory.delete(second)
    assert memory.memories() == []
    assert leftovers(memory) == []
    assert memory.admin.verify().ok


def test_a_log_with_vectors_of_full_precision_is_read_and_erased_as_well(open_memory):
    memory = open_memory(config=MemoryConfig(merge_threshold=0.5))
    texts = [MILL, f"{MILL} xyzzysecret"]
    names = memory.add(texts)
    whole = [packed(vector) for vector in FakeEmbedder(32).embed_documents(texts)]
    with memory._store.database.write() as connection:
        for name, (vector, checksum) in zip(names, whole, strict=True):
            connection.execute(
                "UPDATE messages SET vector = ?, vector_crc = ? WHERE id = ?",
                (vector, checksum, name),
            )
    assert memory.admin.verify().ok
    assert holders(memory, whole[1][0])
    memory.delete(names[1])
    assert [each.text for each in memory.recall(MILL)] == [MILL]
    assert holders(memory, whole[1][0]) == []
    assert memory.admin.verify().ok


@pytest.mark.parametrize("tier", ["hot", "cold"])
def test_an_item_is_derived_anew_from_the_messages_that_remain(open_memory, tier):
    memory = open_memory(config=MemoryConfig(merge_threshold=0.5))
    rest = memory.add([MILL] * 2)
    (name,) = memory.add("the old mill burned down xyzzysecret")
    if tier == "cold":
        memory.sleep()
    before, *_ = memory.recall(MILL)
    assert before.support == 3
    assert before.tier == tier
    receipt = memory.delete(name)
    if tier == "hot":
        assert receipt.hot_derived == 1
        assert receipt.memories_derived == ()
    else:
        assert receipt.hot_derived == 0
        assert receipt.memories_derived == (before.id,)
    after, *_ = memory.recall(MILL)
    assert after.text == MILL
    assert after.support == 2
    assert after.provenance == tuple(rest)
    assert after.similarity == pytest.approx(1.0)
    assert holders(memory, b"xyzzysecret") == []
    assert memory.admin.verify().ok


def test_a_summary_that_drew_on_an_erased_message_goes(open_memory):
    model = FakeLanguageModel(replies=lambda _: "somebody at 4711 plughsummary")
    config = MemoryConfig(proposal="summary", merge_threshold=0.5)
    memory = open_memory(config=config, model=model)
    memory.add([MILL] * 2)
    (name,) = memory.add("the old mill burned down xyzzysecret")
    memory.sleep()
    (summary,) = memory.memories()
    assert summary.text == "somebody at 4711 plughsummary"
    memory.delete(name)
    (left,) = memory.memories()
    assert left.text == MILL
    assert holders(memory, b"plughsummary") == []


def test_decisions_about_erased_items_still_replay(open_memory):
    memory = open_memory()
    names = memory.add([SECRET] * 2)
    memory.sleep()
    (kept,) = memory.memories()
    for name in names:
        receipt = memory.delete(name)
    assert receipt.memories_erased == (kept.id,)
    recorded, *_ = memory.decisions()
    assert recorded.erased
    assert recorded.decision.members == (ERASED, ERASED)
    assert recorded.decision.candidate_id == ERASED
    replayed, *_ = memory.replay()
    assert replayed.agrees
    assert memory.decisions(item_id=kept.id) == []


def test_a_forgotten_namespace_leaves_neither_texts_nor_its_name(open_memory):
    memory = open_memory(store=None)
    someone = ("someone",)
    place = ("someone", "plughname")
    memory.add([SECRET] * 25, namespace=place)
    memory.add("others stay", namespace=someone)
    memory.recall(SECRET, namespace=place, also=[someone])
    memory.observe("what do they say?", f"they say {SECRET}", namespace=someone)
    memory.sleep(someone)
    receipt = memory.forget(place)
    memory.admin.compact()
    assert receipt.scrubbed
    assert receipt.namespaces == (place,)
    assert len(receipt.messages) == 25
    assert receipt.decisions
    assert leftovers(memory) == []
    assert holders(memory, b"plughname") == []
    assert memory.recall("others stay", namespace=someone)
    assert memory.admin.verify().ok


def test_forgetting_by_filter_erases_matches_only(open_memory):
    memory = open_memory()
    memory.add([SECRET] * 2, metadata={"person": 7})
    memory.add([MILL] * 2, metadata={"person": 8})
    memory.sleep()
    receipt = memory.forget(("default",), filter={"person": 7})
    assert len(receipt.messages) == 2
    assert [m.text for m in memory.memories()] == [MILL]
    assert leftovers(memory) == []


def test_an_erasure_that_was_interrupted_is_finished_at_the_next_opening(
    db, open_memory, monkeypatch
):
    memory = open_memory()
    name = memory.add([SECRET, MILL])[0]
    with monkeypatch.context() as patch:  # killed after the commit
        patch.setattr("ecs_plugins.memory.store.erasing._finish", lambda *_, **__: None)
        memory.delete(name)
    assert leftovers(memory)
    open_memory()
    assert leftovers(memory) == []


def test_deleting_a_memory_leaves_its_messages_unless_told(open_memory):
    memory = open_memory()
    memory.add([SECRET] * 2)
    memory.sleep()
    (secret,) = memory.memories()
    receipt = memory.delete(secret.id)
    memory.admin.compact()
    assert not receipt.scrubbed  # the messages still say it
    assert memory.memories() == []
    assert len(memory.messages()) == 2
    memory.add([MILL] * 2)
    memory.sleep()
    (mill,) = memory.memories()
    receipt = memory.delete(mill.id, evidence=True)
    memory.admin.compact()
    assert receipt.scrubbed
    assert len(memory.messages()) == 2
    assert memory.admin.verify().ok


@pytest.mark.parametrize("where", ["hot", "cold", "pinned"])
@pytest.mark.parametrize("changed", [0, 1])
def test_a_changed_message_parts_from_those_that_it_no_longer_repeats(open_memory, where, changed):
    memory = open_memory()
    names = memory.add([MILL] * 2)
    if where == "cold":
        memory.sleep()
    elif where == "pinned":
        memory.update(names[0], pinned=True)
    memory.update(names[changed], text="Bob lives in Rome")
    says = {"Bob lives in Rome": names[changed], MILL: names[1 - changed]}
    for text, name in says.items():
        best, *_ = memory.recall(text)
        assert best.text == text
        assert best.provenance == (name,)
        assert best.support == 1
        assert best.similarity == pytest.approx(1.0)
        assert best.pinned == (where == "pinned")
    assert memory.admin.verify().ok


def test_a_reply_that_parts_as_the_question_before_it_changes_stays_in_the_tiers(open_memory):
    memory = open_memory()
    said = "To the left, behind some willows"
    turns = [{"text": "Where is the mill?"}, {"text": said, "role": "assistant"}]
    question, reply, _, other = memory.add(turns * 2)
    (both,) = memory.recall(said, k=1)
    assert both.provenance == (reply, other)
    memory.update(question, text="Which colour had that old bicycle of the postman?")
    recalled = memory.recall(said, threshold=0.0, k=9)
    behind = [each.provenance for each in recalled]
    assert (reply,) in behind
    assert (other,) in behind
    assert memory.admin.verify().ok


@pytest.mark.parametrize("then", ["delete a message", "say it again", "both"])
def test_a_memory_that_was_redacted_stays_redacted(open_memory, then):
    memory = open_memory(config=MemoryConfig(merge_threshold=0.5))
    names = memory.add(["the old mill burned down xyzzysecret"] * 3, role="tool")
    memory.sleep()
    (kept,) = memory.memories()
    receipt = memory.update(kept.id, text=MILL)
    memory.admin.compact()
    assert not receipt.scrubbed  # the log still says it
    assert memory.get(kept.id).version == 2
    roles = {each.role for each in memory.messages()}
    assert roles == {"tool"}
    if then != "say it again":
        for name in names:
            receipt = memory.delete(name)
        memory.admin.compact()
        assert receipt.scrubbed
        assert holders(memory, b"xyzzysecret") == []
    if then != "delete a message":
        memory.add("the old mill burned down xyzzysecret")
        memory.sleep()
    present = [each.text for each in memory.memories()]
    versions = [each.text for each in memory.history(kept.id)]
    assert present == [MILL]
    assert versions == [MILL]
    assert memory.admin.verify().ok


@pytest.mark.parametrize("where", ["hot", "cold", "pinned"])
def test_a_repeat_that_expires_hides_nothing_that_stays(open_memory, where):
    memory = open_memory(config=MemoryConfig(merge_threshold=0.5))
    (name,) = memory.add(MILL, pinned=where == "pinned")
    memory.add("the old mill burned down xyzzysecret", at=1.0, ttl=2.0**31)
    if where == "cold":
        memory.sleep()
    (both,) = memory.recall(MILL)
    assert both.support == 2
    expire(memory)
    assert_left_alone(memory, where)
    memory.admin.purge()
    left = assert_left_alone(memory, where)
    assert left.provenance == (name,)


def assert_left_alone(memory, where):
    """Check that one source is left and the item stays."""
    (left,) = memory.recall(MILL)
    assert left.text == MILL
    assert left.support == 1
    assert left.pinned == (where == "pinned")
    kept = [] if where == "hot" else [MILL]
    assert [each.text for each in memory.memories()] == kept
    return left


def test_questions_about_erased_items_are_erased(open_memory):
    memory = open_memory()
    other = ("other",)
    memory.add([MILL, "cats chase birds"])
    memory.add(MILL, namespace=other)
    memory.recall(SECRET, also=[other])  # as the middleware does before it adds
    memory.recall("cats chase birds")
    memory.observe(f"is it true that {SECRET}?", "so they say", namespace=other)
    (name,) = memory.add(SECRET)
    memory.observe("who lives there?", "somebody does", used=[name])
    memory.observe("another thing", "another answer")
    memory.sleep()
    memory.sleep(other)
    assert memory.delete(name).queries == 4
    assert leftovers(memory) == []
    assert holders(memory, b"another answer")
    vector = FakeEmbedder(32).embed_query("cats chase birds")
    assert holders(memory, pack(vector))


@pytest.mark.parametrize("erase", ["delete", "forget"])
def test_pending_recalls_do_not_restore_erased_items(open_memory, erase):
    memory = open_memory()
    other = open_memory()
    memory.add(MILL)
    memory.add(MILL, namespace=("other",))
    name = memory.add(SECRET)[0]
    for each in (memory, other):
        each.recall(SECRET, also=[("other",)])
    if erase == "delete":
        memory.delete(name)
    else:
        memory.forget(("default",))
    memory.close()
    other.close()
    assert leftovers(memory) == []


def test_compact_leaves_nothing_of_erased_texts_in_any_page(db, open_memory):
    """Balancing a tree leaves copies of cells behind that only VACUUM removes."""
    memory = open_memory()
    rng = random.Random(5)
    texts = []
    for number in range(200):
        words = "".join(rng.choices("abcdefgh ", k=rng.randrange(900)))
        texts.append(f"xyzzy{number:03d} {words}")
    names = dict(zip(memory.add(texts), texts, strict=True))
    gone = rng.sample(sorted(names), 150)
    receipts = [memory.delete(name) for name in gone]
    assert not any(receipt.scrubbed for receipt in receipts)
    assert memory.admin.compact()
    assert all(receipt.scrubbed for receipt in receipts)
    for name in gone:
        text = names[name]
        vector = FakeEmbedder(32).embed_query(text)
        assert holders(memory, text[:8].encode()) == []
        assert holders(memory, pack(vector)) == []
        assert holders(memory, packed_half(vector)[0]) == []
    assert memory.admin.verify().ok


def test_a_reader_of_an_older_state_keeps_a_receipt_unscrubbed(db, open_memory):
    memory = open_memory()
    other = open_memory()
    (name,) = memory.add(SECRET)
    with other._store.database.read() as connection:
        connection.execute("SELECT count(*) FROM messages").fetchone()
        receipt = memory.delete(name)
        with suppress(StorageError):
            assert not memory.admin.compact()
        assert not receipt.scrubbed
    assert memory.admin.compact()
    assert receipt.scrubbed
    assert leftovers(memory) == []


class WatchedEmbedder(FakeEmbedder):
    """Notes whether a transaction is under way while it embeds."""

    def __init__(self):
        super().__init__(32)
        self.is_writing = lambda: False
        self.calls = []

    def embed_documents(self, texts):
        self.calls.append(self.is_writing())
        return super().embed_documents(texts)


QUESTION, ANSWER = "Where is the spare key?", "Under the blue pot."


@pytest.mark.parametrize("log_lost", [False, True])
@pytest.mark.parametrize("how", ["delete", "update", "forget", "purge", "memory"])
def test_nobody_waits_for_an_embedder_while_something_is_erased_or_changed(
    open_memory, how, log_lost
):
    embedder = WatchedEmbedder()
    memory = open_memory(embedder=embedder)
    asks = {"content": QUESTION, "role": "assistant", "metadata": {"k": 1}, "ttl": 2.0**31}
    asker, reply = memory.add([asks, {"content": ANSWER, "role": "user"}])
    memory.sleep()
    if log_lost:
        with memory._store.database.write() as connection:
            connection.execute("DELETE FROM messages WHERE id = ?", (reply,))
    embedder.is_writing = lambda: memory._store.database.is_writing
    embedder.calls.clear()
    if how == "delete":
        memory.delete(asker)
    elif how == "update":
        memory.update(asker, text="Is there a spare key?")
    elif how == "forget":
        memory.forget(("default",), filter={"k": 1})
    elif how == "memory":
        memory.update(memory.memories()[0].id, text="The key is gone.")
    else:
        expire(memory, asker)
        memory.admin.purge()
    assert embedder.calls
    assert not any(embedder.calls)


def test_a_reply_whose_question_is_erased_while_it_is_embedded_is_added_by_itself(open_memory):
    embedder = WatchedEmbedder()
    memory = open_memory(embedder=embedder)
    (asker,) = memory.add({"content": QUESTION, "role": "assistant"})
    embedder.is_writing = lambda: memory._store.database.is_writing
    embed = embedder.embed_documents

    def erasing(texts):
        embedder.embed_documents = embed
        memory.delete(asker)
        return embed(texts)

    embedder.embed_documents = erasing
    (reply,) = memory.add({"content": ANSWER, "role": "user"})
    assert not any(embedder.calls)
    (item,) = memory.recall("spare key", threshold=0)
    assert (item.text, item.asked) == (ANSWER, "")
    assert memory.get(reply).text == ANSWER
