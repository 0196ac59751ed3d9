import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.shaping import ContextShaper, ShapingConfig
from ecs_plugins.shaping.passages import beyond_question

ASKED = "In what country is Normandy located?"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (ASKED, ""),
        (f"{ASKED} " * 4, ""),
        ("Normandy is located in which country?", ""),
        ("normandy country located country normandy located", ""),
        ("It rained. country Normandy located country Normandy located", "It rained."),
        (f"FAQ: {ASKED}\nThe sky is blue.", "FAQ: The sky is blue."),
        (f"{ASKED} It is Spain.", "It is Spain."),
        ("People ask in what country is Normandy located.", "People ask ."),
        ("The country in which Normandy is located is France.", None),
        ("In France, in the north of which Normandy is located, it rains.", None),
        ("Normandy is located in France, a country in Europe.", None),
        ("Normandy", None),
    ],
)
def test_copies_of_the_question_are_cut_and_statements_stay(text, left):
    assert beyond_question(ASKED, text) == (text if left is None else left)


@pytest.mark.parametrize(
    ("asked", "text", "left"),
    [
        ("Did Anna move to Rome?", "Anna did move to Rome.", "Anna did move to Rome."),
        ("Did Anna move to Rome?", "Did Anna move to Rome?", ""),
        ("Wo liegt Rouen?", "Frage: Wo liegt Rouen? Im Norden.", "Frage: Im Norden."),
        ("诺曼底在哪个国家?", "诺曼底在哪个国家? 在法国。", "在法国。"),
        ("أين تقع نورماندي؟", "أين تقع نورماندي؟ في فرنسا.", "في فرنسا."),
    ],
)  # fmt: skip
def test_what_asks_is_told_by_its_mark_in_any_language(asked, text, left):
    assert beyond_question(asked, text) == left


@given(st.text(max_size=60), st.text(max_size=60))
def test_nothing_is_added(query, text):
    left = beyond_question(query, text)
    assert left == text or not set(left) - {*text, " "}


def shape(passages, **settings):
    return ContextShaper(FakeLanguageModel(), ShapingConfig(top_k=1, **settings)).shape(
        ASKED, passages
    )


@pytest.mark.parametrize("unit", ["passage", "sentence"])
def test_a_passage_that_repeats_the_question_does_not_win(unit):
    passages = [ASKED, f"{ASKED} Keep this.", "It rained.", "Normandy is located in France."]
    assert shape(passages, beyond_question=False).kept[0].index < 2
    shaped = shape(passages, unit=unit)
    assert [v.index for v in shaped.kept] == [3]
    assert shaped.verdicts[0].reason == "it says nothing but the question"


def test_what_is_kept_is_the_passage_as_it_is():
    (kept,) = shape([f"{ASKED} France.", f"{ASKED} France."]).kept
    assert kept.text == f"{ASKED} France."


def test_pruning_keeps_the_answer_and_not_the_question():
    text = f"{ASKED}\nIt rains there all day.\nNormandy is a country of France.\nThe sea is near."
    assert "of France" in shape([text], unit="sentence").text
    assert ASKED not in shape([text], unit="sentence").text
