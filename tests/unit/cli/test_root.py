import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ecs_plugins import __version__
from ecs_plugins.cli import app


def test_the_version_can_be_asked_for() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"ecs-plugins {__version__}\n")


MAIN = [sys.executable, "-c", "from ecs_plugins.cli import main; main()", "--version"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(MAIN, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert "No space left" in ended.stderr


def test_a_closed_pipe_is_no_error_to_read_about() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(MAIN, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "shown"), [("shape", "ecs-plugins shape --query"), ("model", "install")]
)
def test_help_loads_nothing_heavy(command: str, shown: str) -> None:
    code = (
        f"import sys; sys.argv = ['ecs-plugins', {command!r}, '--help']\n"
        "from ecs_plugins.cli import main\n"
        "try: main()\n"
        "finally: print([m for m in ('torch', 'numpy', 'sklearn') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown in out.stdout
    assert out.stdout.rstrip().endswith("[]")
