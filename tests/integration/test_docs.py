"""The code of the README and of the docs runs, from top to bottom of each page.

Nothing is hidden: a block needs only blocks above it on the same page, and a block of text right
below it is its output. Commands run where their input is at hand; all others are parsed. Blocks
marked ``py`` need a network or other packages: calls of this package in them must fit signatures.
"""

import ast
import inspect
import json
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import ecs_plugins
from ecs_plugins.cli import app
from ecs_plugins.frontier.strategies import STRATEGIES
from ecs_plugins.ranking.registry import RANKERS
from ecs_plugins.shaping import ContextShaper, ShapingConfig
from ecs_plugins.shaping.signals import SIGNALS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
NOTEBOOKS = sorted(DOCS.glob("notebooks/*.ipynb"))
CODE = re.compile(
    r"^```(python|py|bash|sh|json)\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL
)
READ = ("--data", "--passages", "--db", "--ledger", "--frontier", "report", "import")
"""Options and commands after which a file is named that is read."""
LASTING = ("serve", "mcp", "play", "model", "calibrate", "diagnose")
"""Commands that serve until they are stopped, download, or take minutes."""


def code_of(page: Path) -> list[tuple[int, str, str, str | None]]:
    """Line number, language, text and output of every block; None where no output is shown."""
    text = page.read_text(encoding="utf-8")
    blocks = []
    for block in CODE.finditer(text):
        lines_before = text.count("\n", 0, block.start())
        blocks.append((lines_before + 1, block[1], block[2], block[3]))
    return blocks


PAGES_WITH_CODE = [page for page in PAGES if code_of(page)]


def commands_of(text: str) -> list[list[str]]:
    """Arguments of every call of the command line in a block of bash."""
    words = [shlex.split(line, comments=True) for line in text.replace("\\\n", " ").splitlines()]
    return [line[line.index("ecs-plugins") + 1 :] for line in words if "ecs-plugins" in line]


def check_command(arguments: list[str]) -> None:
    """Parse a command, and run it if all files that it reads are there."""
    command = get_command(app)
    name, *rest = arguments
    context = command.make_context("ecs-plugins", [name], resilient_parsing=True)
    command = command.get_command(context, name)
    if hasattr(command, "commands"):
        name, *rest = rest
        command = command.commands[name]
    assert command is not None, arguments
    command.make_context(name, list(rest))
    pairs = pairwise(arguments)
    read = [word for before, word in pairs if before in READ and not word.startswith("--")]
    if arguments[0] not in LASTING and read and all(Path(word).is_file() for word in read):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output


def check_calls(code: str, names: dict[str, object]) -> None:
    """Check that calls of this package fit the signatures."""
    known = {**{name: getattr(ecs_plugins, name) for name in ecs_plugins.__all__}, **names}
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call):
            continue
        first, *attributes = ast.unparse(node.func).split(".")
        called = known.get(first)
        for attribute in attributes:
            called = None if called is None else getattr(called, attribute)
        if called is not None and callable(called):
            keywords = {each.arg: None for each in node.keywords if each.arg}
            inspect.signature(called).bind(*node.args, **keywords)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def registries():
    """Remove the registrations of a page after it."""
    found = (SIGNALS, RANKERS, STRATEGIES)
    before = [dict(registry) for registry in found]
    yield
    for registry, entries in zip(found, before, strict=True):
        registry.clear()
        registry.update(entries)


@pytest.mark.model
@pytest.mark.usefixtures("bundled_lm", "registries")
@pytest.mark.parametrize("page", PAGES_WITH_CODE, ids=name_of)
def test_the_code_of_a_page_prints_the_shown_output(
    page: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    for line, language, code, output in code_of(page):
        if language == "json":
            for server in json.loads(code).get("mcpServers", {}).values():
                check_command(server["args"])
        elif language == "py":
            check_calls(code, names)
        elif language == "python":
            # Padded so that a traceback names the line of the page.
            padded = "\n" * line + code
            compiled = compile(padded, str(page), "exec")
            exec(compiled, names)
            printed = capsys.readouterr().out
            assert output is None or printed == output, line
        else:
            for arguments in commands_of(code):
                check_command(arguments)


def test_unknown_options_and_arguments_in_a_page_are_noticed() -> None:
    with pytest.raises(Exception, match="No such option"):
        check_command(["report", "--legder", "reuse.db"])
    with pytest.raises(TypeError, match="sorce"):
        check_calls("ContextShaper(model, sorce=1)", {})


@pytest.mark.model
def test_the_picture_shows_the_models_output(bundled_lm) -> None:
    passages = (ROOT / "docs" / "figures" / "shape_page.txt").read_text("utf-8").splitlines()
    shaper = ContextShaper(bundled_lm, ShapingConfig(top_k=1))
    shaped = shaper.shape("When does the last boat leave on Sunday?", passages)
    assert "18:40" in shaped.text
    assert [str(verdict.verdict) for verdict in shaped.verdicts] == ["selected"] + ["neutral"] * 4


@pytest.mark.model
@pytest.mark.usefixtures("bundled_lm")
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name_of)
def test_a_notebook_shows_its_output(notebook: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(notebook.parent)
    written = json.loads(notebook.read_text(encoding="utf-8"))
    cells = [cell for cell in written["cells"] if cell["cell_type"] == "code"]
    names: dict[str, object] = {"__name__": "notebook"}
    for cell in cells:
        source = "".join(cell["source"])
        compiled = compile(source, str(notebook), "exec")
        exec(compiled, names)
        shown = ""
        for output in cell["outputs"]:
            if output["output_type"] == "stream":
                shown += "".join(output["text"])
        printed = capsys.readouterr().out
        assert in_words(printed) == in_words(shown)


def in_words(text: str) -> list[str]:
    """Words of an output, with every number as 0."""
    return re.sub(r"[-+]?\d[\d.,]*", "0", text).split()
