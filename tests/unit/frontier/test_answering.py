import contextvars

import pytest

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.answering import (
    CallableAnswerModel,
    LocalAnswerModel,
    answer_prompt,
    as_answer_model,
)
from ecs_plugins.lm.base import ChatLayout
from ecs_plugins.lm.fake import FakeLanguageModel


def words(texts):
    return [len(text.split()) for text in texts]


@pytest.fixture
def chat():
    return FakeLanguageModel(replies={"Who": "Ann"}, layout=ChatLayout("<user>", "<bot>", True))


def test_a_language_model_answers_within_its_layout_where_a_colon_opens_the_reply(chat):
    (reply,) = as_answer_model(chat).complete(["Who?"], max_new_tokens=5)
    assert reply.text == "Ann"
    assert reply.input_tokens == 8
    assert reply.output_tokens == 1
    model = LocalAnswerModel(chat)
    model.complete(["Who?\nAnswer:", "Who?\nnow"], max_new_tokens=5)
    first, opened, plain = chat.prompts
    assert first == "<user>Who?<bot>"
    assert opened == "<user>Who?<bot>Answer:"
    assert plain == "<user>Who?\nnow<bot>"


def test_a_langchain_chat_model_without_usage_needs_a_counter():
    from langchain_core.language_models.fake_chat_models import FakeListChatModel

    chat = FakeListChatModel(responses=["Ann Lee"])
    silent = as_answer_model(chat)
    with pytest.raises(ConfigurationError, match="count_tokens"):
        silent.complete(["Who is it?"], max_new_tokens=5)
    with pytest.raises(ConfigurationError, match="int cannot answer"):
        as_answer_model(3)
    counted = as_answer_model(chat, count_tokens=words)
    (reply,) = counted.complete(["Who is it?"], max_new_tokens=5)
    assert reply.text == "Ann Lee"
    assert reply.input_tokens == 3
    assert reply.output_tokens == 2


def test_prompts_are_answered_in_order_by_several_workers_in_the_callers_context():
    asked_by = contextvars.ContextVar("asked_by", default="nobody")

    def answer(prompt):
        return f"{asked_by.get()}: {prompt}"

    model = CallableAnswerModel(answer, name="x", count_tokens=words, workers=4)
    asked_by.set("ann")
    prompts = [f"prompt {k}" for k in range(20)]
    replies = model.complete(prompts, max_new_tokens=5)
    assert [reply.text for reply in replies] == [f"ann: {prompt}" for prompt in prompts]


def test_braces_in_context_and_question_are_plain_text():
    prompt = answer_prompt("a {question}", "what is {context}?")
    assert "a {question}" in prompt
    assert "Question: what is {context}?" in prompt
