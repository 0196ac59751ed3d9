"""The Python of the README and of the docs runs, from top to bottom of each page.

Nothing is hidden: what a block needs stands above it on the same page, and a block of text right
below it is what it prints.
"""

import json
import re
from pathlib import Path

import pytest

from ecs_plugins.frontier.strategies import STRATEGIES
from ecs_plugins.ranking.registry import RANKERS
from ecs_plugins.shaping import ContextShaper, ShapingConfig
from ecs_plugins.shaping.signals import SIGNALS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
NOTEBOOKS = sorted(DOCS.glob("notebooks/*.ipynb"))
CODE = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)


def code_of(page: Path) -> list[tuple[int, str, str | None]]:
    """Line number, text and output of every block, in order; None where none is shown."""
    text = page.read_text(encoding="utf-8")
    blocks = []
    for block in CODE.finditer(text):
        lines_before = text.count("\n", 0, block.start())
        blocks.append((lines_before + 1, block[1], block[2]))
    return blocks


PAGES_WITH_CODE = [page for page in PAGES if code_of(page)]


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
    for line, code, output in code_of(page):
        # Padded so that a traceback names the line of the page.
        padded = "\n" * line + code
        compiled = compile(padded, str(page), "exec")
        exec(compiled, names)
        printed = capsys.readouterr().out
        assert output is None or printed == output, line


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
        assert bool(printed.strip()) == bool(shown.strip())
