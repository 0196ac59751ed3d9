"""The command line as a user meets it: in a process of its own, with the bundled model."""

import json
import subprocess
import sys

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
