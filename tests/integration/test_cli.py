"""The command line as a user meets it: in a process of its own, with the bundled model."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.model

PASSAGES = (
    "Gulls nest on the roof of the harbour office.",
    "The ferry to the island leaves at nine in the morning.",
    "Tickets can be paid in cash only.",
)


def command(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ecs_plugins", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )


@pytest.fixture(scope="module", autouse=True)
def _installed(bundled_lm) -> None:
    """The model is installed, or the tests say how to install it."""


def test_a_pipe_of_passages_is_shaped_and_json_alone_goes_to_standard_output() -> None:
    question = ("shape", "--query", "When does the boat to the island depart?")
    done = command(*question, "-p", "-", "--top-k", "1", "--json", stdin="\n".join(PASSAGES))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["kept"] == [1]
    assert result["tokens"]["after"] < result["tokens"]["before"]


def test_a_false_statement_hurts_the_true_answer() -> None:
    stdin = "The ferry leaves at nine.\nThe ferry leaves at seven.\n"
    options = ("--answer", "at nine", "--json")
    done = command("shape", "-q", "When does the ferry leave?", "-p", "-", *options, stdin=stdin)
    assert done.returncode == 0, done.stderr
    true, false = json.loads(done.stdout)["passages"]
    assert true["verdict"] == "helps"
    assert false["utility"] < true["utility"]


def test_the_demo_runs_and_writes_what_it_measured(tmp_path: Path) -> None:
    done = command("demo", "--limit", "2", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "demo.json").read_text(encoding="utf-8"))
    assert set(results["evidence"]["methods"]) == {"TF-IDF", "BM25", "dense", "hybrid", "ECS"}
    kept = list(results["frameworks"]["kept"].values())
    assert len(kept) == 3
    assert kept[0] == kept[1] == kept[2]
    assert (tmp_path / "evidence.png").stat().st_size > 10_000
