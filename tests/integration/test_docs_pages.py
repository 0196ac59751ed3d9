"""Rules of every page: working links, short guides, wrapped lines."""

import re
import sys
from pathlib import Path

import pytest

from ecs_plugins.memory import MemoryConfig
from tests.integration.test_docs import CODE, PAGES, ROOT

DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))
import drawing  # noqa: E402  docs/ is no package
import settings  # noqa: E402
import wrapping  # noqa: E402

GUIDES = sorted([*(DOCS / "guides").glob("*.md"), DOCS / "coming_from.md"])
FENCE = re.compile(r"^```.*?^```\n", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
WORDS_OF_THE_README = 600
LINES_OF_THE_README = 110
LINES_OF_A_GUIDE = 150
BLOCKS_PER_THOUSAND_WORDS = 15
CLICKS = 2
LINE = 110
"""Characters of a line at most; pages are wrapped at 100."""
CELL = 200
"""Characters of a table's cell at most, its links included."""


def prose(page: Path) -> str:
    """Return a page without its blocks of code."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Return the anchors of all headings, like Markdown's table of contents."""
    found = set()
    for heading in HEADING.findall(prose(page)):
        plain = re.sub(r"[^\w\s-]", "", heading).strip().lower()
        found.add(re.sub(r"[-\s]+", "-", plain))
    return found


def links(page: Path) -> list[tuple[Path, str]]:
    """Return the pages and anchors that a page links to, without addresses elsewhere."""
    found = []
    text = INLINE.sub("", prose(page))
    for target in LINK.findall(text):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        path = page
        if name:
            path = (page.parent / name).resolve()
        found.append((path, anchor))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    names = {settings.title(path).lower() for group in settings.GROUPS.values() for path in group}
    for path, anchor in links(page):
        assert path.exists(), path
        known = names if path.suffix == ".py" else anchors(path) if path.suffix == ".md" else ()
        assert not anchor or anchor in known, (path, anchor)


def test_notebooks_link_to_pages_that_are_there() -> None:
    for notebook in (DOCS / "notebooks").glob("*.ipynb"):
        for target in re.findall(r"\]\((\.\./[^)]+)\)", notebook.read_text(encoding="utf-8")):
            page = (notebook.parent / target.partition("#")[0]).resolve()
            assert page.exists() or page == DOCS / "reference" / "settings.md", target


def test_a_flowchart_is_drawn_without_a_script() -> None:
    page = "Before.\n```mermaid\nflowchart TD\n    a --> b\n    b --> c\n    a --> c\n```\n"
    assert drawing.rows([("a", "b"), ("b", "c"), ("a", "c")]) == [["a"], ["b"], ["c"]]
    drawn = drawing.drawn(page)
    arrows = drawn.count('marker-end="url(#tip)"')
    boxes = drawn.count("<rect")
    assert drawn.startswith("Before.\n<svg")
    assert arrows == 3
    assert boxes == 3
    assert "mermaid" not in drawn


def test_wrapping_breaks_prose_and_nothing_else() -> None:
    code = "```python\n" + "word " * 40 + "\n```\n"
    row = "| " + "cell " * 40 + "|\n"
    item = "* " + "word " * 30 + "`code with spaces` and\n  the rest\n"
    page = f"# Title\n\n{'word ' * 20}1. is no item\n\n{code}\n{row}\n{item}"
    new = wrapping.wrapped(page)
    assert code in new
    assert row in new
    assert wrapping.wrapped(new) == new
    assert new.split() == page.split()
    left = new.replace(code, "").replace(row, "")
    lines = left.splitlines()
    longest = max(map(len, lines))
    assert longest <= 110
    items = [line for line in lines if line.startswith("1. ")]
    assert items == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_are_wrapped(page: Path) -> None:
    long = []
    for line in prose(page).splitlines():
        if line.startswith(("|", "    ")):
            continue
        plain = INLINE.sub("", line)
        if len(plain) > LINE:
            long.append(line)
    assert long == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_cell_of_a_table_is_no_paragraph(page: Path) -> None:
    long = []
    for line in prose(page).splitlines():
        if not line.startswith("|"):
            continue
        cells = re.split(r"(?<!\\)\|", line)
        long += [cell for cell in cells if len(cell.strip()) > CELL]
    assert long == []


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_a_guide_is_short_and_has_code(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    words = len(prose(page).split())
    assert len(text.splitlines()) <= LINES_OF_A_GUIDE
    assert 1000 * len(FENCE.findall(text)) / words >= BLOCKS_PER_THOUSAND_WORDS


def test_the_readme_is_short_and_links_to_addresses_and_pictures_only() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(FENCE.sub("", readme).split()) <= WORDS_OF_THE_README
    assert len(readme.splitlines()) <= LINES_OF_THE_README
    paths = [target for target in LINK.findall(readme) if "://" not in target]
    assert all(path.endswith(".png") and (ROOT / path).is_file() for path in paths)


def test_ten_questions_are_answered_within_two_clicks() -> None:
    answered = links(DOCS / "README.md")
    front = (DOCS / "index.md").resolve()
    near = {front}
    for _ in range(CLICKS):
        near |= {path for page in near if page.suffix == ".md" for path, _ in links(page)}
        near = {path for path in near if path.exists()}
    answers = [(path, anchor) for path, anchor in answered if path != front]
    assert len(answers) == 10
    for path, anchor in answers:
        assert path in near, path
        assert begins_with_an_answer(path, anchor), (path, anchor)


def begins_with_an_answer(page: Path, anchor: str) -> bool:
    """Return True if a sentence or code directly follows the heading."""
    lines = iter(page.read_text(encoding="utf-8").splitlines())
    for line in lines:
        heading = HEADING.match(line)
        if heading and (not anchor or anchor in re.sub(r"\W+", "-", heading[1].lower())):
            first = next(line for line in lines if line.strip())
            return not first.startswith(("#", "|", "!"))
    return False


def test_every_setting_has_a_meaning() -> None:
    for group in settings.GROUPS.values():
        for path in group:
            rows = settings.settings(path)
            theirs = [name for name, _, meaning in rows if meaning == settings.THEIRS]
            assert rows, path
            assert set(theirs) <= {"name", "tags", "metadata", "description", "callback_manager"}
    clusters = MemoryConfig().clusters
    assert f"* **`clusters`** (`{clusters}`): Clusters of k-means" in settings.page()


def test_blocks_that_show_output_follow_code() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        languages = [language for language, *_ in CODE.findall(text)]
        assert text.count("```python") == languages.count("python"), page
