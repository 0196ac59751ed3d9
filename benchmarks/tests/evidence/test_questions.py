import pytest

from benchmarks.evidence.questions import (
    EvidenceQuestion,
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"question": " "}, "is empty"),
        ({"evidence": ()}, "no evidence"),
        ({"evidence": (2,)}, "no index"),
        ({"evidence": (-1,)}, "no index"),
    ],
)
def test_a_question_that_cannot_be_measured_is_refused(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        question(**changes)
