"""The Python of the README and of the docs runs, from top to bottom of each page.

Nothing is hidden: what a block needs stands above it on the same page.
"""

import json
import re
from pathlib import Path

import pytest

from ecs_plugins.frontier.strategies import STRATEGIES
from ecs_plugins.ranking import RANKERS
from ecs_plugins.shaping import SIGNALS

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def code_of(page: Path) -> list[tuple[int, str]]:
    """Line number and text of every block, in order."""
    text = page.read_text(encoding="utf-8")
    return [(text.count("\n", 0, block.start()) + 1, block[1]) for block in CODE.finditer(text)]


@pytest.fixture
def registries():
    """What a page registers is gone after it."""
    found = (SIGNALS, RANKERS, STRATEGIES)
    before = [dict(registry) for registry in found]
    yield
    for registry, entries in zip(found, before, strict=True):
        registry.clear()
        registry.update(entries)


@pytest.mark.model
@pytest.mark.usefixtures("bundled_lm", "registries")
@pytest.mark.parametrize(
    "page", [page for page in PAGES if code_of(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    for line, code in code_of(page):
        # Padded so that a traceback names the line of the page.
        exec(compile("\n" * line + code, str(page), "exec"), names)


@pytest.mark.model
@pytest.mark.usefixtures("bundled_lm")
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_a_notebook_runs_and_shows_what_it_prints(notebook: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(notebook.parent)
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    names: dict[str, object] = {"__name__": "notebook"}
    for cell in (cell for cell in cells if cell["cell_type"] == "code"):
        exec(compile("".join(cell["source"]), str(notebook), "exec"), names)
        printed = [o["text"] for o in cell["outputs"] if o["output_type"] == "stream"]
        assert bool(capsys.readouterr().out.strip()) == bool("".join(map("".join, printed)).strip())
