import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from ecs_plugins import __version__
from ecs_plugins.cli import app


def test_the_version_can_be_asked_for() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"ecs-plugins {__version__}\n")


def every_command(command, names=("ecs-plugins",)):
    yield names
    for name, below in getattr(command, "commands", {}).items():
        yield from every_command(below, (*names, name))


@pytest.mark.parametrize("names", list(every_command(get_command(app))), ids=" ".join)
def test_every_help_has_an_example(names) -> None:
    shown = CliRunner().invoke(app, [*names[1:], "--help"], env={"COLUMNS": "100"}).stdout
    usage, _, rest = shown.partition(" ".join(names))
    assert "Usage" in usage
    assert " ".join(names) in rest


MAIN = [sys.executable, "-c", "from ecs_plugins.cli import main; main()", "--version"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(MAIN, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert "No space left" in ended.stderr


@pytest.mark.slow
def test_a_closed_pipe_is_no_error_to_read_about() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(MAIN, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, "")


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_closed_stream_is_no_traceback(tmp_path, closed) -> None:
    command = f"exec {sys.executable} -m ecs_plugins memory verify --db nowhere.db {closed}"
    ended = subprocess.run(
        ["/bin/sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "shown"), [("shape", "ecs-plugins shape --query"), ("model", "install")]
)
def test_help_loads_nothing_heavy(command: str, shown: str) -> None:
    code = (
        f"import sys; sys.argv = ['ecs-plugins', {command!r}, '--help']\n"
        "from ecs_plugins.cli import main\n"
        "try: main()\n"
        "finally: print([m for m in ('torch', 'scipy', 'sklearn') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown in out.stdout
    assert out.stdout.rstrip().endswith("[]")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ECS_PLUGINS_CACHE", str(tmp_path))


@pytest.mark.parametrize(
    ("command", "status", "out", "err"),
    [
        ("remove", 0, "", "Nothing was installed"),
        ("install --from no.whl", 1, "", "is not a file"),
        ("install --from /etc/passwd", 1, "", "ends with .whl or .gguf"),
    ],
)
def test_a_missing_model_is_said_in_one_line_on_stderr(run, cache, command, status, out, err):
    ended, stdout, stderr = run("model", *command.split())
    assert ended == status
    assert out in stdout
    assert stdout == "" or out
    assert len(stderr.splitlines()) == 1
    assert err in stderr


def test_installing_a_wrong_file_says_that_its_digest_is_wrong(run, cache, tmp_path):
    (tmp_path / "other.gguf").write_bytes(b"GGUF")
    status, _, err = run("model", "install", "--from", tmp_path / "other.gguf")
    assert status == 1
    assert "SHA-256" in err.splitlines()[-1]
