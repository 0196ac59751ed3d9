import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ecs_plugins.common.text import sentence_spans
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.shaping import ContextShaper, ShapingConfig
from ecs_plugins.shaping.copies import beyond_question
from ecs_plugins.shaping.passages import split_passages
from tests.unit.shaping.outcomes import kept


def count(texts):
    """A word is a token; a long one is a token per eight characters."""
    return [sum(-(-len(w) // 8) for w in re.findall(r"\S+", text)) for text in texts]


def sentences(text):
    return [text[start:end].strip() for start, end in sentence_spans(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It rained. We left.", ["It rained.", "We left."]),
        ("Dr. Weber met Mr. Ito at 5 p.m. in Ulm. Then she left.", 2),
        ("J. R. Smith wrote it. Nobody read it!", 2),
        ("It cost 3.50 euros, i.e. too much. I paid.", 2),
        ("A.C. Ward praised No. 14. Wir mögen z.B. Hunde. Et M. Dupont.", 3),
        ('She said "No." Then she went.', ['She said "No."', "Then she went."]),
        ("Really?! Yes... no. ok then", ["Really?!", "Yes... no. ok then"]),
        ("Anna: hi\nBob: hello\n\nAnna: bye", ["Anna: hi", "Bob: hello", "Anna: bye"]),
        ("今日は晴れです。明日は雨?「はい。」そうです。", 4),
        ("no end at all", ["no end at all"]),
        ("", []),
        ("   ", [""]),
    ],
)
def test_sentences_end_where_a_reader_would_say_so(text, expected):
    found = sentences(text)
    assert (len(found) if isinstance(expected, int) else found) == expected


@pytest.mark.parametrize(
    ("passage", "limit", "unit", "number"),
    [
        ("One two three. Four five six. " * 2, 6, r"One two three\. Four five six\. ", 2),
        ("w1 " * 1000, 200, r"\s*w1( w1)*\s*", 5),
        ("x" * 10_000, 50, "x+", 32),
        ("東京は晴れ。" * 60, 1, "(東京は晴れ。)+", 60),
    ],
    ids=["sentences", "between words", "between characters", "without spaces"],
)
def test_a_long_text_is_cut_at_sentences_else_words_else_characters(passage, limit, unit, number):
    units = split_passages([passage], count, max_tokens=limit)
    assert all(re.fullmatch(unit, each.text) and each.tokens <= limit for each in units)
    assert len(units) == number


WRITING = st.text(alphabet="ab. \n!?。A「」1\t\u3000é\xa0\x85\u2028«.\ud800", max_size=120)


@settings(deadline=None)
@given(st.lists(WRITING, max_size=4), st.integers(1, 12))
def test_units_partition_their_passage_within_the_limit(passages, limit):
    units = split_passages(passages, count, limit)
    for source, passage in enumerate(passages):
        own = [unit for unit in units if unit.source == source]
        assert "".join(unit.text for unit in own) == passage
        assert all(passage[unit.start : unit.end] == unit.text for unit in own)
        assert all(unit.tokens <= limit or len(unit.text) == 1 for unit in own)


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
        ("in what is", None),
        ("Normandy country located.", ""),
        ("Located is Normandy in country.", None),
        ("FAQ: Normandy", None),
        ("!", None),
    ],
)
def test_copies_of_the_question_are_cut_and_statements_stay(text, left):
    assert beyond_question(ASKED, text) == (text if left is None else left)


@pytest.mark.parametrize(
    ("asked", "text", "left"),
    [
        ("Did Anna move to Rome?", "Anna did move to Rome.", "Anna did move to Rome."),
        ("Did Anna move to Rome?", "Did Anna move to Rome?", ""),
        ("The old mill is made of what?", "The old mill is made of what.", ""),
        ("It is made of what?", "It is made of oak.", "It is made of oak."),
        ("Which is older, the mill or the inn?", "The inn is older.", "The inn is older."),
        ("Is it known who built the mill?", "It is known.", "It is known."),
        ("Wo liegt Rouen?", "Frage: Wo liegt Rouen? Im Norden.", "Frage: Im Norden."),
        ("诺曼底在哪个国家?", "诺曼底在哪个国家? 在法国。", "在法国。"),
        ("أين تقع نورماندي؟", "أين تقع نورماندي؟ في فرنسا.", "في فرنسا."),
    ],
)
def test_question_marks_work_in_any_language(asked, text, left):
    assert beyond_question(asked, text) == left


LIGHTHOUSE = "Who built the lighthouse of Almar?"


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (LIGHTHOUSE, "Built lighthouse Almar."),
        (LIGHTHOUSE, "lighthouse of Almar built lighthouse of Almar built"),
        (LIGHTHOUSE, "built\u200b the\u200b light\u200bhouse\u200b of\u200b Almar."),
        ("Wer baute den Leuchtturm von Almar?", "Den Leuchtturm von Almar baute."),
        ("阿尔马的灯塔是谁建的？", "灯塔是谁建的，阿尔马的。"),
    ],
)
def test_passage_of_only_question_words_is_not_read(asked, text):
    assert beyond_question(asked, text) == ""


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (LIGHTHOUSE, "Nobody built the lighthouse of Almar."),
        (LIGHTHOUSE, "We all did."),
        (LIGHTHOUSE, "She built it."),
        ("Where did the cat go?", "The cat went\n  up and out."),
        ("Where did the cat go?", "- The cat did go up."),
        ("Wer kommt zum Fest?", "Ich komme zum Fest."),
        ("谁去北京？", "我去北京。"),
        (LIGHTHOUSE, "An article about the lighthouse of Almar: Weber built it."),
        ("When was it built?", "It was built in 1874."),
        ("When was it built, in 1847?", "It was built in 1874."),
        ("Which country is it?", "It is the US."),
        ("How many keepers are there?", "There are none."),
        ("Does Anna, who lives in Rome, know when it opens?", "Anna, who lives in Rome, does."),
        ("Wann schließt das Café?", "Das Café schließt nicht."),
        ("灯塔有几个房间？", "灯塔有三个房间。"),
        ("What is the name of the man who built it?", "The name of the man who built it is Bo."),
        ("Where did the boy who lost his dog live?", "The boy who lost his dog lived in Porto."),
        ("Wie heißt der Mann, der den Turm baute?", "Der Mann, der den Turm baute, heißt Bo."),
        ("建造这座塔的人叫什么名字？", "建造这座塔的人名字叫艾达。"),
        ("Maria paints ferries", "Maria paints ferries. She lives in Gdynia."),
        ("reset password", "Reset password"),
    ],
)
def test_true_answer_is_read_whole(asked, text):
    assert beyond_question(asked, text) == text


@given(st.text(max_size=60), st.text(max_size=60))
def test_nothing_is_added(query, text):
    left = beyond_question(query, text)
    assert left == text or not set(left) - {*text, " "}


def shape(passages, read_as=None, **settings):
    shaper = ContextShaper(FakeLanguageModel(), ShapingConfig(top_k=1, **settings))
    return shaper.shape(ASKED, passages, read_as=read_as)


@pytest.mark.parametrize("unit", ["passage", "sentence"])
def test_a_passage_that_repeats_the_question_does_not_win(unit):
    passages = [ASKED, f"{ASKED} Keep this.", "It rained.", "Normandy is located in France."]
    assert shape(passages, read_as=passages).kept[0].index < 2
    shaped = shape(passages, unit=unit)
    assert kept(shaped) == [3]
    assert shaped.verdicts[0].reason == "it says nothing but the question"


def test_a_kept_passage_is_unchanged():
    (kept,) = shape([f"{ASKED} France.", f"{ASKED} France."]).kept
    assert kept.text == f"{ASKED} France."


def test_pruning_keeps_the_answer_and_not_the_question():
    text = f"{ASKED}\nIt rains there all day.\nNormandy is a country of France.\nThe sea is near."
    assert "of France" in shape([text], unit="sentence").text
    assert ASKED not in shape([text], unit="sentence").text


@pytest.mark.parametrize("between", [": ", " | ", " - ", " > ", "\n", ". ", " (", "\n\n## "])
def test_a_title_that_the_first_sentence_repeats_is_no_copy(between) -> None:
    passage = (
        f"The tide mill at Orrowick{between}The tide mill at Orrowick was built by Hester Vane."
    )
    assert beyond_question("Who had the tide mill at Orrowick built?", passage) == passage


def test_keywords_that_are_said_twice_are_a_copy() -> None:
    stuffed = "It rained. Tide mill, Orrowick, built, tide mill, Orrowick, built."
    assert beyond_question("Who had the tide mill at Orrowick built?", stuffed) == "It rained. ."
