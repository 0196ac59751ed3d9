import pytest

from benchmarks.house import BUDGETS, ROOT, House


@pytest.fixture(scope="module")
def house() -> House:
    return House()


@pytest.fixture(scope="module")
def figures(house) -> dict[str, int]:
    return house.figures()


@pytest.mark.parametrize("budget", BUDGETS)
def test_the_house_keeps_its_budgets(figures, budget):
    assert figures[budget] <= BUDGETS[budget]


def test_the_drawing_in_the_docs_is_that_of_the_imports(house):
    assert house.drawing() in (ROOT / "docs" / "architecture.md").read_text("utf-8")
