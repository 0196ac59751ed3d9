import json
import sys

import pytest
from typer.testing import CliRunner

from ecs_plugins.cli import app
from ecs_plugins.cli import model as models
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.lm.fake import FakeLanguageModel
from ecs_plugins.ranking.embedder import FakeEmbedder

from .conftest import point

runner = CliRunner()


def run(*arguments):
    return runner.invoke(app, list(map(str, arguments)), catch_exceptions=True)


@pytest.fixture
def artefact(tmp_path, measured_frontier):
    return measured_frontier.save(tmp_path / "frontier.json")


def test_route_prints_the_choice_the_numbers_and_why_not(artefact):
    done = run("route", "--frontier", artefact, "--reuse", 40, "--target-f1", 0.65)
    assert done.exit_code == 0, done.output
    assert done.output.startswith("memory(ratio=0.25)")
    assert "measured as an upper bound" in done.output


@pytest.mark.parametrize("asked", ["--target-f1=0.6", "--weight=0.95", "--budget=3000"])
def test_a_decision_between_long_names_is_told_in_eighty_columns(tmp_path, asked):
    known = {"ratio": 0.25, "signal": "query_likelihood+bm25"}
    one = point("memory_compression+ecs", 0.7, 900, 201, depth=1, **known)
    two = point("memory_compression+ecs", 0.8, 1800, 202, depth=2, **known)
    full = point("full_context", 0.61, 0, 2000)
    path = EfficiencyFrontier([one, two, full]).save(tmp_path / "f")
    done = run("route", "--frontier", path, "--reuse", 40, asked)
    assert done.exit_code == 0, done.output
    assert max(map(len, done.output.splitlines())) <= 80


@pytest.mark.slow
def test_report_writes_beside_the_frontier(artefact):
    done = run("report", artefact)
    assert done.exit_code == 0, done.output
    assert (artefact.parent / "frontier.report" / "frontier.html").exists()


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "data.jsonl"
    rows = [
        {
            "question": f"What colour is door {k}?",
            "answer": ["red", "blue"][k % 2],
            "documents": [f"Door {n} is {['red', 'blue'][n % 2]}. Nothing else." for n in range(6)],
            "supporting": [k],
        }
        for k in range(6)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def calibrating(questions, out, *more):
    """The arguments of a calibration of full context and two sentences by BM25."""
    few = ["--only", "full_context", "--only", "bm25(depth=2)"]
    given = ["calibrate", "--data", questions, "--out", out, *few, *more]
    return list(map(str, given))


def answer(prompt):
    context, _, question = prompt.partition("\n\nQuestion: ")
    door = question.split("?")[0].removeprefix("What colour is ").capitalize()
    return context.partition(f"{door} is ")[2].partition(".")[0] or "unknown"


@pytest.mark.slow
def test_calibrate_then_route(tmp_path, questions, monkeypatch):
    model = FakeLanguageModel(replies=answer)
    monkeypatch.setattr(models, "load_model", lambda name, **how: model)
    monkeypatch.setattr("ecs_plugins.ranking.embedder.default_embedder", FakeEmbedder)
    out = tmp_path / "f.json"
    names = ("tfidf_query", "dense(depth=1)", "memory_compression", "ecs")
    more = [part for name in names for part in ("--only", name)]
    arguments = calibrating(questions, out, *more)
    done = run(*arguments)
    assert done.exit_code == 0, done.output
    frontier = EfficiencyFrontier.load(out)
    assert frontier.provenance.models["scorer"] == "fake"
    assert frontier.get("tfidf_query", depth=2).f1 == 1.0
    assert max(map(len, done.stdout.partition("\n\n")[0].splitlines())) <= 80
    assert "ecs(depth=1, signal=query_likelihood+bm25)" in done.output
    routed = run("route", "--frontier", out, "--reuse", 1, "--target-f1", 1.0)
    assert "F1 1.000" in routed.output
    # Again: everything is in the journal, so no model is asked.
    before = len(model.prompts)
    assert run(*arguments).exit_code == 0
    assert len(model.prompts) == before


@pytest.mark.slow
def test_calibrate_loads_on_the_device_and_in_the_dtype_asked_for(tmp_path, questions, monkeypatch):
    asked = []

    def load_model(name, **how):
        asked.append((name, how))
        return FakeLanguageModel(replies=answer)

    monkeypatch.setattr(models, "load_model", load_model)
    out = tmp_path / "f.json"
    arguments = calibrating(questions, out)
    done = run(*arguments, "--device", "cpu", "--dtype", "bfloat16")
    assert done.exit_code == 0, done.output
    assert asked == [(None, {"device": "cpu", "dtype": "bfloat16"})]
    assert EfficiencyFrontier.load(out).provenance.settings["dtype"] == "bfloat16"
    assert isinstance(run(*arguments).exception, ConfigurationError)  # journal of another dtype


OWN = """
from langchain_core.language_models import FakeListChatModel

class Chat(FakeListChatModel):
    model: str = "own-chat"

chat = Chat(responses=["red"])
number = 3

def make():
    return chat

def broken():
    raise RuntimeError("no key")
"""


@pytest.fixture
def own_models(tmp_path, monkeypatch):
    (tmp_path / "own_models.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(models, "load_model", lambda *_, **__: FakeLanguageModel())
    yield
    sys.modules.pop("own_models", None)


@pytest.mark.parametrize("attribute", ["chat", "make"])
def test_calibrate_with_a_model_of_the_users_own_module(tmp_path, questions, own_models, attribute):
    out = tmp_path / "f.json"
    asked = ("--only", "memory_compression", "--answer-model", f"own_models:{attribute}")
    done = run(*calibrating(questions, out, *asked))
    assert done.exit_code == 0, done.output
    frontier = EfficiencyFrontier.load(out)
    assert frontier.provenance.models["answer"] == "own-chat"
    assert frontier.get("full_context").f1 == 0.5
    assert frontier.get("memory_compression", ratio=0.5).stage1 > 0


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("own_models", "module:attribute"),
        ("own_models:missing", "missing"),
        ("no_such_module:chat", "no_such_module"),
        ("own_models:broken", "no key"),
        ("own_models:number", "own_models:number"),
    ],
)
def test_an_answer_model_that_cannot_be_had_is_refused(
    tmp_path, questions, own_models, path, message
):
    done = run(
        "calibrate", "--data", questions, "--out", tmp_path / "f.json", "--answer-model", path
    )
    assert isinstance(done.exception, ConfigurationError)
    assert message in str(done.exception)


@pytest.mark.parametrize("bad", ["--only=bm52", "--only=bm25(depth=3)", "--batch-size=0"])
def test_calibrate_refuses_bad_settings_before_a_model_is_loaded(
    tmp_path, questions, monkeypatch, bad
):
    monkeypatch.setattr(models, "load_model", lambda *_, **__: pytest.fail("a model was loaded"))
    done = run("calibrate", "--data", questions, "--out", tmp_path / "f.json", bad)
    assert isinstance(done.exception, ConfigurationError)


def test_route_counts_in_money_with_a_price_list(artefact, tmp_path):
    prices = tmp_path / "prices.json"
    prices.write_text('{"unit": "USD", "answer": {"input": 2, "output": 8}}')
    arguments = ["route", "--frontier", artefact, "--reuse", 1, "--target-f1", 0.6]
    routed = json.loads(run(*arguments, "--prices", prices, "--json").output)
    tokens = json.loads(run(*arguments, "--json").output)
    decision = EfficiencyFrontier.load(artefact).decide(reuse=1, target_f1=0.6)
    assert tokens == decision.to_dict()
    assert routed["unit"] == "USD"
    assert routed["effective"] == pytest.approx(2e-6 * tokens["effective"])
