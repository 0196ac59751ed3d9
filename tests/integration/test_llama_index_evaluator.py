"""The evaluator of LlamaIndex: score, passing and feedback of an answer held against contexts."""

import pytest
from llama_index.core.evaluation import BaseEvaluator
from llama_index.core.schema import NodeWithScore, TextNode

from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.llama_index import ECSSupportEvaluator
from ecs_plugins.lm import FakeLanguageModel
from tests.integration.citing_setup import ANSWER, PASSAGES, QUESTION, faults

WRONG = "A company of Oslo built it in 1912."


def evaluator(**fields):
    fields.setdefault("model", FakeLanguageModel())
    return ECSSupportEvaluator(**fields)


def test_an_answer_that_contexts_support_passes_and_the_feedback_says_by_what():
    judge = evaluator()
    assert isinstance(judge, BaseEvaluator)
    result = judge.evaluate(QUESTION, ANSWER, PASSAGES)
    assert result.passing
    assert result.score >= 0.5
    assert "passage 1" in result.feedback
    assert (result.query, result.response, result.contexts) == (QUESTION, ANSWER, PASSAGES)


async def test_an_answer_that_none_supports_fails_and_its_words_are_named():
    result = await evaluator().aevaluate(QUESTION, WRONG, PASSAGES)
    assert result.passing is False
    assert "1912" in result.feedback
    assert "Oslo" in result.feedback
    assert evaluator(passing_from=0.0).evaluate(QUESTION, WRONG, PASSAGES).passing


def test_a_response_is_held_against_its_nodes_and_needs_no_question():
    from llama_index.core.base.response.schema import Response

    nodes = [NodeWithScore(node=TextNode(text=text)) for text in PASSAGES]
    result = evaluator().evaluate_response(response=Response(ANSWER, source_nodes=nodes))
    assert result.passing


@pytest.mark.parametrize(("fields", "reason"), faults())
def test_a_failed_attribution_is_invalid(fields, reason):
    result = evaluator(**fields).evaluate(QUESTION, ANSWER, PASSAGES)
    model = fields["model"]
    if hasattr(model, "progress"):
        model.progress.set()
    assert (result.score, result.passing) == (None, None)
    assert result.invalid_result
    assert reason in result.invalid_reason


def test_empty_attribution_is_invalid():
    result = evaluator().evaluate(QUESTION, "I don't know.", PASSAGES)
    assert result.invalid_result
    assert "states nothing" in result.invalid_reason


def test_missing_or_out_of_range_arguments_are_refused():
    with pytest.raises(InvalidInputError):
        evaluator().evaluate(QUESTION, ANSWER)
    with pytest.raises(ConfigurationError):
        evaluator(passing_from=2)
    with pytest.raises(ConfigurationError):
        evaluator(passing=0.5)
