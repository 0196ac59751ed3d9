"""A field that recollections gain arrives in every adapter."""

import json
from dataclasses import dataclass, fields

import pytest
from typer.testing import CliRunner

from ecs_plugins.cli import app
from ecs_plugins.common.aio import bridged
from ecs_plugins.langchain import EntropicMemoryRetriever
from ecs_plugins.memory import EntropicMemory, Memory
from tests.integration.scripted_model import FACT, QUESTION

USER = ("default",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Felt(Memory):
    """A recollection with a field more."""

    mood: str = "glad"


@pytest.fixture
def memory(memory, monkeypatch):
    recall = EntropicMemory.recall

    def recall_felt(self, *args, **options):
        plain = recall(self, *args, **options)
        names = [each.name for each in fields(Memory)]
        felt = []
        for each in plain:
            values = {name: getattr(each, name) for name in names}
            felt.append(Felt(**values))
        return felt

    monkeypatch.setattr(EntropicMemory, "recall", recall_felt)
    monkeypatch.setattr(EntropicMemory, "arecall", bridged(recall_felt))
    memory.add(FACT, namespace=USER)
    return memory


def test_it_is_in_the_metadata_of_a_retrievers_document(memory):
    retriever = EntropicMemoryRetriever(memory=memory, namespace=USER)
    (document,) = retriever.invoke(QUESTION)
    assert document.metadata["mood"] == "glad"
    renamed = {"id", "text", "score", "metadata"}
    names = {each.name for each in fields(Memory)}
    assert names - renamed <= set(document.metadata)


def test_it_is_on_the_command_line(memory, monkeypatch):
    monkeypatch.setattr("ecs_plugins.cli.memory._open", lambda *_: memory)
    monkeypatch.setattr("ecs_plugins.cli.memory._require_file", lambda _: None)
    command = ["memory", "recall", "--db", "m.db", QUESTION]
    shown = CliRunner().invoke(app, [*command, "--json"])
    (found,) = json.loads(shown.stdout)
    assert found["mood"] == "glad"
