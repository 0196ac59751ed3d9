"""Support of statements by passages, and unsupported words."""

import json
import math

import pytest

from ecs_plugins import ContextShaper, FakeLanguageModel
from ecs_plugins.shaping.attribution.statements import AnswerStatement
from ecs_plugins.shaping.attribution.supporting import SUPPORT, UNKNOWN, turning_in

QUESTION = "Who built the Eiffel Tower?"
PASSAGES = [
    "Tickets for the top cost 28 euros.",
    "The company of Gustave Eiffel designed the tower. It was built by that company in 1889.",
    "The Louvre is a museum. Paul Smith designed its garden.",
]
TRUE = "The company of Gustave Eiffel built it in 1889."


def sure(context, scored):
    """Return the nats of a model that expects only text it has read."""
    read = context.lower()
    words = scored.lower().replace(".", "").split()
    return -sum(0.2 if word in read else 7.0 for word in words)


@pytest.fixture
def shaper():
    return ContextShaper(FakeLanguageModel(sure))


def support_of(shaper, answer, passages=PASSAGES, question=QUESTION):
    return shaper.attribute(question, passages, answer).support


def words_of(attribution):
    (statement,) = attribution.statements
    return [attribution.answer[start:end] for start, end in statement.turns_on]


def test_the_table_is_a_few_finite_numbers():
    assert len(SUPPORT.weights) <= 15
    assert all(map(math.isfinite, (SUPPORT.intercept, *SUPPORT.weights.values())))


@pytest.mark.parametrize(
    "answer",
    [
        TRUE,
        "The tower was designed by the company of Gustave Eiffel.",
        "Gustave Eiffel",
        "It was built by the company of **Gustave Eiffel** [2], in 1889 [1].",
        "Who built the Eiffel Tower? The company of Gustave Eiffel.",
        PASSAGES[1],
        "Tickets cost 28 euros.",
    ],
)
def test_statements_of_passages_are_supported(shaper, answer):
    attribution = shaper.attribute(QUESTION, PASSAGES, answer)
    assert attribution.support > 0.5
    assert attribution.unsupported == attribution.contradicted == ()
    assert all(statement.turns_on == () for statement in attribution.statements)


@pytest.mark.parametrize(
    ("answer", "turns_on"),
    [
        ("Mayor Anna Berg of Oslo planned it in 1912.", ["Anna", "Berg", "Oslo", "1912"]),
        ("The Louvre was never built by Anna.", ["never", "Anna"]),
        ("Who built the Eiffel Tower: Anna Berg.", ["Berg"]),
        ("Painted\n by  some Anna [2] Berg [1].", ["Anna", "Berg"]),
        ("Paris", []),
    ],
)
def test_unsupported_words_are_named(shaper, answer, turns_on):
    attribution = shaper.attribute(QUESTION, PASSAGES, answer)
    assert attribution.support < 0.5
    assert attribution.unsupported == attribution.statements
    assert words_of(attribution) == turns_on


@pytest.mark.parametrize("wrong", [TRUE.replace("built", "never built"), f"{TRUE[:-5]}1912."])
def test_one_word_that_is_changed_lowers_it(shaper, wrong):
    assert support_of(shaper, wrong) < support_of(shaper, TRUE)


def test_an_answer_is_as_supported_as_its_weakest_statement(shaper):
    both = shaper.attribute(QUESTION, PASSAGES, f"{TRUE} Anna Berg painted it in 1912.")
    first, second = both.statements
    assert first.supported
    assert both.support == second.support < 0.5
    assert both.unsupported == (second,)
    assert json.loads(json.dumps(both.to_dict()))["support"] == both.support


@pytest.mark.parametrize("answer", ["Yes.", "no", "Yes!"])
def test_a_bare_yes_or_no_is_unknown(shaper, answer):
    attribution = shaper.attribute(QUESTION, PASSAGES, answer)
    assert attribution.support == UNKNOWN
    assert attribution.unsupported == ()


@pytest.mark.parametrize("answer", ["I don't know.", "What do you mean?", "```\nx = 1\n```"])
def test_text_without_statement_has_no_support(shaper, answer):
    assert support_of(shaper, answer) is None


def test_a_statement_that_rests_on_two_passages_needs_both(shaper):
    hops = ["Anna Berg directed The Mill.", "Anna Berg was born in Oslo."]
    answer = "The Mill was directed by Anna Berg, who was born in Oslo."
    question = "Where was its director born?"
    alone = [support_of(shaper, answer, [hop], question) for hop in hops]
    assert support_of(shaper, answer, hops, question) > max(alone)


def test_evidence_that_is_taken_out_takes_support_with_it(shaper):
    assert support_of(shaper, TRUE, [PASSAGES[0], PASSAGES[2]]) < 0.5 < support_of(shaper, TRUE)


def test_without_passages_nothing_is_supported(shaper):
    attribution = shaper.attribute(QUESTION, [], TRUE)
    assert attribution.support == 0.0
    assert not attribution.contradicted


def test_a_word_that_passages_make_less_likely_is_contradicted():
    def denies(context, scored):
        return -3.0 * len(scored.split()) if "1889" in context else -1.0 * len(scored.split())

    shaper = ContextShaper(FakeLanguageModel(denies))
    (statement,) = shaper.attribute(QUESTION, PASSAGES, "Berger built it in 1912.").contradicted
    assert statement.support < 0.5
    assert "speak against it" in shaper.attribute(QUESTION, PASSAGES, statement.text).explain()


def test_turning_words_have_the_tokens_of_the_statement():
    text = "It was not Anna (1889)."
    (words,) = turning_in(FakeLanguageModel(), [AnswerStatement(0, len(text), text)])
    told = [(word.text, word.first, word.last) for word in words]
    assert told == [("not", 2, 3), ("Anna", 3, 4), ("1889", 5, 6)]


@pytest.mark.model
def test_a_real_model_tells_a_changed_number_and_another_name(bundled_lm):
    shaper = ContextShaper(bundled_lm)
    answers = [TRUE, TRUE.replace("1889", "1912"), "It was Anna Berg."]
    right, *wrong = [support_of(shaper, answer) for answer in answers]
    assert right > 0.5 > max(wrong)
