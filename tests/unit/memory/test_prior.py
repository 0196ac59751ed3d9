import itertools
import math

import pytest

from ecs_plugins.memory.prior import MOST, UNFORESEEN, features, worth

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
def test_what_informs_is_worth_more_than_small_talk_in_every_language(language) -> None:
    fact, typical, small_talk = map(worth, LANGUAGES[language])
    assert fact > typical > small_talk
    assert typical > worth(SMALL_TALK)  # of English


def test_vowel_signs_do_not_tear_words_apart() -> None:
    assert features("मेरी किताब")[1]["words"] == features("my book")[1]["words"]


@pytest.mark.parametrize("head", ["Caroline: ", "(1:56 pm on 8 May, 2023) Mary Ann: ", "user: "])
def test_who_says_it_and_when_does_not_count(head) -> None:
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
