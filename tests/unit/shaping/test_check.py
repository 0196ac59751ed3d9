"""Checks of statements: numbers, names and negations compared with the cited sentence."""

import pytest

from ecs_plugins import ContextShaper, FakeLanguageModel
from ecs_plugins.shaping.attribution.attributing import attribute_answer

QUESTION = "What are the facts?"
PASSAGES = [
    (
        "## Library\n"
        "Films cannot be renewed. Books may be renewed twice, for three weeks each time. "
        "Members pay no fee for lost cards.\n"
        "The reading room opens at nine and closes at half past six on weekdays."
    ),
    (
        "The ferry leaves at nine every morning. It takes forty-five minutes to reach "
        "the island. Dogs travel free; bicycles cost 4.50 EUR."
    ),
    (
        "Marie Curie was born in Warsaw on 7 November 1867. She won the Nobel Prize in "
        "Physics in 1903 together with Pierre Curie and Henri Becquerel. In 1911 she "
        "received the prize in Chemistry."
    ),
    (
        "| Model | Range | Weight |\n"
        "|---|---|---|\n"
        "| Hawk 2 | 12 km | 900 g |\n"
        "| Heron | 30 km | 2.4 kg |\n"
        "| Swift X | 8.5 km | 450 g |"
    ),
    (
        "The bridge was built between 1931 and 1934. It is 1,280 metres long and was not "
        "painted until 1936. About half of the tolls go to the city; the other half pays "
        "for repairs."
    ),
    (
        "All guests must register within 24 hours. Children under six are not charged. "
        "Pets are allowed only in cottages, and smoking is prohibited everywhere. "
        "Cancellations made less than 7 days before arrival are non-refundable."
    ),
    (
        "Q: How long is the warranty?\n"
        "A: Two years for devices, six months for batteries. Damage caused by water is "
        "not covered."
    ),
    (
        "The survey reached 1,204 households in 17 districts. Some 35 percent of them "
        "own a car, and two thirds use the bus at least once a week."
    ),
]
IRRELEVANT = [
    "The mill burned down in 1920.",
    "Gulls nest on the roof.",
    "Petra sells rye bread.",
    "The choir meets on Tuesdays at ten in the old hall.",
]
CONSISTENT = [
    "Books may be renewed twice.",
    "Films can't be renewed.",
    "Members do not pay any fee for lost cards.",
    "The reading room opens at nine.",
    "The reading room opens at 9.",
    "Books may be renewed for 21 days each time.",
    "The ferry leaves at nine every morning.",
    "It takes 45 minutes to reach the island.",
    "Reaching the island takes three quarters of an hour.",
    "Bicycles cost 4.50 EUR.",
    "Bicycles cost €4.50.",
    "Dogs travel free.",
    "Marie Curie was born on November 7, 1867.",
    "The Heron has a range of 30 km.",
    "The Hawk 2 weighs 0.9 kg.",
    "The Swift X has a range of 8,500 m.",
    "The bridge was built from 1931 to 1934.",
    "The bridge is 1.28 km long.",
    "50 % of the tolls go to the city.",
    "The bridge was not painted until 1936.",
    "All guests must register within one day.",
    "Children under 6 are not charged.",
    "Cancellations made less than a week before arrival are non-refundable.",
    "Water damage is not covered.",
    "The warranty is two years for devices.",
    "The survey reached 1204 households.",
    "Two thirds of them use the bus at least once a week.",
    "I don't know why, but the ferry leaves at nine.",
    "According to the passages, dogs travel free.",
]
CONFLICT = [
    "Films can be renewed.",
    "Films may be renewed twice.",
    "Books cannot be renewed.",
    "Members pay a fee for lost cards.",
    "The reading room opens at ten.",
    "Books are renewed for four weeks each time.",
    "The ferry leaves at ten every morning.",
    "The ferry does not leave at nine.",
    "It takes 54 minutes to reach the island.",
    "Bicycles cost €5.40.",
    "Dogs do not travel free.",
    "Marie Curie was born on 7 November 1876.",
    "Marie Curie was born on 7 October 1867.",
    "The Heron has a range of 12 km.",
    "The Swift X weighs 900 g.",
    "The bridge was built from 1931 to 1937.",
    "The bridge is 1,820 metres long.",
    "A third of the tolls go to the city.",
    "All guests must register within 48 hours.",
    "Children under six are charged.",
    "Children under ten are not charged.",
    "Smoking is not prohibited.",
    "Cancellations made less than 7 days before arrival are refundable.",
    "Pets are not allowed in cottages.",
    "Damage caused by water is covered.",
    "The warranty is three years for devices.",
    "The survey reached 1,402 households.",
    "Three quarters use the bus at least once a week.",
    "53 percent own a car.",
    "The survey reached 1,204 households in seventy districts.",
    "I don't know why, but the ferry leaves at ten.",
    "It seems that the ferry leaves at ten.",
    "Sorry, the text does not say who painted it; the bridge is 1,820 metres long.",
]
UNVERIFIED = [
    "Bicycles cost 4.50 dollars.",
    "Marie Curie was born in Paris on 7 November 1867.",
    "Pierre Curie was born in Warsaw.",
    "Irene Curie won the Nobel Prize in Physics in 1903.",
    "She won the Nobel Prize together with Ernest Rutherford.",
    "Der Bus fährt um neun.",
    "Die Fähre fährt nicht um neun Uhr.",
    "The mayor of Oslo opened the library.",
    "The bridge is beautiful.",
]
UNDECIDED = [
    "Bicycles travel free.",
    "The bridge was painted in 1931.",
    "Marie Curie won the Nobel Prize in Physics in 1903.",
]
"""Statements that words cannot decide; a reader can."""
ALL = [
    *[(text, "consistent") for text in CONSISTENT],
    *[(text, "conflict") for text in CONFLICT],
    *[(text, "unverified") for text in (*UNVERIFIED, *UNDECIDED)],
]


def checked(answer, passages=PASSAGES, question=QUESTION):
    (statement,) = attribute_answer(question, passages, answer).statements
    return statement


def words_of(answer, passages=PASSAGES):
    return [answer[start:end] for start, end in checked(answer, passages).decided_by]


@pytest.mark.parametrize(("answer", "check"), ALL)
def test_statement_is_compared_with_its_sentence(answer, check):
    assert checked(answer).check == check


@pytest.mark.parametrize(
    ("answer", "passage", "check"),
    [
        ("Refunds take a week.", "Refunds take five business days.", "unverified"),
        ("Refunds take 5 days.", "Refunds take five business days.", "unverified"),
        ("Refunds take 5 working days.", "Refunds take 5 business days.", "unverified"),
        ("Refunds take 7 business days.", "Refunds take five business days.", "conflict"),
        ("Refunds take 5 business days.", "Refunds take five business days.", "consistent"),
        ("Storage costs 3 cubic metres.", "Storage costs 3 square metres.", "unverified"),
        ("The trial lasts a month.", "The trial lasts 30 days.", "unverified"),
        ("The trial lasts a month.", "The trial lasts 60 days.", "conflict"),
        ("The trial lasts a quarter of an hour.", "The trial lasts 15 minutes.", "consistent"),
        ("Drops are given once a day.", "Drops are given twice a day.", "conflict"),
        ("Drops are given 2 times a day.", "Drops are given twice a day.", "consistent"),
        ("It needs 90 nails and 2 g of glue.", "It needs 2 nails and 90 g of glue.", "unverified"),
        ("The trail is 1234567.1 km long.", "The trail is 1234567.9 km long.", "conflict"),
    ],
)
def test_amounts_are_compared_by_unit_and_its_qualifier(answer, passage, check):
    assert checked(answer, [passage], answer).check == check


@pytest.mark.parametrize(
    ("answer", "passage"),
    [
        ("Ms Lind sued Dr Haddad.", "Dr Haddad sued Ms Lind."),
        ("Porto beat Arsenal in Leeds.", "Arsenal beat Porto in Leeds."),
        ("The fair moves from June to May.", "The fair moves from May to June."),
        ("Set `timeout` to 5 in the file.", "Set `retries` to 5 in the file."),
        ("Goats are forbidden in the yard.", "Visitors bring goats into the yard."),
    ],
)
def test_another_order_or_another_word_is_unverified(answer, passage):
    assert checked(answer, [passage], answer).check == "unverified"


@pytest.mark.parametrize("text", ["٣ days", "x² of 5 °", "half a", "a square 5 cubic", "1e400 k"])
def test_odd_numbers_are_read_or_left(text):
    answer = f"The tank holds {text}"
    assert checked(answer, [answer], answer).check in ("consistent", "unverified")


def test_a_value_of_a_related_sentence_is_no_conflict():
    passage = "Notes of 12 May: Anna asked about refunds. Jonas does it until August, then Priya."
    assert checked("Priya does refunds after August.", [passage]).check == "unverified"
    assert checked("Anna asked about refunds on 12 August.", [passage]).check == "conflict"


@pytest.mark.parametrize("number", [1, 4, 20])
def test_irrelevant_passages_change_no_check(number):
    others = (IRRELEVANT * 5)[:number]
    for answer, _ in ALL:
        alone = checked(answer)
        for passages in (others + PASSAGES, PASSAGES + others):
            among = checked(answer, passages)
            assert (among.check, among.decided_by) == (alone.check, alone.decided_by)
            quotes = [[each.quote for each in one.citations] for one in (alone, among)]
            assert quotes[0] == quotes[1]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("The ferry leaves at ten every morning.", ["ten"]),
        ("Films can be **renewed** [1].", ["renewed"]),
        ("Dogs do not [8]  travel\n  free.", ["not"]),
        ("The bridge is\n1,820 [2] metres long.", ["1,820 [2] metres"]),
        ("Marie Curie was born in Paris on 7 November 1867.", ["Paris"]),
        ("All guests must register within 24 hours.", []),
    ],
)
def test_deciding_words_are_spans_of_the_answer(answer, words):
    assert words_of(answer) == words


@pytest.mark.parametrize(
    ("answer", "passage"),
    [
        ("Он жил в Москве с 1990 года.", "Он жил в Москве с 1990 года."),
        ("Der Film wurde nicht in Berlin gedreht.", "Der Film wurde in Berlin gedreht."),
        ("他从1998年起住在北京。", "他从1990年起住在北京。"),
        ("Le film n'est pas sorti en 1990.", "Le film est sorti en 1990."),
        ("The film came out in 1990.", "Le film est sorti en 1990 et il a plu à la critique."),
    ],
)
def test_other_languages_are_unverified(answer, passage):
    assert checked(answer, [passage], answer).check == "unverified"


@pytest.mark.parametrize(
    ("question", "answer", "check"),
    [
        ("Where does Anna live?", "Rome", "consistent"),
        ("Where does Anna live?", "Paris", "unverified"),
        ("Where does Anna live?", "Madrid", "unverified"),
        ("Does Anna live in Rome?", "Yes.", "unverified"),
    ],
)
def test_short_answer_is_read_with_its_question(question, answer, check):
    passages = ["Anna lives in Rome.", "Bob lives in Paris."]
    assert checked(answer, passages, question).check == check


def test_attribution_has_the_worst_check_of_its_statements():
    shaper = ContextShaper(FakeLanguageModel(), {"signal": None})
    true, false, unknown = "Dogs travel free.", "Dogs do not travel free.", "Bob saw Oslo."
    cases = [
        ([true], "consistent"),
        ([true, unknown], "unverified"),
        ([unknown, false, true], "conflict"),
    ]
    for statements, check in cases:
        attribution = shaper.attribute(QUESTION, PASSAGES, " ".join(statements))
        assert attribution.check == check
        assert len(attribution.conflicts) == statements.count(false)
        assert len(attribution.unverified) == statements.count(unknown)
