import pytest

from ecs_plugins.embedding import default_embedder
from ecs_plugins.memory import EntropicMemory
from ecs_plugins.memory.wording import is_question, may_replace

FACT, QUESTION = "My locker code is 4711.", "What is my locker code?"


@pytest.mark.parametrize("text", ["Where?", 'He asked "where?"', "\u3069\u3053\uff1f", "Really?  "])
def test_what_ends_with_a_question_mark_is_a_question(text: str) -> None:
    assert is_question(text)


@pytest.mark.parametrize("text", ["", "Here.", "Is it? Yes.", "?no"])
def test_what_does_not_is_none(text: str) -> None:
    assert not is_question(text)


def test_only_a_question_makes_room_for_a_question() -> None:
    assert may_replace(QUESTION, "Where is it?")
    assert may_replace(FACT, QUESTION)
    assert may_replace("It is 4712 now.", FACT)
    assert not may_replace(QUESTION, FACT)


@pytest.mark.parametrize("messages", [(FACT, QUESTION), (QUESTION, FACT)])
def test_a_memory_keeps_the_statement_and_not_the_question_about_it(messages) -> None:
    with EntropicMemory.open(":memory:", embedder=default_embedder()) as memory:
        for message in messages:
            memory.add(message)
        assert memory.recall(QUESTION)[0].text == FACT
        memory.sleep()
        assert memory.recall(QUESTION)[0].text == FACT
