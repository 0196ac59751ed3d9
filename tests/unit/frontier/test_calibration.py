import shutil
from contextlib import closing

import pytest

from ecs_plugins.errors import ConfigurationError, InvalidInputError, ModelError, StorageError
from ecs_plugins.frontier.answering import Completion
from ecs_plugins.frontier.calibration import CalibrationConfig, calibrate
from ecs_plugins.frontier.data import CalibrationQuestion, Context
from ecs_plugins.frontier.journal import Journal
from ecs_plugins.frontier.strategies.retrieval import FullContext, Oracle
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.tokens import Role, Stage

from .conftest import simple

COLOURS = ["red", "blue", "green", "black", "white", "amber", "violet", "grey"]


def made_up(count=12, contexts=4):
    questions = []
    for index in range(count):
        batch = index % contexts
        documents = []
        for n in range(8):
            colour = COLOURS[(batch + n) % 8]
            documents.append(
                f"The door of house {batch}{n} is {colour}. It has {n} windows. "
                "Nobody painted it this year, and the roof is old."
            )
        n = (index * 3) % 8
        colour = COLOURS[(batch + n) % 8]
        question = CalibrationQuestion(
            id=f"q{index}",
            question=f"What is the colour of the door of house {batch}{n}?",
            answers=(colour,),
            context=Context.of(documents),
            supporting=(n,),
        )
        questions.append(question)
    return questions


def read_door(prompt):
    """Answers from the context if the right sentence is there."""
    context, _, question = prompt.partition("\n\nQuestion: ")
    _, _, house = question.partition("house ")
    house, _, _ = house.partition("?")
    _, found, rest = context.partition(f"house {house} is ")
    if not found:
        return "unknown"
    colour, _, _ = rest.partition(".")
    return colour


class CountingModel:
    name = "door-reader"

    def __init__(self, fail_after=None):
        self.prompts = []
        self.fail_after = fail_after

    def complete(self, prompts, *, max_new_tokens):
        asked = len(self.prompts) + len(prompts)
        if self.fail_after is not None and asked > self.fail_after:
            raise ModelError("killed")
        self.prompts += prompts
        read = self.count_tokens(prompts)
        replies = []
        for prompt, tokens in zip(prompts, read, strict=True):
            reply = Completion(read_door(prompt), tokens, 1)
            replies.append(reply)
        return replies

    def count_tokens(self, texts):
        return [len(text.split()) for text in texts]


def arms(questions):
    retrieving = [simple("bm25", depth=1), simple("bm25", depth=3), simple("tfidf", depth=2)]
    return [FullContext(), *retrieving, simple("tfidf_query", depth=2), Oracle(questions)]


KIND = ("ecs_plugins.calibration", 1)


def opened(path):
    return Journal(path, KIND, {"a": 1})


QUICK = CalibrationConfig(batch_size=5)
QUESTIONS = made_up()
ALL = 12 * 6  # answers of all strategies


def measure(journal=None, *, fail_after=None, more=(), **kept):
    """The frontier of all strategies and the model that was asked."""
    model = CountingModel(fail_after)
    strategies = [*arms(QUESTIONS), *more]
    frontier = calibrate(QUESTIONS, strategies, model, config=QUICK, journal=journal, **kept)
    return frontier, model


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.db"


def test_every_strategy_is_measured_on_the_same_questions_and_what_they_share_is_counted():
    frontier, _ = measure(data="doors")
    full = frontier.get("full_context")
    oracle = frontier.get("oracle")
    bm25 = frontier.get("bm25", depth=1)
    tfidf = frontier.get("tfidf", depth=2)
    assert full.f1 == 1.0
    assert oracle.f1 == 1.0
    assert bm25.f1 == 1.0
    assert tfidf.f1 < 1.0
    assert bm25.stage2 < full.stage2
    assert {point.n for point in frontier.points} == {12}
    assert frontier.decide(target_f1=1.0, reuse=1).label == "bm25(depth=1)"
    assert frontier.provenance.models == {"answer": "door-reader"}
    assert frontier.provenance.questions == 12
    read = full.usage.tokens[Stage.QUERY, Role.ANSWER_INPUT]
    assert 0.8 * read < full.usage.shared_input < read
    assert bm25.usage.shared_input == 0


def test_a_killed_calibration_goes_on_and_measures_nothing_twice(path):
    expected, whole = measure()
    with pytest.raises(ModelError):
        measure(path, fail_after=31)
    frontier, resumed = measure(path)
    assert resumed.prompts == whole.prompts[30:]
    assert len(resumed.prompts) == ALL - 30
    for ours, theirs in zip(frontier.points, expected.points, strict=True):
        assert ours.f1 == theirs.f1
    _, finished = measure(path)
    assert finished.prompts == []


@pytest.mark.parametrize(
    "content",
    [
        b"my only copy of the thesis",
        b"my only copy of the thesis\n",
        b"\xff\xd8\xff\xe0 a photo\n",
        b"[1, 2]\n",
        b"{}",
    ],
)
def test_a_file_that_is_no_journal_is_refused_and_left_as_it_is(path, content):
    path.write_bytes(content)
    with pytest.raises(StorageError, match="choose another path"):
        opened(path)
    assert path.read_bytes() == content


def test_a_journal_of_something_else_is_refused_and_left_as_it_is(path):
    Journal(path, ("ecs_plugins.evidence", 2), {"a": 1}).close()
    content = path.read_bytes()
    with pytest.raises(ConfigurationError, match="another format"):
        opened(path)
    assert path.read_bytes() == content


def test_what_a_kill_leaves_on_disk_is_every_record_that_was_written(path, tmp_path):
    with closing(opened(path)) as journal:
        for number in range(3):
            journal.append({"number": number})
        killed = shutil.copytree(tmp_path, tmp_path / "killed") / path.name
    with closing(opened(killed)) as journal:
        assert journal.records == [{"number": number} for number in range(3)]


def test_a_strategy_can_be_added_to_a_finished_calibration(path):
    measure(path)
    frontier, model = measure(path, more=[simple("bm25", depth=2)])
    assert len(model.prompts) == frontier.get("bm25", depth=2).n == len(QUESTIONS)


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"name": "other"}, "another answering model: 'door-reader'"),
        ({"questions": made_up()[:-1]}, "another data hash"),
        ({"models": {"scorer": "b"}}, "another scorer model"),
        ({"settings": {"dtype": "bf16"}}, "another dtype"),
    ],
)
def test_a_journal_of_another_calibration_is_refused(path, change, differs):
    def run(questions=(), name="door-reader", models=(("scorer", "a"),), settings=()):
        asked = list(questions) or made_up()
        model = CountingModel()
        model.name = name
        kept = {"models": dict(models), "settings": {"dtype": "fp32"} | dict(settings)}
        return calibrate(asked, arms(asked), model, config=QUICK, journal=path, **kept)

    provenance = run().provenance
    assert provenance.models["scorer"] == "a"
    assert provenance.settings["dtype"] == "fp32"
    with pytest.raises(ConfigurationError, match=differs):
        run(**change)


def test_a_full_disk_keeps_what_was_measured(path, monkeypatch):
    real = Journal.append
    calls = []

    def full(journal, record):
        calls.append(record)
        if len(calls) > 6:
            with journal._database.read() as connection:
                connection.execute("PRAGMA max_page_count = 1")
            record = {**record, "more": "x" * 10_000}
        real(journal, record)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", full)
        with pytest.raises(StorageError, match="Everything measured so far is kept"):
            measure(path)
    # Five records of five questions are on disk behind the head; the sixth could not be written.
    _, model = measure(path)
    assert len(model.prompts) == ALL - 5 * 5


def test_what_two_writers_write_is_never_mixed(path):
    with closing(opened(path)) as first, closing(opened(path)) as second:
        first.append({"by": 1})
        with pytest.raises(StorageError, match="somebody else writes"):
            second.append({"by": 2})
        first.append({"by": 1})
    with closing(opened(path)) as journal:
        assert journal.records == [{"by": 1}] * 2


def test_a_strategy_that_does_not_fit_the_window_is_reported_and_the_others_measured():
    model = FakeLanguageModel(replies=read_door, max_tokens=150)
    strategies = [FullContext(), simple("bm25", depth=1), simple("tfidf", depth=1)]
    frontier = calibrate(QUESTIONS, strategies, model, config=QUICK)
    (dropped,) = frontier.dropped
    assert dropped.strategy == "full_context"
    assert "window of 150" in dropped.reason
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
    path, questions, strategies, message
):
    model = CountingModel()
    with pytest.raises(InvalidInputError, match=message):
        calibrate(questions(QUESTIONS), strategies(QUESTIONS), model, journal=path)
    assert model.prompts == []
    assert not path.exists()


def test_a_prompt_whose_question_comes_first_is_refused():
    with pytest.raises(ConfigurationError, match="context"):
        CalibrationConfig(prompt="{question} {context}")
