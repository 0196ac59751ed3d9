"""The evaluator of LlamaIndex: passing and feedback of an answer compared with its contexts."""

import pytest
from llama_index.core.evaluation import BaseEvaluator
from llama_index.core.llms import CompletionResponse
from llama_index.core.llms.mock import MockLLM
from llama_index.core.schema import NodeWithScore, TextNode

from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.llama_index import ECSCheckEvaluator
from ecs_plugins.lm import FakeLanguageModel
from tests.integration.citing_setup import ANSWER, PASSAGES, QUESTION, faults

WRONG = "The company of Gustave Eiffel built it in 1912."
UNKNOWN = "The company of Gustave Eiffel painted it in Oslo."


def evaluator(**fields):
    fields.setdefault("model", FakeLanguageModel())
    return ECSCheckEvaluator(**fields)


class Judging(MockLLM):
    """An LLM with one reply."""

    def complete(self, prompt, formatted=False, **kwargs):
        return CompletionResponse(text="consistent")


@pytest.mark.parametrize(
    ("answer", "passing", "word"),
    [
        (ANSWER, True, "consistent"),
        (WRONG, False, "conflict: 1912"),
        (UNKNOWN, None, "Oslo"),
        (f"{ANSWER} {UNKNOWN}", None, "unverified"),
        (f"{UNKNOWN} {WRONG}", False, "conflict"),
    ],
)
async def test_passing_is_none_for_unverified_answers(answer, passing, word):
    judge = evaluator()
    assert isinstance(judge, BaseEvaluator)
    for result in (
        judge.evaluate(QUESTION, answer, PASSAGES),
        await judge.aevaluate(QUESTION, answer, PASSAGES),
    ):
        assert result.passing is passing
        assert result.score is None
        assert word in result.feedback
        assert "passage 1" in result.feedback
        assert (result.query, result.response, result.contexts) == (QUESTION, answer, PASSAGES)


def test_llm_judges_unverified_statements_only():
    judge = evaluator(judge=Judging())
    assert judge.evaluate(QUESTION, UNKNOWN, PASSAGES).passing is True
    assert judge.evaluate(QUESTION, WRONG, PASSAGES).passing is False


def test_response_is_compared_with_its_nodes_without_a_question():
    from llama_index.core.base.response.schema import Response

    nodes = [NodeWithScore(node=TextNode(text=text)) for text in PASSAGES]
    result = evaluator().evaluate_response(response=Response(ANSWER, source_nodes=nodes))
    assert result.passing


@pytest.mark.parametrize(("fields", "reason"), faults())
def test_failed_attribution_is_an_invalid_result(fields, reason):
    result = evaluator(**fields).evaluate(QUESTION, ANSWER, PASSAGES)
    model = fields["model"]
    if hasattr(model, "progress"):
        model.progress.set()
    assert (result.score, result.passing) == (None, None)
    assert result.invalid_result
    assert reason in result.invalid_reason


def test_answer_that_states_nothing_is_an_invalid_result():
    result = evaluator().evaluate(QUESTION, "I don't know.", PASSAGES)
    assert result.invalid_result
    assert "states nothing" in result.invalid_reason


def test_missing_contexts_and_unknown_fields_are_refused():
    with pytest.raises(InvalidInputError):
        evaluator().evaluate(QUESTION, ANSWER)
    with pytest.raises(ConfigurationError):
        evaluator(passing_from=0.5)
