"""Recall compared with scoring everything, after every kind of write."""

import json
import os
import time
from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest

from ecs_plugins.common.text import as_reply
from ecs_plugins.errors import ModelError
from ecs_plugins.integrations.recall import RecallFields, recall
from ecs_plugins.memory import EntropicMemory, MemoryConfig
from ecs_plugins.memory.relevance import DEFAULT, encounter, read, relevance
from ecs_plugins.memory.store import search
from ecs_plugins.memory.store.embedder_record import RecordedEmbedder
from ecs_plugins.memory.store.intake import _embedded
from ecs_plugins.memory.store.messages import NewMessage
from ecs_plugins.memory.store.schema import MEMORY_FILE
from ecs_plugins.ranking.coverage import CoverageIndex
from ecs_plugins.ranking.embedder import FakeEmbedder
from ecs_plugins.storage.sqlite import Database
from tests.unit.memory.factories import assert_current, holders, in_child

WIDE = MemoryConfig(merge_threshold=1.0, hot_capacity=2000)
WORDS = ["bees", "mill", "station", "ferry", "red", "blue", "tower", "of", "the", "keeps", "noon"]

BOTH_ENGINES = True


def sentences(count, seed=0):
    rng = np.random.default_rng(seed)
    texts = []
    for number in range(count):
        words = " ".join(rng.choice(WORDS, 5))
        texts.append(f"{words} {number}")
    return texts


def one_by_one(texts, query, among=None):
    """Return fit and score of each text, or of each of some."""
    index = CoverageIndex()
    for number, text in enumerate(texts):
        index.add(number, text)
    among = among or texts
    numbers = np.array([texts.index(text) for text in among])
    embedder = FakeEmbedder(32)
    vectors = embedder.embed_documents(among)
    cosines = vectors @ embedder.embed_query(query)
    cosines = cosines.astype(float).round(6)
    question = read(query)
    coverage = index.coverage(question.content, numbers)
    fits = (cosines + coverage) / 2
    known = [name for name in question.names if index.has(name)]
    met = encounter(question, items=len(among), known=known)
    scores = relevance(cosines, coverage, met).tolist()
    return dict(zip(among, zip(fits.tolist(), scores, strict=True), strict=True))


def found(memory, query="red bees of the mill", **options):
    wanted = {"k": 5, "threshold": 0.0, "record": False}
    wanted.update(options)
    recalled = memory.recall(query, **wanted)
    return {each.text: each.score for each in recalled}


def assert_best(recalled, scores):
    """Leave open which of several equal ones are found."""
    expected = {text: scores[text][1] for text in recalled}
    assert recalled == pytest.approx(expected, abs=1e-6)
    falling = sorted((fit for fit, _ in scores.values()), reverse=True)
    best = [scores[text][0] for text in recalled]
    assert best == pytest.approx(falling[:5], abs=1e-6)


@pytest.mark.parametrize("candidates", [1, 7, 100])
def test_a_recall_equals_scoring_everything(open_memory, monkeypatch, candidates):
    monkeypatch.setattr(search, "CANDIDATES", candidates)
    memory = open_memory(config=WIDE)
    texts = sentences(150)
    drafts = []
    for number, text in enumerate(texts):
        drafts.append({"text": text, "metadata": {"of": number % 7}})
    memory.add(drafts)
    filtered = {"of": 0}
    chosen = texts[::7]
    for query in ("red bees of the mill", "a ferry at noon?", "tower 17", "nothing of it"):
        scores = one_by_one(texts, query)
        assert_best(found(memory, query), scores)
        of_chosen = one_by_one(texts, query, among=chosen)
        assert_best(found(memory, query, filter=filtered), of_chosen)


def test_expired_items_and_the_other_tier_take_no_places(open_memory, monkeypatch):
    monkeypatch.setattr(search, "CANDIDATES", 2)
    memory = open_memory(config=WIDE)
    texts = sentences(40)
    expired = texts[:30]
    hot = texts[30:35]
    cold = texts[35:]
    long_ago = time.time() - 100
    gone = memory.add(expired, at=long_ago, ttl=10.0)
    memory.add(hot)
    memory.add(cold, pinned=True)
    every = found(memory, k=50)
    assert every.keys() == {*hot, *cold}
    of_cold = found(memory, k=50, tiers="cold")
    assert of_cold.keys() == {*cold}
    of_hot = found(memory, k=3, tiers="hot")
    assert len(of_hot) == 3
    assert memory.get(gone[0]) is None
    receipt = memory.admin.purge()
    assert sorted(receipt.messages) == sorted(gone)
    assert memory.admin.verify().ok


def test_the_paper_recalls_by_cosine_alone(open_memory):
    memory = open_memory(config=MemoryConfig.paper())
    reply = {"role": "assistant", "content": "bees"}
    texts = ["red bees", "What is red?", reply]
    memory.add(texts, pinned=True)
    best, *_ = memory.recall("bees", threshold=-1.0)
    assert best.text == "bees"
    assert best.asked == ""
    assert best.score == pytest.approx(1.0)
    assert best.score == best.similarity
    assert "cosine" in best.why


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_forked_child_reads_the_words_anew_and_writes(open_memory):
    memory = open_memory()
    memory.add(["red bees", "a blue mill"])
    assert_current(memory)

    def in_the_child():
        assert_current(memory)
        memory.add("a child")
        best, *_ = found(memory)
        return best

    assert in_child(in_the_child) == "red bees"
    memory.add("the ferry leaves")
    assert_current(memory)
    assert len(memory.messages()) == 4


def test_a_question_about_nothing_recalls_nothing(open_memory):
    memory = open_memory(embedder=FakeEmbedder(384))
    memory.add(["My sister keeps bees in Tarrow.", "The ferry leaves at noon."])
    memory.add([f"Parcel {number} came with a bill." for number in range(20)])
    assert memory.recall("Which port does the database use?") == []
    (best,) = memory.recall("Where does my sister keep her bees?")
    assert 0 < best.score < 1
    assert f"{best.coverage:.0%} of the words" in best.why


class Backwards:
    """Accepts all but the best, the worst first."""

    def __init__(self):
        self.read = []

    def shape(self, query, passages, *, scores):
        assert scores == sorted(scores, reverse=True)
        self.read.append(list(passages))
        worst_first = reversed(range(1, len(passages)))
        self.accepted = [SimpleNamespace(index=place) for place in worst_first]
        return self


def test_a_shaper_orders_the_best_forty_and_may_drop_some(open_memory):
    memory = open_memory(config=WIDE)
    shaper = Backwards()
    texts = sentences(60)
    memory.add(texts)
    first = list(found(memory, k=40))
    again = list(found(memory, k=3, shaper=shaper))
    assert shaper.read == [first]
    assert again == first[:-4:-1]
    memory.recall("red bees", threshold=0.0, k=1, shaper=shaper)
    memory._store.flush(("default",))
    every = memory.recall("red bees", threshold=0.0, k=70, record=False)
    hit = [each for each in every if "recalled 1 times" in each.why]
    assert len(hit) == 1
    nothing = memory.recall("red bees", threshold=1.0, shaper=shaper)
    assert nothing == []


# Replies

TALK = [
    {"role": "assistant", "content": "Fine. Where do you keep the spare key?"},
    {"role": "user", "content": "Under the blue pot."},
]


def asked(memory, **options):
    messages = memory.messages(**options)
    return {message.text: message.asked for message in messages}


def test_a_reply_is_found_by_the_question_that_it_answers_and_shown_as_it_was_said(open_memory):
    memory = open_memory()
    memory.add(TALK)
    best = memory.recall("spare key", k=2)
    assert {each.text: each.asked for each in best} == {
        "Under the blue pot.": "Where do you keep the spare key?",
        "Fine. Where do you keep the spare key?": "",
    }
    assert all(each.coverage == 1.0 for each in best)
    (alone,) = memory.recall("Where do you keep the spare key? Under the blue pot.", k=1)
    assert alone.similarity == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("before", "reply", "question"),
    [
        (NewMessage("Ana: Hello. How are you?"), NewMessage("Ben: Well."), "How are you?"),
        (NewMessage("Ana: How are you?"), NewMessage("Ana: And the kids?"), ""),
        (NewMessage("How are you?"), NewMessage("Well."), ""),
        (NewMessage("How are you?"), NewMessage("Well.", role="assistant"), "How are you?"),
        (NewMessage("I am well."), NewMessage("Good.", role="assistant"), ""),
        (NewMessage("x" * 130 + "?"), NewMessage("Good.", role="assistant"), ""),
        (NewMessage("お元気ですか？"), NewMessage("はい。", role="assistant"), "お元気ですか？"),
        (NewMessage("How?", at=0.0), NewMessage("Thus.", role="assistant", at=43_200.0), "How?"),
        (NewMessage("How?", at=0.0), NewMessage("Thus.", role="assistant", at=43_201.0), ""),
        (NewMessage("How?", at=1.0, ttl=1.0), NewMessage("So.", role="tool", at=1.0), ""),
    ],
)
def test_replies_are_recognised(open_memory, before, reply, question):
    one = open_memory()
    batch = open_memory(path=":memory:")
    for message in (before, reply):
        one.add(message)
    questions = asked(one)
    assert questions[reply.text] == question
    if before.ttl is None:
        batch.add([before, reply])
        assert asked(batch) == questions


def test_a_short_answer_to_another_question_is_another_memory(open_memory):
    memory = open_memory(config=MemoryConfig(merge_threshold=-1.0))
    for place in ("Rome", "Oslo", "Rome"):
        memory.add({"role": "assistant", "content": f"Was it in {place}?"})
        memory.add("Yes.")
    recalled = memory.recall("Was it", k=9, threshold=0.0)
    texts = {each.text for each in recalled}
    questions = {each.asked for each in recalled}
    assert texts == {"Yes."}
    assert questions == {"Was it in Rome?", "Was it in Oslo?"}


@pytest.mark.parametrize("consolidated", [False, True])
@pytest.mark.parametrize("log_lost", [False, True])
def test_erasing_a_question_erases_its_copies(open_memory, tmp_path, consolidated, log_lost):
    memory = open_memory()
    asker, reply = memory.add(TALK)
    if consolidated:
        memory.sleep()
    if log_lost:
        with memory._store.database.write() as connection:
            connection.execute("DELETE FROM messages WHERE id = ?", (reply,))
    receipt = memory.delete(asker)
    replies = () if log_lost else (reply,)
    assert receipt.replies == replies
    assert memory.admin.compact()
    assert receipt.scrubbed
    (left,) = memory.recall("Under the blue pot.")
    assert left.text == "Under the blue pot."
    assert left.asked == ""
    assert left.similarity == pytest.approx(1.0)
    assert left.coverage == 1.0
    export = tmp_path / "export.jsonl"
    memory.admin.export(export)
    assert "spare" not in export.read_text(encoding="utf-8")
    export.unlink()
    assert holders(memory, b"spare") == []
    assert_current(memory)
    assert memory.admin.verify().ok or log_lost


def test_an_erased_question_that_cannot_be_taken_out_stays_whole(open_memory, monkeypatch):
    def down(_):
        raise ModelError("down")

    memory = open_memory()
    asker, _ = memory.add(TALK)
    monkeypatch.setattr(memory._store, "embed", down)
    with pytest.raises(ModelError):
        memory.delete(asker)
    assert memory.get(asker) is not None
    assert_current(memory)


def test_changing_a_question_or_its_reply_changes_how_the_reply_is_read(open_memory):
    memory = open_memory()
    asker, reply = memory.add(TALK)
    memory.update(reply, text="In the shed.")
    memory.update(asker, text="Where is the ladder?")
    assert asked(memory) == {
        "Where is the ladder?": "",
        "In the shed.": "Where is the ladder?",
    }
    (best,) = memory.recall("Where is the ladder? In the shed.", k=1)
    assert best.text == "In the shed."
    assert best.similarity == pytest.approx(1.0)
    memory.update(asker, text="I have a ladder.")
    read_as = asked(memory)
    assert read_as["In the shed."] == ""
    assert_current(memory)


def test_replies_survive_reembedding_and_export(open_memory, tmp_path):
    export = tmp_path / "export.jsonl"
    memory = open_memory()
    memory.add(TALK)
    memory.admin.export(export)
    memory.close()
    anew = open_memory(embedder=FakeEmbedder(48), reembed=True)
    copy = open_memory(path=tmp_path / "copy.db")
    copy.admin.import_(export)
    for each in (anew, copy):
        (best,) = each.recall("Where do you keep the spare key? Under the blue pot.", k=1)
        assert best.text == "Under the blue pot."
        assert best.similarity == pytest.approx(1.0)
        assert_current(each)


def test_a_file_without_its_embedder_refuses_embedding_only(open_memory, db):
    memory = open_memory()
    asker, reply = memory.add(TALK)
    memory.close()
    with closing(Database(db, MEMORY_FILE)) as database:
        recorded = RecordedEmbedder(database)
    with EntropicMemory.open(db, embedder=recorded) as inspected:
        with pytest.raises(Exception, match="need the embedder"):
            inspected.delete(asker)
        assert inspected.delete(reply).messages == (reply,)
        assert inspected.delete(asker).messages == (asker,)


def test_the_shared_recall_passes_the_shaper_on(open_memory):
    memory = open_memory()
    shaper = Backwards()
    memory.add(["red bees", "bees of the mill"])
    namespace = ("default",)
    fields = RecallFields(namespace=namespace, threshold=0.0, shaper=shaper)
    options = fields.options(500)
    block = recall(memory, "red bees", namespace, options, len)
    assert len(block.notes) == 1
    assert "bees of the mill" in block.text


# What is recorded of the questions

QUESTION = "where is the blue boat?"


def events(memory, namespace=("default",)):
    sql = "SELECT text, answer, recalled FROM queries WHERE namespace = ? ORDER BY id"
    with memory._store.reading(namespace) as (connection, space):
        rows = connection.execute(sql, (space.id,)).fetchall()
    told = []
    for text, answer, recalled in rows:
        ids = json.loads(recalled)
        told.append((text, answer, len(ids)))
    return told


@pytest.fixture
def memory(open_memory):
    filled = open_memory(config=MemoryConfig(threshold=0.1, merge_threshold=1.0))
    filled.add(["the boat is blue", "a cat sleeps", "the blue boat is in the harbour"])
    return filled


def ask(memory, question=QUESTION, **options):
    recalled = memory.recall(question, **options)
    return [item.id for item in recalled]


@pytest.mark.parametrize("recalls", [1, 2])
@pytest.mark.parametrize("used", [1, 9])
def test_a_recall_and_its_observation_are_one_query_and_every_answer_stays(memory, used, recalls):
    recalled = ask(memory)
    memory.observe(QUESTION, "in the harbour", used=recalled[:used])
    assert events(memory) == [(QUESTION, "in the harbour", len(recalled))]
    if recalls == 2:
        recalled = ask(memory)
    memory.observe(QUESTION, "at sea", used=recalled)
    answers = [answer for _, answer, _ in events(memory)]
    assert answers == ["in the harbour", "at sea"]


def test_only_returned_items_are_hit(memory):
    team = ("team",)
    memory.add("where the blue boat is: in the harbour", namespace=team)
    (best,) = memory.recall(QUESTION, also=[team], k=1)
    memory._store.flush(("default",))
    memory._store.flush(team)
    again = memory.recall(
        QUESTION,
        also=[team],
        k=4,
        threshold=-1,
        record=False,
    )
    hit = [each.id for each in again if "recalled 1 times" in each.why]
    assert hit == [best.id]
    assert best.namespace == team


def test_an_unrelated_observation_is_a_new_query(
    memory,
):
    (cat,) = ask(memory, "a cat sleeps", k=1, record=False)
    ask(memory, k=1)
    memory.observe("who sleeps?", "a cat")
    memory.observe(QUESTION, "on the sofa", used=[cat])
    assert [event[:2] for event in events(memory)] == [
        ("", None),
        ("who sleeps?", "a cat"),
        (QUESTION, "on the sofa"),
    ]


def test_a_recall_that_another_process_wrote_is_completed(memory, open_memory):
    used = ask(memory)
    memory.close()
    later = open_memory()
    later.observe(QUESTION, "in the harbour", used=used)
    assert len(events(later)) == 1


# Texts that assert nothing

ANSWER = "the blue boat is in the harbour"


@pytest.mark.parametrize(
    "before",
    [
        [QUESTION],
        ["where is the blue boat"],  # without its mark
        [QUESTION] * 4,
        ["is it the blue boat? where is it?"],
    ],
)
def test_a_question_asked_before_takes_no_place(open_memory, before):
    memory = open_memory(config=WIDE)
    memory.add(before)
    memory.add(ANSWER)
    (best,) = memory.recall(QUESTION, k=1, threshold=0.0)
    assert best.text == ANSWER
    assert len(memory.messages()) == len(before) + 1


def test_a_message_that_asks_and_tells_is_recalled(open_memory):
    memory = open_memory(config=WIDE)
    memory.add("The blue boat is gone. Where is it?")
    (best,) = memory.recall(QUESTION, k=1, threshold=0.0)
    assert best.text.startswith("The blue boat is gone.")


def test_scores_do_not_change_when_another_message_fits_better(open_memory):
    memory = open_memory(config=WIDE)
    memory.add(ANSWER)
    memory.add([f"parcel {number}" for number in range(30)])
    before = found(memory, QUESTION, k=40)[ANSWER]
    memory.add("where is the blue boat? the blue boat is here", at=1.0)
    assert found(memory, QUESTION, k=40)[ANSWER] == pytest.approx(before, abs=0.03)


def test_a_reply_that_adds_nothing_is_read_without_its_question():
    question = np.array([1.0, 0.0, 0.0], dtype=np.float32)
    refusal = np.array([0.0, 0.0, 1.0], dtype=np.float32)
    known = {
        "Where?": question,
        "hm": np.array([0.0, 1.0, 0.0], dtype=np.float32),
        "In Oslo.": np.array([0.0, 0.96, 0.28], dtype=np.float32),
        "No clue.": np.array([0.0, 0.8, 0.6], dtype=np.float32),
    }

    def embed(texts):
        return np.stack([known.get(text, refusal) for text in texts])

    store = SimpleNamespace(scale=DEFAULT, embed=embed, refusals=None)
    texts = ("hm", "In Oslo.", "No clue.")
    replies = [NewMessage(text, asked="Where?", asker="m1") for text in texts]
    telling = np.array([0.8, 0.6, 0.0], dtype=np.float32)
    known |= {as_reply(text, "Where?"): telling for text in texts}
    known[as_reply("hm", "Where?")] = np.array([0.97, 0.24, 0.0], dtype=np.float32)
    read, vectors = _embedded(store, replies)
    told = [(each.asked, each.asker) for each in read]
    assert told == [("", None), ("Where?", "m1"), ("", None)]
    assert vectors.tolist() == [each.tolist() for each in (known["hm"], telling, known["No clue."])]


@pytest.mark.model
def test_a_refusal_is_not_recalled_for_the_question_asked_again():
    with EntropicMemory.open() as memory:
        memory.add("We adopted a greyhound called Pixel.")
        for refusal in ("I have no record of that, sorry.", "That is not something you told me."):
            memory.add([("user", "Which pet do we own?"), ("assistant", refusal)])
        recalled = [each.text for each in memory.recall("Which pet do we own?", k=9)]
        assert recalled[0] == "We adopted a greyhound called Pixel."
        assert not any("sorry" in text or "told me" in text for text in recalled)
