"""Citations around a real query engine of LlamaIndex."""

import json

import pytest
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata
from llama_index.core.schema import MetadataMode, TextNode

from ecs_plugins.errors import ConfigurationError
from ecs_plugins.llama_index import ECSCitationQueryEngine, ECSPostprocessor
from ecs_plugins.llama_index.citations import ECSCitationsEvent
from ecs_plugins.lm import FakeLanguageModel
from tests.integration.citing_setup import ANSWER, PASSAGES, QUESTION, QUOTE, faults
from tests.integration.shaping_setup import GIVEN_ORDER

MARKED = "The company of Gustave Eiffel built it in 1889 [1]."


class Answering(CustomLLM):
    """Answers the same to everything, a word at a time."""

    reply: str = ANSWER

    @property
    def metadata(self):
        return LLMMetadata()

    def complete(self, prompt, formatted=False, **kwargs):
        return CompletionResponse(text=self.reply)

    def stream_complete(self, prompt, formatted=False, **kwargs):
        said = ""
        for word in self.reply.split():
            delta = f" {word}" if said else word
            said += delta
            yield CompletionResponse(text=said, delta=delta)


def engine(reply=ANSWER, streaming=False, postprocessors=(), **fields):
    fields.setdefault("model", FakeLanguageModel())
    first, second = PASSAGES
    nodes = [TextNode(text=first, id_="n0"), TextNode(text=second, id_="n1")]
    embedding = MockEmbedding(embed_dim=4)
    index = VectorStoreIndex(nodes, embed_model=embedding)
    inner = index.as_query_engine(
        llm=Answering(reply=reply),
        streaming=streaming,
        node_postprocessors=list(postprocessors),
    )
    return ECSCitationQueryEngine(inner, **fields)


def scores_of(response):
    return [node.score for node in response.source_nodes]


def check_cited(response):
    assert response.metadata["ecs"]["support"] > 0.5
    first, second = response.source_nodes
    assert first.node_id == "n1"
    of_first = first.metadata["ecs"]
    of_second = second.metadata["ecs"]
    (citation,) = of_first["citations"]
    assert citation["quote"] == QUOTE
    assert citation["statement"] == ANSWER
    assert first.score == citation["probability"]
    assert second.score == 0.0
    assert of_second["citations"] == []
    assert of_first["retriever_score"] == pytest.approx(1.0)
    assert first.get_content(MetadataMode.LLM) == PASSAGES[1]
    details = response.metadata["ecs"]
    assert details["cited"] == [0]
    (statement,) = details["statements"]
    (citation,) = statement["citations"]
    assert citation["passage"] == 0
    written = json.dumps(details)
    assert json.loads(written) == details


@pytest.mark.parametrize("marks", [False, True])
async def test_the_source_nodes_say_what_rests_on_them(marks):
    citing = engine(marks=marks)
    shown = MARKED if marks else ANSWER
    responses = [citing.query(QUESTION)]
    responses.append(await citing.aquery(QUESTION))
    for response in responses:
        check_cited(response)
        assert str(response) == shown


async def test_a_stream_is_passed_on_and_cited_when_it_has_ended(dispatched):
    citing = engine(streaming=True, marks=True)
    response = citing.query(QUESTION)
    pieces = list(response.response_gen)
    assert len(pieces) == len(ANSWER.split())
    assert "".join(pieces) == ANSWER
    check_cited(response)
    response = await citing.aquery(QUESTION)
    whole = await response.get_response()
    assert whole.response == ANSWER
    check_cited(response)
    told = [event for event in dispatched if isinstance(event, ECSCitationsEvent)]
    assert len(told) == 2
    for event in told:
        assert event.details["cited"] == [0]


def test_a_verdict_of_shaping_stays_beside_the_citations():
    shaping = ECSPostprocessor(model=FakeLanguageModel(), config=GIVEN_ORDER)
    citing = engine(postprocessors=[shaping])
    first, _ = citing.query(QUESTION).source_nodes
    ecs = first.metadata["ecs"]
    assert ecs["verdict"]
    assert ecs["citations"]
    assert ecs["retriever_score"] == pytest.approx(1.0)


@pytest.mark.parametrize("reply", ["I don't know.", "I saw Bob."])
def test_an_answer_that_rests_on_nothing_is_as_it_came(reply):
    citing = engine(reply, marks=True)
    response = citing.query(QUESTION)
    assert str(response) == reply
    assert scores_of(response) == [0.0, 0.0]


@pytest.mark.parametrize(("fields", "says"), faults())
async def test_an_answer_is_never_held_back(fields, says, caplog):
    citing = engine(**fields)
    streaming = engine(streaming=True, **fields)
    responses = [citing.query(QUESTION), streaming.query(QUESTION)]
    responses.append(await citing.aquery(QUESTION))
    for response in responses:
        assert str(response) == ANSWER
        details = response.metadata["ecs"]
        assert says in details["error"]
        assert scores_of(response) == pytest.approx([1.0, 1.0])
    assert "without citations" in caplog.text
    model = fields["model"]
    if hasattr(model, "progress"):
        model.progress.set()


@pytest.mark.parametrize("wrong", [{"engine": "x"}, {"mark": True}, {"budget_s": -1}])
def test_what_cannot_be_used_is_refused_at_construction(wrong):
    inner = engine().engine
    fields = {"engine": inner, **wrong}
    with pytest.raises(ConfigurationError):
        ECSCitationQueryEngine(**fields)
