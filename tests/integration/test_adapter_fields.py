"""Refusals of every adapter at construction: unknown fields, bad values, no namespace."""

import pytest
from langchain_core.documents import Document

from ecs_plugins.errors import ConfigurationError, EcsPluginsError, InvalidInputError
from ecs_plugins.integrations.recall import RecallOptions
from ecs_plugins.langchain import (
    ECSContextMiddleware,
    ECSDocumentCompressor,
    EntropicChatMessageHistory,
    EntropicMemoryMiddleware,
    EntropicMemoryRetriever,
)
from ecs_plugins.langgraph import EntropicStore
from ecs_plugins.llama_index import ECSPostprocessor, EntropicChatMemory, EntropicMemoryBlock
from ecs_plugins.lm import FakeLanguageModel
from ecs_plugins.ranking.embedder import FakeEmbedder

USER = ("memories", "u1")


def chat_memory(memory, **fields):
    made = EntropicChatMemory.from_defaults(memory, **fields)
    made.get_all()
    return made


def history(memory, session_id="s1", **fields):
    return EntropicChatMessageHistory(memory, session_id=session_id, **fields)


REMEMBERING = {
    "history": history,
    "middleware": EntropicMemoryMiddleware,
    "retriever": lambda memory, **fields: EntropicMemoryRetriever(memory=memory, **fields),
    "block": lambda memory, **fields: EntropicMemoryBlock(memory=memory, **fields),
    "chat memory": chat_memory,
    "options": lambda memory, namespace, **fields: RecallOptions(also=(namespace,), **fields),
}
MAKE = REMEMBERING | {
    "store": lambda memory, namespace, **fields: EntropicStore(memory, **fields),
    "shaping": lambda memory, namespace, **fields: ECSContextMiddleware(**fields),
}


@pytest.mark.parametrize(
    ("make", "field", "meant"),
    [
        ("retriever", "treshold", "threshold"),
        ("block", "treshold", "threshold"),
        ("chat memory", "sesion_id", "session_id"),
        ("options", "treshold", "threshold"),
    ],
)
def test_an_unknown_field_is_refused_by_its_name_and_the_nearest_known_one(
    make, field, meant, memory
):
    with pytest.raises(ConfigurationError, match=rf"'{field}'; did you mean {meant}\?"):
        MAKE[make](memory, namespace=USER, **{field: 1})


@pytest.mark.parametrize(
    ("make", "field"),
    [
        ("middleware", {"on_error": "ignore"}),
        ("middleware", {"remember": ("tool",)}),
        ("retriever", {"k": 0}),
        ("retriever", {"threshold": 2}),
        ("block", {"max_tokens": 0}),
        ("chat memory", {"token_limit": 0}),
        ("chat memory", {"session_id": ""}),
        ("history", {"session_id": ""}),
        ("options", {"k": 0}),
        ("options", {"threshold": 1.5}),
        ("options", {"max_tokens": 0}),
        ("options", {"filter": {"n": {"$near": 1}}}),
        ("shaping", {"tools": "search"}),
    ],
)
def test_a_value_that_cannot_be_used_is_refused(make, field, memory):
    with pytest.raises(EcsPluginsError):
        MAKE[make](memory, namespace=USER, **field)


@pytest.mark.parametrize("namespace", ["u1", (), ("",), (1,)])
@pytest.mark.parametrize("make", REMEMBERING)
def test_a_namespace_must_be_a_tuple_of_labels(make, namespace, memory):
    with pytest.raises(EcsPluginsError, match=r"namespace|labels"):
        REMEMBERING[make](memory, namespace=namespace)


def test_a_namespace_is_mandatory_and_a_label_mixes_no_field_with_text(memory):
    with pytest.raises(EcsPluginsError, match="label of its own"):
        EntropicMemoryMiddleware(memory, namespace=("user-{user_id}",))
    with pytest.raises(ConfigurationError, match="namespace"):
        EntropicChatMemory.from_defaults(memory)


@pytest.mark.parametrize("kind", [ECSDocumentCompressor, ECSPostprocessor])
@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"config": {"signal": "answer_shift"}}, "needs an answer"),
        ({"threshold": 0.1}, "nats of a known answer"),
    ],
)
def test_an_answer_that_could_not_be_used_is_refused_when_an_object_is_made(kind, fields, says):
    with pytest.raises(ConfigurationError, match=says):
        kind(model=FakeLanguageModel(), embedder=FakeEmbedder(), **fields)


def test_a_function_that_returns_no_answer_is_told_so():
    compressor = ECSDocumentCompressor(
        model=FakeLanguageModel(), embedder=FakeEmbedder(), answer=lambda query: ...
    )
    with pytest.raises(InvalidInputError, match="Ellipsis"):
        compressor.compress_documents([Document("The ferry leaves at nine.")], "When?")
