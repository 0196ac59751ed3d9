import itertools
import math

import pytest

from ecs_plugins.common.text import asks
from ecs_plugins.memory import EntropicMemory, MemoryConfig
from ecs_plugins.memory.near_texts import difference
from ecs_plugins.memory.prior import MOST, UNFORESEEN, features, worth
from ecs_plugins.ranking.embedder import default_embedder

FACT, QUESTION = "My locker code is 4711.", "What is my locker code?"


def test_text_with_a_final_question_mark_is_a_question() -> None:
    assert all(map(asks, ("Where?", 'He asked "where?"', "\u3069\u3053\uff1f", "Really?  ")))
    assert not any(map(asks, ("", "Here.", "Is it? Yes.", "?no")))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("I am allergic to nuts", "I am not allergic to nuts", "negation"),
        ("I can swim.", "I can\u2019t swim.", "negation"),
        ("i do like it", "i dont like it", "negation"),
        ("I never eat meat, I eat fish", "I never eat meat, I never eat fish", "negation"),
        ("The code is 4711.", "The code is 4712.", "number"),
        ("We meet at 10:30.", "We meet at 10:45.", "number"),
        ("I have two cats.", "I have three cats.", "number"),
        ("The bag weighs 5kg", "The bag weighs 6 kg", "number"),
        ("I fly today.", "I fly tomorrow.", "number"),
        ("He takes 3 of the blue and 2 of the red", "He takes 2 of the blue and 3 of the red",
         "number"),
        ("Ada lives in Rome.", "Ada lives in Oslo.", "name"),
        ("Ada is here.", "Bob is here.", "name"),
        ("Ada owes Bob money.", "Bob owes Ada money.", "name"),
        ("We leave in May.", "We leave in March.", "name"),
        ("\u6211\u4e0d\u559c\u6b22\u732b", "\u6211\u559c\u6b22\u732b", "name"),
        ("Is Ada in Rome?", "Ada is in Oslo.", "name"),
        ("Is the code 4711?", "The code is 4712.", "number"),
        ("Do you eat fish?", "Don't you eat fish?", "negation"),
        ("I moved to Rome.", "I have moved to Rome", None),
        ("I don't drink.", "I do not drink.", None),
        ("I can\u2019t swim", "I cannot swim", None),
        ("I have 2 cats.", "I have two cats.", None),
        ("It weighs 5kg.", "It weighs 5 kg.", None),
        ("Dogs are loud.", "I think dogs are loud.", None),
        ("Also, we went to Rome in 2020.", "In 2020 we went to Rome.", None),
        ("Ich wohne in Rom.", "In Rom wohne ich.", None),
        ("I like IPA", "I like ipa", None),
        ("\u6211\u559c\u6b22\u732b", "\u6211\u559c\u6b22\u732b\u3002", None),
        (FACT, QUESTION, None),
        ("You don't eat fish.", "Do you eat fish?", None),
        ("Ada lives in Rome.", "", None),
    ],
)  # fmt: skip
def test_a_negation_a_number_or_a_name_keeps_texts_apart_and_other_words_do_not(
    one, other, expected
) -> None:
    assert difference(one, other) == expected
    assert difference(other, one) == expected


@pytest.fixture(scope="module")
def embedder():
    return default_embedder()


@pytest.mark.parametrize(
    ("messages", "threshold", "kept"),
    [
        ((FACT, QUESTION), 0.7, FACT),
        ((QUESTION, FACT), 0.7, FACT),
        (("I am allergic to nuts.", "I'm allergic to nuts!"), 0.9, "I'm allergic to nuts!"),
    ],
)
def test_of_equal_texts_the_newer_or_the_statement_is_kept(
    messages, threshold, kept, embedder
) -> None:
    config = MemoryConfig(merge_threshold=threshold)
    with EntropicMemory.open(":memory:", embedder=embedder, config=config) as memory:
        for message in messages:
            memory.add(message)
        for _ in range(2):
            (found,) = memory.recall(messages[0])
            assert (found.text, found.support) == (kept, 2)
            memory.sleep()


@pytest.mark.parametrize("threshold", [0.9, 0.7])
@pytest.mark.parametrize(
    ("older", "newer", "kind"),
    [
        ("I was allergic to nuts", "I was not allergic to nuts", "negation"),
        ("The meeting is on Friday at 10 in room 4", "The meeting is on Friday at 11 in room 4",
         "number"),
        ("My sister Ada was in Rome", "My sister Ada was in Oslo", "name"),
    ],
)  # fmt: skip
def test_contradictions_are_kept_and_recalled_together(
    older, newer, kind, threshold, embedder
) -> None:
    config = MemoryConfig(merge_threshold=threshold)
    with EntropicMemory.open(":memory:", embedder=embedder, config=config) as memory:
        memory.add([older, newer])
        for _ in range(2):
            found = {item.text: item for item in memory.recall(newer)}
            assert set(found) == {older, newer}
            assert [item.support for item in found.values()] == [1, 1]
            memory.sleep()
        memory.add([older, newer])
        assert [item.support for item in memory.recall(newer)] == [2, 2]
        if kind != "name":  # the two cities lie further apart than either threshold
            assert f"differs in a {kind}" in found[newer].why
        assert "differs" not in found[older].why


# What a text is worth

SMALL_TALK = "Hey! Great to see you! How have you been lately?"

# One line each: what is worth keeping, what is typical, and small talk.
LANGUAGES = {
    "English": (
        "My sister Clara moved to Lisbon last March and teaches piano at the Alto school.",
        "I went for a walk along the river and thought about our plan.",
        "Wow, that's great! How are you?",
    ),
    "German": (
        "Meine Schwester Klara ist letzten März nach Lissabon gezogen und unterrichtet Klavier.",
        "Ich bin am Fluss spazieren gegangen und habe über unseren Plan nachgedacht.",
        "Na, das ist ja toll! Wie geht es dir?",
    ),
    "Chinese": (
        "我姐姐克拉拉去年三月搬到了里斯本，现在在阿尔托音乐学校教钢琴，学生大约有40个。",
        "我沿着河边散步，想了想我们上次谈过的那个旅行计划。",
        "哇，太好了！你最近怎么样？",
    ),
    "Arabic": (
        "انتقلت أختي كلارا إلى لشبونة في مارس الماضي وهي تدرّس البيانو في مدرسة ألتو للموسيقى.",
        "ذهبت للمشي على ضفة النهر وفكرت في خطتنا للسفر هذا الصيف.",
        "رائع جدا! كيف حالك اليوم؟",
    ),
    "Hindi": (
        "मेरी बहन क्लारा पिछले मार्च में लिस्बन चली गई और अल्टो स्कूल में पियानो सिखाती है।",
        "मैं नदी के किनारे टहलने गया और हमारी यात्रा की योजना के बारे में सोचा।",
        "वाह, बहुत बढ़िया! आप कैसे हैं?",
    ),
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_information_has_more_utility_than_small_talk(language) -> None:
    fact, typical, small_talk = map(worth, LANGUAGES[language])
    assert fact > typical > small_talk
    assert typical > worth(SMALL_TALK)  # of English


def test_vowel_signs_do_not_tear_words_apart() -> None:
    assert features("मेरी किताब")[1]["words"] == features("my book")[1]["words"]


@pytest.mark.parametrize("head", ["Caroline: ", "(1:56 pm on 8 May, 2023) Mary Ann: ", "user: "])
def test_speaker_and_date_do_not_count(head) -> None:
    text = "I adopted a dog named Biscuit in June."
    assert worth(head + text) == worth(text)


@pytest.mark.parametrize(
    ("more", "less"),
    [
        ("The code of the gate is 4711.", "The code of the gate is long."),
        ("I met Anna at the Rialto.", "I met someone at the bridge."),
        ("I saw the doctor yesterday.", "I saw the doctor there."),
        ("I have a garden with my aunt.", "You have a garden with your aunt."),
        ("The museum has a garden.", "The museum has a garden?"),
    ],
)
def test_numbers_names_times_and_statements_about_oneself_count(more, less) -> None:
    assert worth(more) > worth(less)


def test_a_long_text_is_worth_no_more_than_the_longest_that_was_learned_from() -> None:
    words = " ".join("".join(letters) for letters in itertools.product("bdfgklmnprst", repeat=3))
    assert worth(words) == worth(f"{words} {words[::-1]}")
    assert all(value > 0 for value in MOST.values())


@pytest.mark.parametrize("text", ["", "!?", "🙂", "\n", "a" * 10_000, "name:"])
def test_every_text_has_a_finite_worth(text) -> None:
    assert math.log(UNFORESEEN) < worth(text) < 6
