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


def test_the_memorys_algorithm_its_store_and_its_verbs_are_apart(house):
    room = "ecs_plugins.memory."
    verbs = {f"{room}{name}" for name in ("entropic", "admin", "sleep")}
    inside = [each for each in house.imports if each.source.startswith(room)]
    assert {f"{room}energy", f"{room}store.search", *verbs} <= {each.source for each in inside}
    for each in inside:
        stored = each.source.startswith(f"{room}store")
        assert stored or each.target.split(".")[0] not in ("sqlite3", "faiss"), each
        if each.source not in verbs:
            assert each.target not in verbs, each
            assert stored or not each.target.startswith(f"{room}store"), each
