"""Spans as OpenInference names them, read back from an exporter in memory."""

import pytest
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from llama_index.core.schema import NodeWithScore, TextNode
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ecs_plugins.integrations import tracing
from ecs_plugins.langchain import (
    ECSContextMiddleware,
    ECSDocumentCompressor,
    EntropicMemoryMiddleware,
    EntropicMemoryRetriever,
)
from ecs_plugins.llama_index import ECSPostprocessor, EntropicChatMemory
from ecs_plugins.lm import FakeLanguageModel
from tests.integration.scripted_model import FACT, QUESTION, ScriptedModel, call
from tests.integration.shaping_setup import GIVEN_ORDER, QUERY, TEXTS

USER = ("memories", "u1")


@pytest.fixture
def spans(monkeypatch):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return exporter.get_finished_spans


@tool(response_format="content_and_artifact")
def search(query: str):
    """Search."""
    documents = [Document(text) for text in TEXTS]
    return "\n\n".join(TEXTS), documents


def compress(options):
    documents = [Document(text) for text in TEXTS]
    ECSDocumentCompressor(**options).compress_documents(documents, QUERY)


def postprocess(options):
    nodes = [NodeWithScore(node=TextNode(text=text)) for text in TEXTS]
    ECSPostprocessor(**options).postprocess_nodes(nodes, query_str=QUERY)


def act(options):
    shaped = ECSContextMiddleware(ECSDocumentCompressor(**options))
    model = ScriptedModel(replies=[call("search", query=QUERY), "done"])
    create_agent(model, [search], middleware=[shaped]).invoke({"messages": [HumanMessage("go")]})


@pytest.mark.parametrize("shape", [compress, postprocess, act])
def test_shaping_is_a_span_of_a_reranker(shape, spans):
    shape({"model": FakeLanguageModel(), "config": GIVEN_ORDER, "top_n": 1})
    (one,) = spans()
    said = dict(one.attributes)
    assert isinstance(said.pop("reranker.output_documents.0.document.score"), float)
    assert said == {
        "openinference.span.kind": "RERANKER",
        "input.value": QUERY,
        "reranker.query": QUERY,
        "reranker.top_k": 1,
        "reranker.model_name": FakeLanguageModel().name,
        **{f"reranker.input_documents.{n}.document.content": t for n, t in enumerate(TEXTS)},
        "reranker.output_documents.0.document.content": TEXTS[3],
    }


def retrieve(memory):
    EntropicMemoryRetriever(memory=memory, namespace=USER).invoke(QUESTION)


def remember(memory):
    remembering = EntropicMemoryMiddleware(memory, namespace=USER)
    agent = create_agent(ScriptedModel(), [], middleware=[remembering])
    agent.invoke({"messages": [HumanMessage(QUESTION)]})


def chat(memory):
    EntropicChatMemory.from_defaults(memory, namespace=USER).get(QUESTION)


@pytest.mark.parametrize("recall", [retrieve, remember, chat])
@pytest.mark.parametrize("installed", [True, False])
def test_a_recall_is_a_span_of_a_retriever(recall, installed, memory, spans, monkeypatch):
    (name,) = memory.add(FACT, namespace=USER)
    if not installed:
        monkeypatch.setattr(tracing, "_opentelemetry", lambda: None)
    recall(memory)
    assert len(spans()) == installed
    for one in spans():
        said = dict(one.attributes)
        assert 0 < said.pop("retrieval.documents.0.document.score") <= 1
        assert said == {
            "openinference.span.kind": "RETRIEVER",
            "input.value": QUESTION,
            "retrieval.documents.0.document.id": name,
            "retrieval.documents.0.document.content": FACT,
        }


HIDDEN = "__REDACTED__"


@pytest.mark.parametrize(
    ("variable", "value", "hides_input", "hides_output"),
    [
        ("OPENINFERENCE_HIDE_INPUTS", "true", True, False),
        ("OPENINFERENCE_HIDE_INPUT_TEXT", "TRUE", True, False),
        ("OPENINFERENCE_HIDE_OUTPUTS", "true", False, True),
        ("OPENINFERENCE_HIDE_OUTPUT_TEXT", "1", False, True),
        ("OPENINFERENCE_HIDE_INPUTS", "false", False, False),
        ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "false", True, True),
        ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "NO_CONTENT", True, True),
        ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "EVENT_ONLY", True, True),
        ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true", False, False),
        ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY", False, False),
    ],
)
@pytest.mark.parametrize("kind", ["retriever", "reranker"])
def test_the_environment_hides_texts(
    memory, spans, monkeypatch, kind, variable, value, hides_input, hides_output
):
    monkeypatch.setenv(variable, value)
    if kind == "retriever":
        memory.add(FACT, namespace=USER)
        retrieve(memory)
        documents = "retrieval.documents"
    else:
        compress({"model": FakeLanguageModel(), "config": GIVEN_ORDER, "top_n": 1})
        documents = "reranker.output_documents"
    (one,) = spans()
    said = dict(one.attributes)
    assert (said["input.value"] == HIDDEN) is hides_input
    assert (said[f"{documents}.0.document.content"] == HIDDEN) is hides_output
    assert isinstance(said[f"{documents}.0.document.score"], float)
    if hides_input and hides_output:
        shown = " ".join(each for each in said.values() if isinstance(each, str))
        for text in (QUESTION, FACT, QUERY, *TEXTS):
            assert text not in shown
