import pytest

from benchmarks.datasets.fitting import fit_contexts
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier import CalibrationQuestion, Context


def words(texts):
    return [len(text.split()) for text in texts]


def long_and_short():
    long = Context.of(["one two three", "four five six", "seven eight nine"])
    short = Context.of(["one"])
    return [
        CalibrationQuestion("first", "?", ("a",), long, (0,)),
        CalibrationQuestion("both", "?", ("a",), long, (0, 1)),
        CalibrationQuestion("last", "?", ("a",), long, (1, 2)),
        CalibrationQuestion("unknown", "?", ("a",), long),
        CalibrationQuestion("short", "?", ("a",), short),
    ]


def test_long_contexts_and_their_questions_are_cut_to_fit():
    questions = long_and_short()
    fitted = fit_contexts(questions, 7, words)
    assert [question.id for question in fitted] == ["first", "both", "short"]
    assert len({question.context.id for question in fitted}) == 2
    assert [len(question.context.documents) for question in fitted] == [2, 2, 1]
    assert fitted[2] is questions[4]


def test_contexts_that_fit_stay_as_they_are():
    questions = long_and_short()
    assert fit_contexts(questions, 9, words) == questions


def test_a_limit_that_no_question_survives_is_refused():
    with pytest.raises(InvalidInputError, match="raise the limit"):
        fit_contexts(long_and_short()[:4], 2, words)
