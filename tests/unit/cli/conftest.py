"""The command line in this process, with a fake model."""

import io
import sys

import pytest

from ecs_plugins import cli
from ecs_plugins.cli import model as models
from ecs_plugins.lm.fake import FakeLanguageModel


@pytest.fixture
def made() -> list[dict]:
    """Return the arguments of the last command's models."""
    return []


@pytest.fixture
def run(made, monkeypatch, capsys):
    """Run a command: (exit status, stdout, stderr)."""

    def load_model(name: str | None, **how: str) -> FakeLanguageModel:
        made.append(how)
        return FakeLanguageModel()

    def run(*arguments, stdin: bytes = b"") -> tuple[int, str, str]:
        made.clear()
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setattr(sys, "argv", ["ecs-plugins", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        monkeypatch.setattr(models, "load_model", load_model)
        with pytest.raises(SystemExit) as caught:
            cli.main()
        shown = capsys.readouterr()
        return int(caught.value.code or 0), shown.out, shown.err

    return run
