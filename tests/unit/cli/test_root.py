from typer.testing import CliRunner

from ecs_plugins import __version__
from ecs_plugins.cli import app


def test_the_version_can_be_asked_for() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"ecs-plugins {__version__}\n")
