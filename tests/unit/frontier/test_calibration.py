import errno
from contextlib import closing

import pytest

from ecs_plugins.errors import ConfigurationError, InvalidInputError, ModelError, StorageError
from ecs_plugins.frontier import journal as journal_module
from ecs_plugins.frontier.answering import Completion
from ecs_plugins.frontier.calibration import CalibrationConfig, calibrate
from ecs_plugins.frontier.data import CalibrationQuestion, Context
from ecs_plugins.frontier.journal import CalibrationJournal
from ecs_plugins.frontier.strategies.retrieval import FullContext, Oracle
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.tokens import Role, Stage

from .conftest import simple

COLOURS = ["red", "blue", "green", "black", "white", "amber", "violet", "grey"]


def made_up(count=12, contexts=4):
    questions = []
    for index in range(count):
        batch = index % contexts
        documents = [
            f"The door of house {batch}{n} is {COLOURS[(batch + n) % 8]}. It has {n} windows. "
            "Nobody painted it this year, and the roof is old."
            for n in range(8)
        ]
        n = (index * 3) % 8
        questions.append(
            CalibrationQuestion(
                f"q{index}",
                f"What is the colour of the door of house {batch}{n}?",
                (COLOURS[(batch + n) % 8],),
                Context.of(documents),
                (n,),
            )
        )
    return questions


def read_door(prompt):
    """Answers from the context if the right sentence is there."""
    context, _, question = prompt.partition("\n\nQuestion: ")
    house = question.split("house ")[1].split("?")[0]
    _, found, rest = context.partition(f"house {house} is ")
    return rest.split(".")[0] if found else "unknown"


class CountingModel:
    name = "door-reader"

    def __init__(self, fail_after=None):
        self.prompts = []
        self.fail_after = fail_after

    def complete(self, prompts, *, max_new_tokens):
        if self.fail_after is not None and len(self.prompts) + len(prompts) > self.fail_after:
            raise ModelError("killed")
        self.prompts += prompts
        return [Completion(read_door(p), len(p.split()), 1) for p in prompts]

    def count_tokens(self, texts):
        return [len(text.split()) for text in texts]


def arms(questions):
    retrieving = [simple("bm25", depth=1), simple("bm25", depth=3), simple("tfidf", depth=2)]
    return [FullContext(), *retrieving, simple("tfidf_query", depth=2), Oracle(questions)]


def opened(path):
    return CalibrationJournal(path, {"a": 1})


QUICK = CalibrationConfig(batch_size=5)


def test_every_strategy_is_measured_on_the_same_questions():
    questions = made_up()
    frontier = calibrate(questions, arms(questions), CountingModel(), config=QUICK, data="doors")
    assert frontier.get("full_context").f1 == 1.0
    assert frontier.get("oracle").f1 == 1.0
    assert frontier.get("bm25", depth=1).f1 == 1.0
    assert frontier.get("tfidf", depth=2).f1 < 1.0
    assert frontier.get("bm25", depth=1).stage2 < frontier.get("full_context").stage2
    assert {point.n for point in frontier.points} == {12}
    assert frontier.decide(target_f1=1.0, reuse=1).label == "bm25(depth=1)"
    assert frontier.provenance.models == {"answer": "door-reader"}
    assert frontier.provenance.questions == 12


def test_the_context_that_all_questions_share_is_counted():
    questions = made_up()
    frontier = calibrate(questions, arms(questions), CountingModel(), config=QUICK)
    full, found = frontier.get("full_context").usage, frontier.get("bm25", depth=1).usage
    read = full.tokens[(Stage.QUERY, Role.ANSWER_INPUT)]
    assert 0.8 * read < full.shared_input < read
    assert found.shared_input == 0


def test_a_killed_calibration_goes_on_and_measures_nothing_twice(tmp_path):
    questions = made_up()
    whole = CountingModel()
    expected = calibrate(questions, arms(questions), whole, config=QUICK)
    path = tmp_path / "journal.jsonl"
    killed = CountingModel(fail_after=31)
    with pytest.raises(ModelError):
        calibrate(questions, arms(questions), killed, config=QUICK, journal=path)
    resumed = CountingModel()
    frontier = calibrate(questions, arms(questions), resumed, config=QUICK, journal=path)
    assert killed.prompts + resumed.prompts == whole.prompts
    assert [p.f1 for p in frontier.points] == [p.f1 for p in expected.points]
    again = CountingModel()
    calibrate(questions, arms(questions), again, config=QUICK, journal=path)
    assert again.prompts == []


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_a_line_cut_short_by_a_kill_is_measured_again(tmp_path, cut):
    questions = made_up()
    path = tmp_path / "journal.jsonl"
    calibrate(questions, arms(questions), CountingModel(), config=QUICK, journal=path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    model = CountingModel()
    calibrate(questions, arms(questions), model, config=QUICK, journal=path)
    assert len(model.prompts) == 2
    assert path.read_bytes().count(b"\n") == whole.count(b"\n")


def test_a_strategy_can_be_added_to_a_finished_calibration(tmp_path):
    questions = made_up()
    path = tmp_path / "journal.jsonl"
    calibrate(questions, arms(questions), CountingModel(), config=QUICK, journal=path)
    model = CountingModel()
    more = [*arms(questions), simple("bm25", depth=2)]
    frontier = calibrate(questions, more, model, config=QUICK, journal=path)
    assert len(model.prompts) == len(questions)
    assert frontier.get("bm25", depth=2).n == len(questions)


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"name": "other"}, "another answering model: 'door-reader'"),
        ({"questions": made_up()[:-1]}, "another data hash"),
        ({"models": {"scorer": "b"}}, "another scorer model"),
        ({"settings": {"dtype": "bf16"}}, "another dtype"),
    ],
)
def test_a_journal_of_another_calibration_is_refused(tmp_path, change, differs):
    path = tmp_path / "journal.jsonl"

    def run(questions=(), name="door-reader", models=(("scorer", "a"),), settings=()):
        asked = list(questions) or made_up()
        model = CountingModel()
        model.name = name
        kept = {"models": dict(models), "settings": {"dtype": "fp32"} | dict(settings)}
        return calibrate(asked, arms(asked), model, config=QUICK, journal=path, **kept)

    provenance = run().provenance
    assert (provenance.models["scorer"], provenance.settings["dtype"]) == ("a", "fp32")
    with pytest.raises(ConfigurationError, match=differs):
        run(**change)


def test_a_file_that_is_no_journal_is_not_overwritten(tmp_path):
    questions = made_up()
    path = tmp_path / "notes.json"
    path.write_text('{"dear": "diary"}\n{"more": 1}\n')
    with pytest.raises(ConfigurationError, match="not a calibration journal"):
        calibrate(questions, arms(questions), CountingModel(), config=QUICK, journal=path)
    assert "diary" in path.read_text()


def test_damage_in_the_middle_of_a_journal_names_the_line(tmp_path):
    questions = made_up()
    path = tmp_path / "journal.jsonl"
    calibrate(questions, arms(questions), CountingModel(), config=QUICK, journal=path)
    lines = path.read_bytes().split(b"\n")
    lines[3] = lines[3][:-20]
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(StorageError, match=r"journal\.jsonl:4 is damaged"):
        calibrate(questions, arms(questions), CountingModel(), config=QUICK, journal=path)


def test_a_full_disk_keeps_what_was_measured(tmp_path, monkeypatch):
    questions = made_up()
    path = tmp_path / "journal.jsonl"
    real, calls = journal_module.os.fsync, []

    def full(number):
        calls.append(number)
        if len(calls) > 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(number)

    monkeypatch.setattr(journal_module.os, "fsync", full)
    first = CountingModel()
    with pytest.raises(StorageError, match="Everything measured so far is kept"):
        calibrate(questions, arms(questions), first, config=QUICK, journal=path)
    monkeypatch.setattr(journal_module.os, "fsync", real)
    second = CountingModel()
    calibrate(questions, arms(questions), second, config=QUICK, journal=path)
    # Only the batch that could not be written is measured again.
    assert len(first.prompts) + len(second.prompts) == 12 * 6 + 5


def test_two_writers_of_one_journal_are_refused(tmp_path):
    pytest.importorskip("fcntl")
    path = tmp_path / "journal.jsonl"
    with closing(opened(path)), pytest.raises(StorageError, match="another calibration"):
        opened(path)
    opened(path).close()


def test_a_strategy_that_does_not_fit_the_window_is_reported_and_the_others_measured():
    questions = made_up()
    model = FakeLanguageModel(replies=read_door, max_tokens=150)
    strategies = [FullContext(), simple("bm25", depth=1), simple("tfidf", depth=1)]
    frontier = calibrate(questions, strategies, model, config=QUICK)
    assert [d.strategy for d in frontier.dropped] == ["full_context"]
    assert "window of 150 tokens" in frontier.dropped[0].reason
    assert {p.strategy for p in frontier.points} == {"bm25", "tfidf"}


@pytest.mark.parametrize(
    ("questions", "strategies", "message"),
    [
        (lambda q: [], lambda q: arms(q), "no question"),
        (lambda q: [*q, q[0]], lambda q: arms(q), "'q0' occurs twice"),
        (lambda q: q, lambda q: [FullContext(), Oracle(q)], "at least two"),
        (lambda q: q, lambda q: [FullContext(), *[simple("bm25", depth=1)] * 2], "given twice"),
    ],
)
def test_bad_calibrations_are_refused_before_anything_is_measured(
    tmp_path, questions, strategies, message
):
    data = made_up()
    model = CountingModel()
    path = tmp_path / "journal.jsonl"
    with pytest.raises(InvalidInputError, match=message):
        calibrate(questions(data), strategies(data), model, journal=path)
    assert model.prompts == []
    assert not path.exists()


def test_bad_settings_are_refused():
    with pytest.raises(ConfigurationError, match="batch_size"):
        CalibrationConfig(batch_size=0)
    with pytest.raises(ConfigurationError, match="context"):
        CalibrationConfig(prompt="{question} {context}")
