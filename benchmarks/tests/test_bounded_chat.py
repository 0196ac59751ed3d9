import json
from functools import partial

import numpy as np
import pytest

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
    compare,
    evidence_recall,
    play,
    two_level,
)
from benchmarks.bounded_chat.report import differences, draw, markdown
from benchmarks.bounded_chat.stores import (
    Entropic,
    Remembered,
    Room,
    baselines,
    references,
)
from benchmarks.bounded_chat.variants import (
    Longest,
    model_variants,
    shared,
    variants,
)
from ecs_plugins.errors import ConfigurationError, InvalidInputError, StorageError
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.memory.config import MemoryConfig
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


def room(chat: Chat, budget: int = 6, model=None) -> Room:
    embedder = FakeEmbedder()
    return Room(
        chat=chat,
        vectors=embedder.embed_documents([turn.text for turn in chat.turns]),
        embedder=embedder,
        budget=budget,
        asked_later=chat.split("interleaved")[1],
        recalls=2,
        threshold=0.3,
        seed=0,
        model=model,
    )


ALL_STORES = {
    **baselines(),
    **references(),
    "longest": Longest,
    **variants(),
    **model_variants(),
}


def test_a_chat_is_read_with_its_sessions_and_every_turn_named_as_evidence(chat) -> None:
    assert [turn.session for turn in chat.turns] == [0] * 8 + [1] * 8 + [2] * 8
    assert chat.turns[0].text == "Ann: my violin number 0 is wonderful"
    (both,) = [q for q in chat.questions if q.text == "Both?"]
    assert (both.evidence, both.answer) == ((0, 9), "2")


def test_questions_without_evidence_or_about_what_was_never_said_are_left_out(chat) -> None:
    assert {q.text for q in chat.questions}.isdisjoint({"Never?", "No evidence?"})
    assert len(chat.questions) == 9


@pytest.mark.parametrize("split", ["interleaved", "chronological"])
def test_both_halves_together_are_all_questions(chat, split) -> None:
    seen, later = chat.split(split)
    assert sorted(map(id, (*seen, *later))) == sorted(map(id, chat.questions))


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


def test_a_missing_file_is_a_storage_error(tmp_path) -> None:
    with pytest.raises(StorageError):
        read_chats(tmp_path / "none.json")


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


def test_the_cache_of_another_embedder_is_not_used(tmp_path) -> None:
    file = tmp_path / "cache.npz"
    small = CachedEmbedder(FakeEmbedder(8), file)
    small.embed_documents(["a b"])
    small.save()
    assert CachedEmbedder(FakeEmbedder(16), file).embed_documents(["a b"]).shape == (1, 16)


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
def test_what_is_recalled_was_said_and_stands_behind_its_words(chat, name) -> None:
    store = ALL_STORES[name](room(chat, model=FakeLanguageModel()))
    protocol = ChatProtocol(recalls=2, threshold=0.3)
    recalled = play(store, chat, protocol)
    store.close()
    assert len(recalled) == len(chat.split("interleaved")[1])
    for items in recalled:
        assert len(items) <= max(protocol.ks)
        for item in items:
            assert item.provenance <= set(range(len(chat.turns)))
            assert item.representative is None or item.representative in item.provenance


def test_unbounded_recalls_what_the_embeddings_allow_and_hindsight_holds_all_evidence(chat) -> None:
    protocol = ChatProtocol(capacities=(0.25,), ks=(1,))
    results = compare([chat], references(), FakeEmbedder(), protocol)
    single = [len(question.evidence) == 1 for question in chat.split("interleaved")[1]]
    assert any(single)
    for name in ("Unbounded", "Hindsight"):
        (run,) = results.runs[0.25][name]
        recalls = run.recalls(1, "words")
        assert all(recall == 1.0 for recall, one in zip(recalls, single, strict=True) if one)


def test_fifo_recalls_only_the_latest_turns(chat) -> None:
    results = compare(
        [chat], {"FIFO": baselines()["FIFO"]}, FakeEmbedder(), ChatProtocol(capacities=(0.25,))
    )
    (run,) = results.runs[0.25]["FIFO"]
    later = chat.split("interleaved")[1]
    expected = [float(all(at >= 18 for at in question.evidence)) for question in later]
    assert run.recalls(5, "words") == expected


def test_a_recall_on_the_way_protects_a_turn_from_lru(chat) -> None:
    here = room(chat, budget=4)
    store = baselines()["LRU"](here)
    for position in range(4):
        store.add(position)
    store.ask(ChatQuestion("Which violin number 0?", "that", (0,), 4))
    for position in range(4, 6):
        store.add(position)
    assert 0 in {item.representative for item in store.recall(chat.questions[0], 4)}
    fifo = baselines()["FIFO"](here)
    for position in range(6):
        fifo.add(position)
    assert 0 not in {item.representative for item in fifo.recall(chat.questions[0], 4)}


def test_entropic_is_asked_through_recall_and_observe(chat) -> None:
    store = Entropic(room(chat), shared(6, MemoryConfig()))
    for position in range(8):
        store.add(position)
    store.ask(ChatQuestion("Which kayak number 6?", "the red one", (6,), 4))
    item = store.memory.recall("my kayak number 6", threshold=0.3, record=False)[0]
    assert "recalled 1 times before" in item.why
    store.close()


def test_both_tiers_together_hold_the_budget() -> None:
    for budget in (2, 3, 8, 130):
        config = shared(budget, MemoryConfig())
        assert config.hot_capacity + config.cold_capacity == budget
        assert 1 <= config.sleep_every <= config.hot_capacity


def test_a_variant_that_needs_a_model_says_so(chat) -> None:
    for name in ("summaries", "ecs"):
        with pytest.raises(ConfigurationError, match="model install"):
            model_variants()[name](room(chat))


def test_the_interval_holds_the_mean_and_a_constant_has_none() -> None:
    rng = np.random.default_rng(1)
    groups = [rng.normal(0.3, 1.0, 40), rng.normal(0.5, 1.0, 60)]
    low, high = two_level(groups, seed=0)
    assert low < np.concatenate(groups).mean() < high
    assert two_level([np.full(3, 0.25), np.full(5, 0.25)], seed=0) == (0.25, 0.25)


def test_differences_between_chats_widen_the_interval() -> None:
    alike = [np.array([0.0, 1.0] * 20)] * 2
    unlike = [np.zeros(40), np.ones(40)]
    widths = [np.diff(two_level(groups, seed=0))[0] for groups in (alike, unlike)]
    assert widths[1] > 2 * widths[0]


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


def test_the_figure_is_a_png(tmp_path) -> None:
    path = draw(results_by_hand(), 5, tmp_path / "figure.png")
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def run(bench, monkeypatch):
    monkeypatch.setattr("ecs_plugins.ranking.embedder.default_embedder", FakeEmbedder)
    monkeypatch.setattr("ecs_plugins.cli._setup.load_model", lambda name: FakeLanguageModel())

    return partial(bench, "bounded-chat")


def test_the_command_writes_runs_tables_figure_and_embeddings(run, data, tmp_path) -> None:
    out = tmp_path / "out"
    run(
        "--data", data, "--out", out, "--capacities", "25", "--k", "3",
        "--variants", "default,summaries,ecs",
    )  # fmt: skip
    record = json.loads((out / "bounded_chat.json").read_text(encoding="utf-8"))
    runs = record["runs"]["0.25"]
    assert {"FIFO", "Unbounded", "Entropic, default", "Entropic, ecs"} <= set(runs)
    assert all(len(table) == 2 for table in runs.values())
    assert {path.name for path in out.iterdir()} == {
        "bounded_chat.json", "bounded_chat.md", "bounded_chat.png", "embeddings.npz"
    }  # fmt: skip


def test_chats_can_be_skipped_and_limited(run, data, tmp_path) -> None:
    out = tmp_path / "out"
    run(
        "--data", data, "--out", out, "--capacities", "25", "--variants", "default",
        "--skip", "1", "--limit", "1", "--turns", "20",
    )  # fmt: skip
    record = json.loads((out / "bounded_chat.json").read_text(encoding="utf-8"))
    assert [(chat["id"], chat["turns"]) for chat in record["chats"]] == [("c1", 20)]


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


def test_a_chat_of_one_turn_per_session_needs_no_special_case() -> None:
    turns = tuple(ChatTurn(f"D{i}:1", i, f"thing {THINGS[i]}") for i in range(4))
    questions = tuple(ChatQuestion(THINGS[i], "x", (i,), 4) for i in range(4))
    chat = Chat("tiny", turns, questions)
    results = compare([chat], variants(), FakeEmbedder(), ChatProtocol(capacities=(0.5,), ks=(2,)))
    assert all(0 <= results.mean(0.5, name, 2) <= 1 for name in variants())
