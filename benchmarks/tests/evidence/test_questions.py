import pytest

from benchmarks.evidence.questions import (
    EvidenceQuestion,
    data_hash,
    part_of,
    sample,
)
from ecs_plugins.errors import InvalidInputError


def question(name="q", **changes):
    given = {
        "id": name, "question": "Who?", "answers": ("Ana",), "units": ("Ana.", "Ben."),
        "evidence": (0,), "group": name,
    }  # fmt: skip
    return EvidenceQuestion(**{**given, **changes})


MANY = [question(f"q{n}") for n in range(40)]


def test_a_smaller_sample_is_the_beginning_of_a_larger_one():
    assert sample(MANY, limit=7) == sample(MANY, limit=20)[:7]
    assert sample(MANY)[:20] == sample(MANY, limit=20)


def test_the_two_parts_share_no_group_and_make_the_whole():
    tune, report = sample(MANY, part="tune"), sample(MANY, part="report")
    assert {part_of(q.group) for q in tune} == {"tune"}
    assert sorted(q.id for q in tune + report) == sorted(q.id for q in MANY)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"question": " "}, "is empty"),
        ({"evidence": ()}, "no evidence"),
        ({"evidence": (2,)}, "no index"),
        ({"misleading": (-1,)}, "no index"),
        ({"hops": ("a", "b")}, "one hop for each"),
    ],
)
def test_a_question_that_cannot_be_measured_is_refused(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        question(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"question": "When?"},
        {"answers": ("Ben",)},
        {"units": ("Ana.", "Bob.")},
        {"evidence": (1,)},
        {"misleading": (1,)},
    ],
)
def test_the_hash_changes_with_whatever_figures_depend_on(changes):
    assert data_hash([question()]) != data_hash([question(**changes)])
    assert data_hash([question()]) == data_hash([question()])
