"""Statements of an answer and the sentences that are cited for them."""

import json

import pytest

from ecs_plugins import ContextShaper, FakeLanguageModel
from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.shaping.attribution.attributing import MOST_PAIRS
from ecs_plugins.shaping.attribution.statements import statements_of

QUESTION = "Who built the Eiffel Tower?"
PASSAGES = [
    "Tickets for the top cost 28 euros.",
    "The company of Gustave Eiffel designed the tower. It was built by that company in 1889.",
    "The Louvre is a museum.",
]
ANSWER = "The company of Gustave Eiffel built it in 1889."
TABLE = """## Plans

| Plan | Price | Seats |
|---|---|---|
| Team | 49 EUR | 10 |
| Solo | 9 EUR | 1 |"""


@pytest.fixture
def model():
    return FakeLanguageModel()


@pytest.fixture
def shaper(model):
    return ContextShaper(model)


def texts_of(answer):
    return [statement.text for statement in statements_of(answer)]


def citations_of(shaper, answer, passages=PASSAGES, question=QUESTION):
    (statement,) = shaper.attribute(question, passages, answer).statements
    return statement.citations


# Statements


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
        "I cannot say, sorry.",
        "I can't answer that, because the context does not mention it.",
        "The context does not mention it.",
        "There is not enough information.",
        "```python\nbuilder = 'Eiffel'\n```",
        "...",
    ],
)
def test_answers_that_state_nothing_have_no_statement(answer, shaper):
    attribution = shaper.attribute(QUESTION, PASSAGES, answer)
    assert attribution.statements == ()
    assert attribution.cited == ()
    assert attribution.check is None
    assert "states nothing" in attribution.explain()


@pytest.mark.parametrize(
    ("answer", "stated"),
    [
        ("I don't know why, but it was built in 1889.", "it was built in 1889."),
        ("I am not sure who built it; it opened in 1889.", "it opened in 1889."),
        ("The passages do not say who paid, however it cost 8 million.", "it cost 8 million."),
        ("Sorry, I cannot tell more, only that it opened in 1889.", "that it opened in 1889."),
    ],
)
def test_refusal_leaves_the_rest_of_its_sentence(answer, stated):
    (statement,) = statements_of(answer)
    assert statement.text == stated
    assert answer[statement.start : statement.end] == stated


def test_places_are_those_of_the_answer_and_marks_are_not_read():
    answer = "Sure:\n* It is old [1], and tall [2, 3]."
    statement = statements_of(answer)[-1]
    assert answer[statement.start : statement.end] == "It is old [1], and tall [2, 3]."
    assert statement.text == "It is old, and tall."


def test_pronoun_brings_the_sentence_that_it_stands_for():
    first, second = statements_of("The tower is old. It is tall.")
    assert first.lead == ""
    assert second.lead == "The tower is old."


# Citations


def test_citation_is_the_sentence_that_has_most_of_the_statement(shaper):
    (citation,) = citations_of(shaper, ANSWER)
    assert citation.passage == 1
    assert citation.quote == "It was built by that company in 1889."
    assert PASSAGES[1][citation.start : citation.end] == citation.quote
    assert citation.shift > 0


def test_second_citation_adds_a_term_that_the_first_lacks(shaper):
    hops = ["Anna Berg directed The Mill in Bergen.", "Anna Berg was born in Oslo.", "Mills burn."]
    answer = "The Mill was directed by Anna Berg, who was born in Oslo."
    citations = citations_of(shaper, answer, hops, "Where was its director born?")
    assert sorted(citation.passage for citation in citations) == [0, 1]
    copies = ["Anna Berg was born in Oslo.", "In Oslo Anna Berg was born.", *hops]
    citations = citations_of(shaper, "Anna Berg was born in Oslo.", copies)
    assert len(citations) == 1


def test_row_is_cited_with_its_header_and_neither_alone_nor_a_heading(shaper):
    passages = [TABLE, "## Team plan price"]
    (citation,) = citations_of(shaper, "The Team plan costs 49 EUR.", passages, "Which price?")
    assert (citation.passage, citation.quote) == (0, "| Team | 49 EUR | 10 |")
    assert citation.header == "| Plan | Price | Seats |"
    assert citation.text == "| Plan | Price | Seats |\n| Team | 49 EUR | 10 |"
    assert TABLE[citation.start : citation.end] == citation.quote
    attribution = shaper.attribute("Which plan?", passages, "Plan, price and seats.")
    headings = ("| Plan | Price | Seats |", "## Team plan price")
    quotes = [each.quote for statement in attribution.statements for each in statement.citations]
    assert not any(quote in headings for quote in quotes)


def test_irrelevant_answer_is_cited_to_nothing(shaper):
    assert citations_of(shaper, "Nobody saw Bob in Oslo.") == ()
    attribution = shaper.attribute(QUESTION, ["", "  "], ANSWER)
    assert attribution.uncited == attribution.statements
    assert attribution.check == "unverified"


def test_mark_stands_before_the_full_stop(shaper):
    attribution = shaper.attribute(QUESTION, PASSAGES, ANSWER)
    assert attribution.marked() == "The company of Gustave Eiffel built it in 1889 [1]."


# The model


def test_model_reads_cited_sentences_only(shaper, model):
    shaper.attribute(QUESTION, PASSAGES * 30, f"{ANSWER} Tickets cost 28 euros. I saw Bob.")
    assert len(model.requests) == 2
    for request in model.requests:
        assert len(request.continuations) == 1
        assert len(request.candidates) == 2


def test_shaper_without_a_signal_asks_no_model(model):
    shaper = ContextShaper(model, {"signal": None})
    attribution = shaper.attribute(QUESTION, PASSAGES, ANSWER)
    assert model.requests == []
    assert attribution.model == ""
    assert attribution.statements[0].citations[0].shift is None
    assert attribution.check == "consistent"


def test_negative_shift_makes_a_statement_unverified():
    def denying(context, scored):
        words = len(scored.split())
        return -3.0 * words if "1889" in context else -1.0 * words

    shaper = ContextShaper(FakeLanguageModel(denying))
    assert shaper.attribute(QUESTION, PASSAGES, ANSWER).check == "unverified"
    wrong = ANSWER.replace("1889", "1912")
    assert shaper.attribute(QUESTION, PASSAGES, wrong).check == "conflict"


@pytest.mark.model
def test_real_model_cites_and_checks(bundled_lm):
    shaper = ContextShaper(bundled_lm)
    wrong = ANSWER.replace("1889", "1912")
    for answer, check in ((ANSWER, "consistent"), (wrong, "conflict")):
        attribution = shaper.attribute(QUESTION, PASSAGES, answer)
        assert attribution.cited == (1,)
        assert attribution.check == check


# A judge


class Chat:
    """A chat model with one reply."""

    def __init__(self, reply):
        self.reply = reply
        self.prompts = []

    def invoke(self, prompt):
        self.prompts.append(prompt)
        return self.reply


@pytest.mark.parametrize(
    ("reply", "check"),
    [("Consistent.", "consistent"), ("conflict", "conflict"), ("Hm, who knows?", "unverified")],
)
def test_judge_decides_what_words_leave_unverified(shaper, reply, check):
    judge = Chat(reply)
    answer = "The tower is the work of Gustave Eiffel and his lovely people."
    attribution = shaper.attribute(QUESTION, PASSAGES, answer, judge=judge)
    assert attribution.check == check
    (prompt,) = judge.prompts
    assert answer in prompt
    assert "Gustave Eiffel designed the tower" in prompt
    assert "Louvre" not in prompt


def test_judge_is_not_asked_about_decided_or_uncited_statements(shaper):
    judge = Chat("consistent")
    wrong = ANSWER.replace("1889", "1912")
    for answer, check in ((ANSWER, "consistent"), (wrong, "conflict"), ("Bob left.", "unverified")):
        assert shaper.attribute(QUESTION, PASSAGES, answer, judge=judge).check == check
    assert judge.prompts == []


def test_judge_may_be_a_chat_model_of_langchain(shaper):
    from langchain_core.language_models import FakeListChatModel

    answer = "The tower is the work of Gustave Eiffel and his lovely people."
    judge = FakeListChatModel(responses=["consistent"])
    assert shaper.attribute(QUESTION, PASSAGES, answer, judge=judge).check == "consistent"
    with pytest.raises(ConfigurationError, match="cannot judge"):
        shaper.attribute(QUESTION, PASSAGES, answer, judge=3)


# Input and output


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


def test_too_many_statements_times_passages_are_refused(shaper, model):
    passages = ["Gulls nest."] * 1000
    answer = "It is old. " * (MOST_PAIRS // 1000 + 1)
    with pytest.raises(InvalidInputError, match="statements times"):
        shaper.attribute(QUESTION, passages, answer)
    assert model.requests == []


def test_result_is_plain_json_and_fits_eighty_columns(shaper):
    attribution = shaper.attribute(QUESTION, PASSAGES * 3, f"{ANSWER} It is 300 m tall. " * 4)
    written = json.loads(json.dumps(attribution.to_dict()))
    assert written["statements"][0]["citations"][0]["passage"] == 1
    assert written["statements"][0]["check"] == "consistent"
    assert max(map(len, attribution.explain().splitlines())) <= 80


async def test_async_twin_returns_the_same(shaper):
    here = shaper.attribute(QUESTION, PASSAGES, ANSWER)
    there = await shaper.aattribute(QUESTION, PASSAGES, ANSWER)
    assert there.statements == here.statements
