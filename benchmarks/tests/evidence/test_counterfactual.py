import pytest

from benchmarks.evidence.counterfactual import answer_type, counterfactuals
from ecs_plugins.errors import InvalidInputError

from .helpers import question

TOWNS = [
    question(f"q{n}", f"Where was ship {n} built?", town, (0,), units=(f"It came from {town}.",))
    for n, town in enumerate(["Bergen", "Hamburg", "Lisbon", "Oslo"])
]


def test_the_copy_holds_the_answer_of_another_question_in_place_of_the_true_one():
    for pair, source in zip(counterfactuals(TOWNS), TOWNS, strict=True):
        (true,), (false,) = pair.evidence, pair.misleading
        assert pair.units[true] == source.units[0]
        wrong = pair.units[false].removeprefix("It came from ").removesuffix(".")
        assert wrong in {"Bergen", "Hamburg", "Lisbon", "Oslo"} - set(source.answers)


def test_either_of_the_pair_may_stand_first():
    many = [question(f"q{n}", answer=f"Town{n}", units=(f"In Town{n}.",)) for n in range(30)]
    assert {pair.evidence for pair in counterfactuals(many)} == {(0,), (1,)}


def test_a_false_answer_is_of_the_same_type():
    years = [question(f"y{n}", answer=f"19{n}0", units=(f"In 19{n}0.",)) for n in range(3)]
    for pair in counterfactuals([*TOWNS, *years]):
        wrong = pair.units[pair.misleading[0]]
        assert wrong.startswith("In 19") == pair.id.startswith("y")


def test_a_passage_that_keeps_another_wording_of_the_answer_is_left_out():
    two = question("two", units=("Ana, born Ana Lind, sang.",), answer="Ana Lind")
    two = type(two)(two.id, two.question, ("Ana Lind", "Ana"), two.units, (0,), "two")
    other = question("other", units=("Ben Dahl sang.",), answer="Ben Dahl")
    assert [pair.id for pair in counterfactuals([two, other])] == ["other"]


def test_missing_pairs_raise_a_clear_error():
    with pytest.raises(InvalidInputError, match="word by word"):
        counterfactuals([question(answer="nowhere")])


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("12 May 1820", "date"),
        ("1820", "year"),
        ("30 boats", "number of 2"),
        ("Ana Lind", "name of 2"),
        ("by boat", "phrase of 2"),
        ("in a very small boat", "phrase of 3"),
    ],
)
def test_types_of_answers(answer, kind):
    assert answer_type(answer) == kind
