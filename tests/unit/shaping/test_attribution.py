"""An answer held against its passages: statements, citations, words that no passage has."""

import json

import pytest

from ecs_plugins import ContextShaper, FakeLanguageModel
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.shaping.attribution.attributing import MOST_CITED, TEMPLATE, Attributing
from ecs_plugins.shaping.attribution.statements import statements_of
from ecs_plugins.shaping.attribution.wording import nearest_sentence, unheld_words
from ecs_plugins.shaping.signals.likelihood import QUERY_TEMPLATE

QUESTION = "Who built the Eiffel Tower?"
PASSAGES = [
    "Tickets for the top cost 28 euros.",
    "The company of Gustave Eiffel designed the tower. It was built by that company in 1889.",
    "The Louvre is a museum.",
]
ANSWER = "The company of Gustave Eiffel built it in 1889."


@pytest.fixture
def model():
    return FakeLanguageModel()


@pytest.fixture
def shaper(model):
    return ContextShaper(model)


def texts_of(answer):
    return [statement.text for statement in statements_of(answer)]


def test_sentences_items_and_rows_are_statements():
    answer = "It is old. It is tall.\n\n- It is iron.\n- It is brown."
    assert texts_of(answer) == ["It is old.", "It is tall.", "It is iron.", "It is brown."]


@pytest.mark.parametrize(
    "answer",
    [
        "What do you mean?",
        "I don't know.",
        "I do not know which tower that is.",
        "Unfortunately, I cannot answer that.",
        "The context does not mention it.",
        "There is not enough information.",
        "```python\nbuilder = 'Eiffel'\n```",
        "...",
    ],
)
def test_text_without_statement_has_none(answer, shaper):
    attribution = shaper.attribute(QUESTION, PASSAGES, answer)
    assert attribution.statements == ()
    assert attribution.cited == ()
    assert "states nothing" in attribution.explain()


def test_places_are_those_of_the_answer_and_marks_of_citations_are_not_read():
    answer = "Sure:\n* It is old [1], and tall [2, 3]."
    statement = statements_of(answer)[-1]
    assert answer[statement.start : statement.end] == "It is old [1], and tall [2, 3]."
    assert statement.text == "It is old, and tall."


def test_a_pronoun_brings_the_sentence_that_it_stands_for():
    first, second = statements_of("The tower is old. It is tall.")
    assert first.lead == ""
    assert second.lead == "The tower is old."


def test_the_passage_that_holds_the_answer_is_cited_with_its_sentence(shaper):
    attribution = shaper.attribute(QUESTION, PASSAGES, ANSWER)
    (statement,) = attribution.statements
    best = statement.citations[0]
    assert best.passage == 1
    assert PASSAGES[1][best.start : best.end] == best.quote
    assert best.quote in PASSAGES[1]
    assert best.shift > 0
    assert attribution.cited[0] == 1
    assert attribution.used()[1] == best.probability


def test_a_mark_stands_before_the_full_stop_and_numbers_follow_the_answer(shaper):
    attribution = shaper.attribute(QUESTION, PASSAGES, ANSWER)
    numbers = "".join(f"[{number}]" for number in range(1, len(attribution.cited) + 1))
    assert attribution.marked() == f"The company of Gustave Eiffel built it in 1889 {numbers}."


def test_all_statements_are_continuations_of_one_request_that_begins_as_shaping_does(shaper, model):
    shaper.attribute(QUESTION, PASSAGES, "It is old. It is tall.")
    request = model.requests[0]
    assert len(request.continuations) == 2
    assert len(request.candidates) == 1 + len(PASSAGES)
    assert (TEMPLATE.before, TEMPLATE.passage) == (QUERY_TEMPLATE.before, QUERY_TEMPLATE.passage)


def test_numbers_names_and_negations_that_no_passage_has_are_named():
    answer = "The tower [7] was not built by Berger in 1898."
    (statement,) = statements_of(answer)
    spans = unheld_words(statement, answer, PASSAGES)
    assert [answer[start:end] for start, end in spans] == ["not", "Berger", "1898"]


def test_words_that_a_passage_has_are_not_named():
    answer = "It was built in 1889 by Eiffel."
    (statement,) = statements_of(answer)
    assert unheld_words(statement, answer, PASSAGES) == []


def test_at_most_five_passages_are_cited_each_once_and_best_first(shaper):
    copies = [f"{ANSWER} Copy {number}." for number in range(12)]
    attribution = shaper.attribute(QUESTION, copies + PASSAGES * 3, ANSWER)
    (statement,) = attribution.statements
    cited = [citation.passage for citation in statement.citations]
    likely = [citation.probability for citation in statement.citations]
    assert len(cited) == len(set(cited)) == MOST_CITED
    assert likely == sorted(likely, reverse=True)


def test_the_nearest_sentence_is_the_one_with_most_terms():
    start, end = nearest_sentence("built in 1889", PASSAGES[1])
    assert PASSAGES[1][start:end] == "It was built by that company in 1889."


def test_without_passages_nothing_is_cited(shaper, model):
    attribution = shaper.attribute(QUESTION, ["", "  "], ANSWER)
    assert attribution.uncited == attribution.statements
    assert model.requests == []


@pytest.mark.parametrize(
    ("query", "passages", "answer"),
    [
        ("", PASSAGES, ANSWER),
        (QUESTION, PASSAGES, " "),
        (QUESTION, PASSAGES, None),
        (QUESTION, [None], ANSWER),
        (QUESTION, "text", ANSWER),
    ],
)
def test_bad_input_is_refused_before_anything_is_asked(shaper, model, query, passages, answer):
    with pytest.raises(InvalidInputError):
        shaper.attribute(query, passages, answer)
    assert model.requests == []


def test_a_result_is_plain_json_and_fits_eighty_columns(shaper):
    attribution = shaper.attribute(QUESTION, PASSAGES * 3, ANSWER * 4)
    written = json.loads(json.dumps(attribution.to_dict()))
    assert written["statements"][0]["citations"][0]["passage"] == 1
    assert max(map(len, attribution.explain().splitlines())) <= 80


async def test_the_async_twin_says_the_same(shaper):
    here = shaper.attribute(QUESTION, PASSAGES, ANSWER)
    there = await shaper.aattribute(QUESTION, PASSAGES, ANSWER)
    assert there.statements == here.statements


def test_a_real_model_cites_the_evidence(bundled_lm):
    shaper = ContextShaper(bundled_lm)
    shaper.shape(QUESTION, PASSAGES)
    attribution = shaper.attribute(QUESTION, PASSAGES, ANSWER)
    (statement,) = attribution.statements
    assert statement.citations[0].passage == 1
    assert statement.unheld == ()


@pytest.mark.parametrize(
    ("answer", "passage", "unheld"),
    [
        ("Он жил в Москве с 1990 года.", "Он жил в Киеве с 1990 года.", ["Москве"]),
        ("他从1998年起住在北京。", "他从1990年起住在北京。", ["1998"]),
        ("Ζούσε στην Αθήνα.", "Ζούσε στην Πάτρα.", ["Αθήνα"]),
        ("Elle vit à Nîmes depuis été.", "Elle vit à Lyon.", ["Nîmes"]),
        ("عاش في القاهرة منذ 1998.", "عاش في القاهرة منذ 1990.", ["1998"]),
        ("वह 1998 से दिल्ली में है।", "वह 1990 से दिल्ली में है।", ["1998"]),
        ("It is tall.\n- Built by\n  Anna in 1889", "It is tall. Built in 1889.", ["Anna"]),
    ],
)
def test_names_have_capitals_and_numbers_are_told_in_every_script(answer, passage, unheld):
    named: list[str] = []
    for statement in statements_of(answer):
        spans = unheld_words(statement, answer, [passage])
        named += [answer[start:end] for start, end in spans]
    assert named == unheld


@pytest.mark.parametrize(
    ("likely", "cited"),
    [
        ((0.9, 0.2, 0.16, 0.0), [0, 1]),
        ((0.9, 0.1, 0.1, 0.1), [0]),
        ((0.2, 0.2, 0.2, 0.2), []),
        ((0.9, 0.8, 0.4, 0.2), [0, 1, 2]),
        ((0.9, 0.2, 0.1), [0]),
    ],
)
def test_one_passage_beside_the_first_needs_less_where_many_are_compared(
    shaper, monkeypatch, likely, cited
):
    monkeypatch.setattr(Attributing, "_likely", lambda *_: dict(enumerate(likely)))
    passages = [f"Passage {number} of Eiffel." for number in range(len(likely))]
    (statement,) = shaper.attribute(QUESTION, passages, ANSWER).statements
    assert [citation.passage for citation in statement.citations] == cited
