import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from benchmarks.bounded_chat import prior, rules
from benchmarks.bounded_chat.chats import (
    CachedEmbedder,
    Chat,
    ChatQuestion,
    ChatTurn,
    beginning,
    read_chats,
)
from benchmarks.bounded_chat.comparison import (
    ChatProtocol,
    ChatResults,
    ChatRun,
    evidence_recall,
    play,
    session_recall,
)
from benchmarks.bounded_chat.relevance import (
    SHARES,
    figures,
    learned_scores,
    own_questions,
)
from benchmarks.bounded_chat.report import differences, markdown
from benchmarks.bounded_chat.stores import (
    Remembered,
    Room,
    baselines,
    references,
)
from benchmarks.bounded_chat.variants import (
    Longest,
    shared,
    variants,
)
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.config import MemoryConfig
from ecs_plugins.memory.outdating import Statement
from ecs_plugins.memory.prior import MOST, WEIGHTS
from ecs_plugins.ranking.embedder import FakeEmbedder

THINGS = ["violin", "bakery", "kayak", "telescope", "orchard", "ferret", "glacier", "pottery"]


def record(turns: int = 24) -> dict:
    """A chat of three sessions in LoCoMo's format: every third turn tells something."""
    size = turns // 3
    talk: dict[str, object] = {"speaker_a": "Ann", "session_1_date_time": "1 May"}
    said = [
        f"my {THINGS[i // 3]} number {i} is wonderful" if i % 3 == 0 else f"well {i} yes"
        for i in range(turns)
    ]
    for session in range(3):
        talk[f"session_{session + 1}"] = [
            {
                "speaker": "Ann",
                "dia_id": f"D{session + 1}:{j + 1}",
                "text": said[session * size + j],
            }
            for j in range(size)
        ]

    def name(i: int) -> str:
        return f"D{i // size + 1}:{i % size + 1}"

    qa: list[dict] = [
        {
            "question": f"Which {THINGS[i // 3]} number {i}?",
            "answer": "that one",
            "evidence": [name(i)],
            "category": 4,
        }
        for i in range(0, turns, 3)
    ]
    qa.append({"question": "Both?", "answer": 2, "evidence": ["D1:1; D2:2"], "category": 1})
    qa.append(
        {"question": "Never?", "adversarial_answer": "x", "evidence": ["D1:1"], "category": 5}
    )
    qa.append({"question": "No evidence?", "answer": "x", "evidence": [], "category": 3})
    return {"sample_id": "c0", "conversation": talk, "qa": qa}


@pytest.fixture
def data(tmp_path):
    file = tmp_path / "locomo.json"
    file.write_text(json.dumps([record(), record() | {"sample_id": "c1"}]), encoding="utf-8")
    return file


@pytest.fixture
def chat(data) -> Chat:
    return read_chats(data)[0]


def room(chat: Chat, budget: int = 6) -> Room:
    embedder = FakeEmbedder()
    return Room(
        chat=chat,
        vectors=embedder.embed_documents(chat.read),
        embedder=embedder,
        budget=budget,
        asked_later=chat.split("interleaved")[1],
        recalls=2,
        seed=0,
    )


ALL_STORES = {
    **baselines(),
    **references(),
    "longest": Longest,
    **variants(),
}


def test_a_chat_is_read_with_its_sessions_and_every_turn_named_as_evidence(chat) -> None:
    assert [turn.session for turn in chat.turns] == [0] * 8 + [1] * 8 + [2] * 8
    assert chat.turns[0].text == "Ann: my violin number 0 is wonderful"
    (both,) = [q for q in chat.questions if q.text == "Both?"]
    assert (both.evidence, both.answer) == ((0, 9), "2")


def history() -> dict:
    """A history in LongMemEval's format, its sessions not in the order of time."""
    said = [{"role": "user", "content": "my kayak is red"}, {"role": "assistant", "content": "ok"}]
    return {
        "haystack_session_ids": ["late", "early"],
        "haystack_dates": ["2023/05/02 (Tue) 10:00", "2023/05/01 (Mon) 09:00"],
        "haystack_sessions": [[{"role": "user", "content": "hello"}], said],
        "question_id": "q1",
        "question": "Which colour is the kayak?",
        "answer": "red",
        "answer_session_ids": ["early"],
    }


def test_a_history_of_longmemeval_is_read_in_order_and_asked_by_session(tmp_path) -> None:
    file = tmp_path / "longmemeval.json"
    file.write_text(json.dumps([history()]), encoding="utf-8")
    (chat,) = read_chats(file)
    assert [turn.text for turn in chat.turns] == [
        "user: my kayak is red", "assistant: ok", "user: hello"
    ]  # fmt: skip
    assert chat.split("end") == ((), chat.questions)
    (question,) = chat.questions
    assert question.evidence == (0, 1)
    sessions = [turn.session for turn in chat.turns]
    one, other = Remembered(frozenset({1}), 1), Remembered(frozenset({2}), 2)
    assert session_recall(question, [other, one], 2, sessions) == 1.0
    assert session_recall(question, [other, one], 1, sessions) == 0.0


def test_a_turn_is_read_as_the_memory_reads_it(chat) -> None:
    said = ["Ann: I am back.", "Bob: How was Rome?", "Ann: Hot!", "Ann: Bye. Tired?", "Bob: Yes."]
    turns = tuple(ChatTurn(str(at), at // 4, text) for at, text in enumerate(said))
    assert replace(chat, turns=turns).read == (*said[:2], "Ann: How was Rome? Hot!", *said[3:])


def test_every_turn_kept_is_found_as_the_memory_finds_it(chat) -> None:
    here = room(chat, budget=len(chat.turns))
    fifo, memory = ALL_STORES["FIFO"](here), ALL_STORES["Unbounded"](here)
    for position in range(len(chat.turns)):
        fifo.add(position)
        memory.add(position)
    for question in chat.questions:
        if len(question.evidence) == 1:
            assert fifo.recall(question, 1) == memory.recall(question, 1)
    memory.close()


def test_weights_are_learned_on_other_chats_only(data) -> None:
    chats = read_chats(data)
    table = prior.learned(chats)
    told, small_talk = "Ann: my violin number 5 is wonderful", "Ann: well 5 yes"
    for known, names in prior.KNOWN.items():
        assert set(table.weights[known]) == {"bias", *names}
        assert table.worth(told, known) > table.worth(small_talk, known)
    assert prior.without_each(chats)["c0"] == prior.learned(chats[1:])
    worths = [np.array([table.worth(turn.text) for turn in chat.turns]) for chat in chats]
    assert prior.evidence_held(chats, worths, 1.0) == 1.0
    assert prior.evidence_held(chats, worths, 0.25) > 0.5


def test_the_shipped_table_has_the_features_that_are_learned() -> None:
    assert {known: set(row) - {"bias"} for known, row in WEIGHTS.items()} == {
        known: set(names) for known, names in prior.KNOWN.items()
    }


def test_the_command_prints_the_table(bench, data) -> None:
    shown = bench("memory-prior", "--data", data)
    table, _ = json.JSONDecoder().raw_decode(shown)
    assert {"weights", "most", "licence_of_the_source"} <= table.keys()
    assert "| longest turns |" in shown
    assert "| own chats, as any |" in shown


def test_chronologically_nothing_asked_later_can_be_answered_earlier(chat) -> None:
    seen, later = chat.split("chronological")
    assert max(q.known_at for q in seen) <= min(q.known_at for q in later)


def test_a_question_is_asked_at_the_end_of_the_session_that_completes_its_evidence(chat) -> None:
    for position, questions in chat.asked_after(chat.questions).items():
        assert position in (7, 15, 23)
        assert all(position - 8 < q.known_at <= position for q in questions)


def test_the_beginning_of_a_chat_keeps_only_questions_that_it_answers(chat) -> None:
    part = beginning(chat, 10)
    assert len(part.turns) == 10
    assert {q.known_at for q in part.questions} == {0, 3, 6, 9}


@pytest.mark.parametrize(
    ("content", "error"),
    [("{", InvalidInputError), ("{}", InvalidInputError), ('[{"qa": []}]', InvalidInputError)],
)
def test_a_file_in_another_format_is_refused_by_name(tmp_path, content, error) -> None:
    file = tmp_path / "other.json"
    file.write_text(content)
    with pytest.raises(error, match=r"other\.json"):
        read_chats(file)


def test_the_cache_embeds_each_text_once_and_survives_the_process(tmp_path) -> None:
    class Counting(FakeEmbedder):
        calls = 0

        def embed_documents(self, texts):
            Counting.calls += len(texts)
            return super().embed_documents(texts)

    file = tmp_path / "cache.npz"
    first = CachedEmbedder(Counting(), file)
    vectors = first.embed_documents(["a b", "c d", "a b"])
    query = first.embed_query("a b")
    first.save()
    again = CachedEmbedder(Counting(), file)
    np.testing.assert_array_equal(again.embed_documents(["a b", "c d", "a b"]), vectors)
    np.testing.assert_array_equal(again.embed_query("a b"), query)
    assert Counting.calls == 2


def test_recall_counts_words_and_provenance_apart() -> None:
    question = ChatQuestion("q", "a", (1, 2, 3, 4), 1)
    recalled = [Remembered(frozenset({1, 2, 9}), 2), Remembered(frozenset({3}), None)]
    assert evidence_recall(question, recalled, "words") == 0.25
    assert evidence_recall(question, recalled, "provenance") == 0.75


@pytest.mark.parametrize("name", sorted({*baselines(), *variants(), "longest"}))
def test_no_bounded_store_searches_more_than_its_budget(chat, name) -> None:
    here = room(chat, budget=6)
    store = ALL_STORES[name](here)
    asked = chat.asked_after(chat.split("interleaved")[0])
    for position in range(len(chat.turns)):
        store.add(position)
        for question in asked.get(position, ()):
            store.ask(question)
        assert store.size() <= 6
    # The paper's reading sleeps every 100 turns, and only then has anything to search.
    assert (store.size() > 0) == (name != "paper")
    store.close()


@pytest.mark.parametrize("name", sorted(ALL_STORES))
def test_recalled_items_are_turns_of_the_chat(chat, name) -> None:
    store = ALL_STORES[name](room(chat))
    protocol = ChatProtocol(recalls=2)
    recalled = play(store, chat, protocol)
    store.close()
    assert len(recalled) == len(chat.split("interleaved")[1])
    for items in recalled:
        assert len(items) <= max(protocol.ks)
        for item in items:
            assert item.provenance <= set(range(len(chat.turns)))
            assert item.representative is None or item.representative in item.provenance


def test_both_tiers_together_hold_the_budget() -> None:
    for budget in (2, 3, 8, 130):
        config = shared(budget, MemoryConfig())
        assert config.hot_capacity + config.cold_capacity == budget
        assert 1 <= config.sleep_every <= config.hot_capacity
        measured = config.to_json()
        shipped = MemoryConfig().to_json()
        changed = {name for name in shipped if measured[name] != shipped[name]}
        assert changed <= {"hot_capacity", "cold_capacity", "sleep_every"}  # what the page names


def results_by_hand() -> ChatResults:
    def run(values: list[float]) -> ChatRun:
        return ChatRun("c", 3, 3, {5: values}, {5: values})

    table = {"FIFO": [run([0.0, 0.0])], "LRU": [run([0.5, 0.0])], "Entropic, x": [run([1.0, 0.0])]}
    return ChatResults(ChatProtocol(capacities=(0.1,), ks=(5,)), {0.1: table})


def test_tables_mark_the_best_and_subtract_the_best_baseline() -> None:
    results = results_by_hand()
    table = markdown(results, 5, bounded=["FIFO", "LRU", "Entropic, x"])
    assert "| Entropic, x | **0.500** |" in table
    assert "| LRU | 0.250 |" in table
    assert "+0.250" in differences(results, 5, ours=["Entropic, x"], baselines=["FIFO", "LRU"])


@pytest.fixture
def run(bench, monkeypatch):
    monkeypatch.setattr("ecs_plugins.ranking.embedder.default_embedder", FakeEmbedder)

    return partial(bench, "bounded-chat")


def test_the_command_writes_runs_tables_and_embeddings(run, data, tmp_path) -> None:
    out = tmp_path / "out"
    run(
        "--data", data, "--out", out, "--capacities", "25", "--k", "3",
        "--variants", "default,paper",
    )  # fmt: skip
    record = json.loads((out / "bounded_chat.json").read_text(encoding="utf-8"))
    runs = record["runs"]["0.25"]
    ours = {f"Entropic, {name}" for name in ("default", "paper")}
    assert {"FIFO", "Unbounded"} | ours <= set(runs)
    assert all(len(table) == 2 for table in runs.values())
    names = {path.name for path in out.iterdir()}
    assert names == {"bounded_chat.json", "bounded_chat.md", "embeddings.npz"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--skip", "2"),
        ("--variants", "nonsense"),
        ("--capacities", "0"),
        ("--capacities", "many"),
        ("--k", "0"),
        ("--split", "random"),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(run, data, tmp_path, arguments) -> None:
    out = tmp_path / "out"
    run("--data", data, "--out", out, *arguments, status=1)
    assert not out.exists()


def test_the_shipped_prior_is_the_one_learned_on_own_chats():
    table = prior.learned_from(*prior.own_turns())
    assert table.weights == WEIGHTS
    assert table.most == MOST


def test_learned_scores_tell_evidence_from_what_answers_nothing():
    asked = own_questions(FakeEmbedder(64), rounds=5)
    assert {each.kind for each in asked} == {kind for kind in SHARES if kind.startswith("own")}
    numbers = learned_scores(asked)
    assert numbers["_COSINE"] + numbers["_PERSON"] > 0
    rows = {row[0]: row for row in figures(asked, threshold=0.0)}
    assert float(rows["own pairs that share words"][3]) > 0.9


def test_a_judge_that_is_right_puts_changes_first_and_leaves_the_rest():
    old, new, question = "the boat is blue", "the boat is green now", "which colour is the boat?"
    changes = [[old, new, question]]
    kept = [["the oven smells of bread", "the shed smells of paint", "which smells has the oven?"]]
    right = "a judge that is right"
    rows = rules.outdating({"changes": changes, "kept": kept}, FakeEmbedder(64))
    assert [row[0] for row in rows][:3] == ["no rule", "newest of the first two", right]
    counts = {name: found for name, *found in rows}
    assert counts[right] == ["1 of 1", "1 of 1"]
    said = [Statement(text, "user", 0.0) for text in (old, new)]
    wrong = rules.KnowingJudge(changes, errors=1.0)
    assert wrong.judge(said[1], said) == [0.0, 1.0]
