import pytest

from ecs_plugins.common.text import asks
from ecs_plugins.memory import EntropicMemory, MemoryConfig
from ecs_plugins.memory.wording import difference
from ecs_plugins.ranking.embedder import default_embedder

FACT, QUESTION = "My locker code is 4711.", "What is my locker code?"


def test_what_ends_with_a_question_mark_is_a_question() -> None:
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
def test_of_what_says_the_same_a_memory_keeps_the_newer_or_the_statement(
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
def test_what_contradicts_a_memory_is_kept_and_recalled_beside_it(
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
