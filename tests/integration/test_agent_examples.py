"""The agent examples run as they stand."""

import asyncio
import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_llama_index_example_recalls_and_forgets(capsys, embedder):
    asyncio.run(load("llama_index_agent_memory").main())
    out = capsys.readouterr().out
    assert out.count("it answers: In Tarrow.") == 2
    assert out.rstrip().endswith("it answers: I do not know yet.")


@pytest.mark.model
def test_the_agent_with_memory_reads_the_fact_and_not_a_strangers(capsys, bundled_lm, embedder):
    load("langgraph_agent_with_memory").main()
    ada, adam, forgotten = capsys.readouterr().out.split("Where does my sister keep her bees?\n")[
        1:
    ]
    assert "Quilla keeps bees in Tarrow" in ada
    assert "Quilla" not in adam.split("ada is forgotten")[0]
    assert "recalled_notes" not in forgotten


@pytest.mark.model
def test_the_shaped_agent_reads_fewer_passages(capsys, bundled_lm, embedder):
    load("langchain_middleware").main()
    out = capsys.readouterr().out
    assert "everything: the model reads 8 passages" in out
    assert "shaped: the model reads 2 passages" in out
