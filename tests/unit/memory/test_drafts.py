"""What callers hand to ``add``, brought to one form."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ecs_plugins.errors import InvalidInputError
from ecs_plugins.memory import NewMessage
from ecs_plugins.memory.store.messages import drafted

values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
finite = values.filter(lambda value: not (isinstance(value, float) and math.isinf(value)))


def encodable(value):
    return all(not 0xD800 <= ord(character) <= 0xDFFF for character in str(value))


@given(st.dictionaries(st.text().filter(encodable), finite.filter(encodable), max_size=4))
def test_flat_metadata_is_stored_as_json_writes_it(metadata):
    stored = NewMessage("text", metadata=metadata).stored_metadata
    assert stored == json.dumps(metadata, ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize("value", [math.nan, math.inf, object(), {1, 2}, "\ud800", [math.nan]])
def test_metadata_that_json_does_not_know_is_refused(value):
    with pytest.raises(InvalidInputError, match="JSON values only"):
        NewMessage("text", metadata={"key": value})


def test_what_a_mapping_does_not_say_is_taken_from_the_defaults():
    said = {"content": "hello", "role": None, "metadata": None, "ttl": 5.0}
    (message,) = drafted(said, role="tool", metadata={"a": 1}, writer="agent", at=7.0)
    assert message == NewMessage("hello", "tool", {"a": 1}, "agent", 7.0, 5.0)


def test_a_role_of_none_is_the_users():
    assert [each.role for each in drafted(["hello", {"text": "you"}], role=None)] == ["user"] * 2


@pytest.mark.parametrize(
    "draft",
    [
        None,
        5,
        [None],
        [{"content": "x", "at": "2025-01-01T10:00:00"}],
        [{"content": "x", "at": math.nan}],
        [{"content": "x", "ttl": "5"}],
        [{"content": "x", "ttl": math.inf}],
        [{"content": "x", "role": 5}],
        [{"content": "x", "writer": 5}],
    ],
    ids=str,
)
def test_what_is_no_message_is_refused(draft):
    with pytest.raises(InvalidInputError):
        drafted(draft)
