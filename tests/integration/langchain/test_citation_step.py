"""Citations behind a chain: whole, streamed, in batches, late and not at all."""

import json

import pytest
from langchain_classic.chains import create_retrieval_chain
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.output_parsers import StrOutputParser
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda, RunnablePassthrough

from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.langchain import ECSCitations
from ecs_plugins.lm import FakeLanguageModel
from tests.integration.citing_setup import ANSWER, PASSAGES, QUESTION, QUOTE, faults

METADATA = {"source": "https://example.org/tower", "title": "Tower"}
DOCUMENTS = [
    Document(PASSAGES[0], id="d0", metadata={"source": "prices.txt"}),
    Document(PASSAGES[1], id="d1", metadata=METADATA),
]
ASKED = {"question": QUESTION, "documents": DOCUMENTS}


def citations(**fields):
    fields.setdefault("model", FakeLanguageModel())
    return ECSCitations(**fields)


def cited(answer, **fields):
    """The message that an answer becomes."""
    given = {**ASKED, "answer": answer}
    return citations(**fields).invoke(given)["answer"]


def annotations_of(message):
    (block,) = message.content_blocks
    return block["annotations"]


def chain(*steps, **fields):
    """A model that streams a character at a time, with citations behind it."""
    model = RunnableLambda(lambda given: given["question"]) | FakeListChatModel(responses=[ANSWER])
    for step in steps:
        model |= step
    return RunnablePassthrough.assign(answer=model) | citations(**fields)


def check_cited(message):
    assert message.text == ANSWER
    (citation,) = annotations_of(message)
    assert citation["type"] == "citation"
    assert (citation["start_index"], citation["end_index"]) == (0, len(ANSWER))
    assert citation["cited_text"] == QUOTE


@pytest.mark.parametrize("answer", [ANSWER, AIMessage(ANSWER, id="m1")])
def test_an_answer_gets_the_citations_of_langchain(answer):
    message = cited(answer)
    check_cited(message)
    (citation,) = annotations_of(message)
    assert citation["url"] == "https://example.org/tower"
    assert citation["title"] == "Tower"
    extras = citation["extras"]
    assert extras["document"] == 1
    assert extras["document_id"] == "d1"
    assert PASSAGES[1][extras["start"] : extras["end"]] == QUOTE
    assert extras["check"] == "consistent"
    assert message.id == getattr(answer, "id", None)
    details = message.response_metadata["ecs"]
    assert details["cited"] == [1]
    assert json.loads(json.dumps(details)) == details


def test_a_source_without_address_is_a_title():
    message = cited("Tickets for the top cost 28 euros.")
    (citation,) = annotations_of(message)
    assert "url" not in citation
    assert citation["title"] == "prices.txt"


def test_citations_are_in_the_block_of_their_statement_and_others_stay():
    thought = {"type": "reasoning", "reasoning": "Hm."}
    blocks = [thought, {"type": "text", "text": "I saw Bob. "}, {"type": "text", "text": ANSWER}]
    message = cited(AIMessage(blocks))
    first, second, third = message.content_blocks
    assert first == thought
    assert "annotations" not in second
    (citation,) = third["annotations"]
    assert citation["start_index"] == 0
    assert third["text"] == ANSWER


@pytest.mark.parametrize("answer", ["I don't know.", "", "   ", "Bob saw Oslo."])
def test_an_answer_without_citations_is_as_it_came(answer):
    message = cited(answer)
    assert message.content == answer
    assert "ecs" in message.response_metadata


def test_other_keys_are_passed_on_and_texts_may_be_the_documents():
    given = {"input": QUESTION, "context": PASSAGES, "answer": ANSWER, "more": 1}
    result = citations().invoke(given)
    check_cited(result["answer"])
    assert result["more"] == 1


@pytest.mark.parametrize(
    "given",
    [
        QUESTION,
        {"question": QUESTION, "answer": ANSWER},
        {"documents": DOCUMENTS, "answer": ANSWER},
        ASKED,
        {**ASKED, "answer": {"text": ANSWER}},
        {**ASKED, "answer": ANSWER, "documents": [3]},
    ],
)
def test_missing_inputs_are_named(given):
    with pytest.raises(InvalidInputError):
        citations().invoke(given)


async def test_behind_langchains_own_chain_sync_async_and_in_batches():
    class Found(BaseRetriever):
        def _get_relevant_documents(self, query, *, run_manager):
            return DOCUMENTS

    answering = RunnableLambda(lambda given: ANSWER)
    behind = create_retrieval_chain(Found(), answering) | citations()
    check_cited(behind.invoke({"input": QUESTION})["answer"])
    result = await behind.ainvoke({"input": QUESTION})
    check_cited(result["answer"])
    results = behind.batch([{"input": QUESTION}] * 3)
    results += await behind.abatch([{"input": QUESTION}] * 3)
    for each in results:
        check_cited(each["answer"])


def added(pieces):
    """The answer in the pieces of a stream, and how many of them had some of its text."""
    answers = [piece["answer"] for piece in pieces if "answer" in piece]
    whole, *others = answers
    for piece in others:
        whole += piece
    return whole, sum(bool(piece.text) for piece in answers)


@pytest.mark.parametrize("steps", [[], [StrOutputParser()]], ids=["messages", "texts"])
async def test_a_stream_is_passed_on_as_it_comes_and_cited_when_it_ends(steps):
    streaming = chain(*steps)
    streams = [list(streaming.stream(ASKED))]
    streams.append([piece async for piece in streaming.astream(ASKED)])
    for pieces in streams:
        whole, number = added(pieces)
        assert isinstance(whole, AIMessageChunk)
        assert number == len(ANSWER)
        check_cited(whole)
        assert whole.response_metadata["ecs"]["cited"] == [1]


def test_a_chain_that_gives_its_answer_in_one_piece_can_be_streamed():
    at_once = RunnableLambda(lambda given: AIMessage(ANSWER))
    streaming = RunnablePassthrough.assign(answer=at_once) | citations()
    whole, _ = added(streaming.stream(ASKED))
    check_cited(whole)


@pytest.mark.parametrize(("fields", "says"), faults())
async def test_an_answer_is_never_held_back(fields, says, caplog):
    messages = [cited(ANSWER, **fields)]
    result = await citations(**fields).ainvoke({**ASKED, "answer": ANSWER})
    messages.append(result["answer"])
    whole, _ = added(chain(**fields).stream(ASKED))
    messages.append(whole)
    for message in messages:
        assert message.text == ANSWER
        assert says in message.response_metadata["ecs"]["error"]
        assert "annotations" not in str(message.content)
    assert "without citations" in caplog.text
    model = fields["model"]
    if hasattr(model, "progress"):
        model.progress.set()


def test_a_run_is_traced_with_its_outcome():
    events = []
    names = []

    class Recorder(BaseCallbackHandler):
        def on_custom_event(self, name, data, **kwargs):
            events.append((name, data))

        def on_chain_start(self, serialized, inputs, **kwargs):
            names.append(kwargs.get("name"))

    recording = {"callbacks": [Recorder()]}
    citations().invoke({**ASKED, "answer": ANSWER}, recording)
    list(chain().stream(ASKED, recording))
    assert names.count("ECSCitations") == 2
    for name, data in events:
        assert name == "ecs_citations"
        assert data["cited"] == [1]
    assert len(events) == 2


@pytest.mark.parametrize("fields", [{"budget_s": 0}, {"mark": True}, {"model": 3}])
def test_invalid_arguments_are_refused_at_construction(fields):
    with pytest.raises(ConfigurationError):
        ECSCitations(**fields)
