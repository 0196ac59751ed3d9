import pytest

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.lm.base import ChatLayout
from ecs_plugins.lm.prompts import PLAIN, PromptTemplate

VALUES = {"context": "", "question": "Where?", "answer": "Paris"}
CHAT = ChatLayout(head="<u>", tail="</u><a>", chat=True)


def text(segments):
    return "".join(segment.text for segment in segments)


def test_a_chat_prompt_is_laid_out_as_documented() -> None:
    template = PromptTemplate(before="Read:\n", passage="[{passage}]", after="\nQ: {question}")
    assert text(template.prefix(CHAT, VALUES)) == "<u>Read:\n"
    assert text(template.candidate("Ann.")) == "[Ann.]"
    assert text(template.continuation(CHAT, VALUES)) == "\nQ: Where?</u><a>Answer: Paris"
    assert text(template.prompt(CHAT, "Ann.", VALUES)) == (
        "<u>Read:\n[Ann.]\nQ: Where?</u><a>Answer:"
    )


def test_fields_are_untrusted_and_template_text_is_trusted() -> None:
    segments = PromptTemplate().continuation(PLAIN, VALUES)
    shown = [(segment.text, segment.trusted) for segment in segments]
    assert shown == [
        ("Question:", True),
        (" Where?", False),
        ("\nAnswer:", True),
        (" Paris", False),
    ]


@pytest.mark.parametrize(
    "scored",
    [
        ("answer",),
        ("question",),
        ("question", "answer"),
    ],
)
def test_the_named_fields_are_scored(scored) -> None:
    segments = PromptTemplate().continuation(PLAIN, VALUES, scored)
    texts = [segment.text.strip() for segment in segments if segment.scored]
    assert texts == [VALUES[name] for name in scored]


def test_braces_in_a_value_are_text_and_an_empty_one_leaves_nothing_behind() -> None:
    assert text(PromptTemplate().candidate("{answer} {{x}}")) == "{answer} {{x}}\n"
    assert PromptTemplate(passage="Passage: {passage}\n\n").candidate("") == ()
    template = PromptTemplate(before="Context: {context}\n")
    assert text(template.prefix(PLAIN, VALUES)) == "Context:\n"


@pytest.mark.parametrize(
    "parts",
    [
        {"passage": "no field"},
        {"after": "{passage}"},
        {"after": "{question"},
        {"after": "{question!r}"},
        {"after": "{0}"},
        {"response": "{answer:>10}"},
    ],
)
def test_a_malformed_template_is_refused(parts) -> None:
    with pytest.raises(ConfigurationError):
        PromptTemplate(**parts)


def test_a_field_without_a_value_or_a_place_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="date"):
        PromptTemplate(after="{question} {date}").continuation(PLAIN, VALUES)
    with pytest.raises(ConfigurationError, match="judgement"):
        PromptTemplate().continuation(PLAIN, VALUES, scored=("judgement",))
