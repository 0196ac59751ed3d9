"""The agent examples run as they stand."""

import asyncio
import importlib.util
import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a script from its folder and return its output."""
    monkeypatch.syspath_prepend(EXAMPLES)

    def output(name: str, **constants) -> str:
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for constant, value in constants.items():
            monkeypatch.setattr(module, constant, value)
        done = module.main()
        if asyncio.iscoroutine(done):
            asyncio.run(done)
        return capsys.readouterr().out

    return output


@pytest.fixture
def local_chat(bundled_lm, embedder):
    pytest.importorskip("langchain_huggingface", reason="pip install langchain-huggingface")


@pytest.mark.slow
def test_the_llama_index_example_recalls_and_forgets(run, embedder):
    out = run("llama_index_agent_memory")
    assert out.count("it answers: In Tarrow.") == 2
    assert out.rstrip().endswith("it answers: I do not know yet.")


@pytest.mark.model
@pytest.mark.usefixtures("local_chat")
def test_the_agent_with_memory_reads_the_fact_and_not_a_strangers(run):
    question = "Where does my sister keep her bees?\n"
    ada, adam, forgotten = run("langgraph_agent_with_memory").split(question)[1:]
    assert "Quilla keeps bees in Tarrow" in ada
    assert "Quilla" not in adam.split("ada is forgotten")[0]
    assert "recalled_notes" not in forgotten


@pytest.mark.model
@pytest.mark.usefixtures("local_chat")
def test_the_shaped_agent_reads_fewer_passages(run):
    out = run("langchain_middleware")
    assert "everything: the model reads 8 passages" in out
    assert "shaped: the model reads 2 passages" in out


@pytest.mark.model
@pytest.mark.usefixtures("bundled_lm", "embedder")
@pytest.mark.parametrize(
    ("example", "package"),
    [
        ("langchain_local_chat", "langchain_huggingface"),
        ("llama_index_local_llm", "llama_index.llms.huggingface"),
    ],
)
def test_the_scoring_weights_also_answer(run, example, package):
    pytest.importorskip(package, reason="the framework's package for Hugging Face models")
    out = run(example)
    assert "kept: Agnes Bright" in out
    assert "Agnes" in out.partition("answer:")[2]
    assert "<|im_start|>" not in out


@pytest.mark.model
@pytest.mark.usefixtures("bundled_lm")
def test_the_router_prepares_for_a_context_that_is_asked_often(run):
    out = run("rag_router", DOCUMENTS=("d03",))  # one of its four
    _, once, often, within, _ = out.split("\n\n")
    assert "memory_compression" not in once
    assert "once: forecast 0 tokens, spent 0\n" in once
    assert "memory_compression(ratio=0.1)" in often
    prepared = re.search(r"once: forecast ([1-9]\d*) tokens, spent (\d+)\n", often)
    assert prepared[1] == prepared[2]
    assert all("->" in shown for shown in (once, often, within))


@pytest.mark.parametrize("example", ["own_chains", "own_engines"])
def test_own_chains_are_measured_and_chosen_by_how_often_a_context_is_asked(run, example):
    once, often = run(example).splitlines()
    assert once.startswith("1 top {'stage1': 0.0,")
    assert often.startswith("40 notes {'stage1': 20")
    assert "'stage2': 0.0" not in once + often
    script = (EXAMPLES / f"{example}.py").read_text(encoding="utf-8")
    assert len(script.splitlines()) <= 45
