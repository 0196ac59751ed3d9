"""Forms of messages, times and filters."""

from datetime import UTC, datetime

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from llama_index.core.llms import ChatMessage

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory.drafts import drafted
from ecs_plugins.memory.filters import checked_filter
from ecs_plugins.memory.store.messages import NewMessage

PICTURE = {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}}
CALL = {"id": "1", "type": "function", "function": {"name": "find", "arguments": '{"q": "cat"}'}}


@pytest.mark.parametrize(
    ("message", "role", "text"),
    [
        ("hello", "user", "hello"),
        (("assistant", "hello"), "assistant", "hello"),
        ({"content": ["one", {"type": "text", "text": "two"}]}, "user", "one two"),
        ({"content": [{"type": "text", "text": "my cat"}, PICTURE]}, "user", "my cat"),
        ({"role": "assistant", "content": "found", "tool_calls": [CALL]}, "assistant", "found"),
        (HumanMessage("hello"), "user", "hello"),
        (AIMessage([{"type": "text", "text": "hello"}]), "assistant", "hello"),
        (AIMessageChunk("hello"), "assistant", "hello"),
        (HumanMessage("hello", id="1").model_dump(), "user", "hello"),
        ({"role": "human", "content": "hello"}, "user", "hello"),
        (("developer", "hello"), "developer", "hello"),
        (
            {
                "type": "message",
                "id": "1",
                "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "hello", "annotations": []}],
            },
            "assistant",
            "hello",
        ),
    ],
)
def test_a_message_of_any_form_has_text_and_speaker(message, role, text):
    for given in (message, [message]):
        (draft,) = drafted(given)
        assert draft.role == role
        assert draft.text == text


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        AIMessage("", tool_calls=[{"name": "find", "args": {"q": "cat"}, "id": "1"}]),
        AIMessage("", invalid_tool_calls=[{"name": "find", "args": "{", "id": "1", "error": ""}]),
        ChatMessage(role="assistant", additional_kwargs={"tool_calls": [CALL]}),
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "find"}]},
    ],
)
def test_a_call_of_a_tool_that_says_nothing_is_left_out(message):
    assert drafted(message) == []
    (draft,) = drafted([message, "hello"])
    assert draft.text == "hello"


def test_a_name_is_added_to_given_metadata():
    message = {
        "content": "hello",
        "name": "ada",
        "metadata": {"a": 1},
    }
    (draft,) = drafted(message)
    assert draft.metadata == {"name": "ada", "a": 1}


def test_two_texts_are_two_messages():
    drafts = drafted(("red", "blue"))
    texts = [draft.text for draft in drafts]
    assert texts == ["red", "blue"]


@pytest.mark.parametrize("message", [{"conten": "hello"}, {"content": "hello", "rol": "user"}])
def test_a_mistyped_key_is_refused(message):
    with pytest.raises(InvalidInputError, match="no key"):
        drafted(message)


@pytest.mark.parametrize(
    "at",
    [
        1_735_725_600.0,
        datetime(2025, 1, 1, 10, tzinfo=UTC),
        "2025-01-01T10:00:00Z",
        "2025-01-01T12:00:00+02:00",
    ],
)
def test_a_time_may_be_a_date_with_a_zone(at):
    expected = NewMessage("hello", at=1_735_725_600.0)
    (own,) = drafted({"content": "hello", "at": at})
    assert own == expected
    (default,) = drafted("hello", at=at)
    assert default == expected


@pytest.mark.parametrize(
    ("at", "why"),
    [
        (datetime(2025, 1, 1), "without a zone"),
        ("2025-01-01", "without a zone"),
        ("yesterday", "no time"),
    ],
)
def test_a_time_without_a_zone_is_refused(at, why):
    with pytest.raises(InvalidInputError, match=why):
        drafted("hello", at=at)


@pytest.mark.parametrize(
    ("batch", "number"),
    [
        (["fine", {"content": " "}, "fine"], 1),
        ([{"content": 5}], 0),
    ],
)
def test_an_invalid_message_of_a_batch_is_named(batch, number):
    why = f"message {number} of the batch: a message needs text"
    with pytest.raises(InvalidInputError, match=why):
        drafted(batch)


@pytest.mark.parametrize(
    "condition",
    [
        {"$not": {"lang": "en"}},
        {"lang": {"$near": "en"}},
        {"lang": {"$eq": "en", "of": 1}},
        {"lang": {"of": {"$near": "en"}}},
    ],
)
def test_an_invalid_filter_operator_is_refused(condition):
    with pytest.raises(InvalidInputError):
        checked_filter(condition)


def test_a_message_shows_its_own_text_only():
    shown = repr(NewMessage("Well.", asked="How are you?", asker="m1"))
    assert "Well." in shown
    assert "How are you?" not in shown
    assert "m1" not in shown
