import subprocess
import sys

import pytest

from benchmarks.house.figures import figures
from benchmarks.house.imports import House
from benchmarks.house.limits import LIMITS, STAYS
from benchmarks.house.source import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def house() -> House:
    return House()


@pytest.fixture(scope="module")
def measures(house) -> dict[str, float]:
    return figures(house)


@pytest.fixture(scope="module")
def stays() -> dict[str, int]:
    """Measured in a process of its own: what other tests have loaded is passed in silence here."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.house.stays"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in printed.splitlines()]
    return {name: int(count) for name, count in rows}


@pytest.mark.parametrize("limit", LIMITS)
def test_the_house_keeps_its_limits(measures, limit):
    assert measures[limit] <= LIMITS[limit]


@pytest.mark.parametrize("operation", STAYS)
def test_an_operation_changes_file_no_more_often_than_it_may(stays, operation):
    assert stays[operation] <= STAYS[operation]


def test_the_drawing_in_the_docs_is_that_of_the_imports(house):
    assert house.drawing() in (ROOT / "docs" / "architecture.md").read_text("utf-8")


def test_the_memorys_algorithm_its_store_and_its_verbs_are_apart(house):
    room = "ecs_plugins.memory."
    verbs = {
        f"{room}{name}" for name in ("entropic", "reading", "drafts", "adding", "admin", "sleep")
    }
    inside = [each for each in house.imports if each.source.startswith(room)]
    assert {f"{room}energy", f"{room}store.search", *verbs} <= {each.source for each in inside}
    for each in inside:
        stored = each.source.startswith(f"{room}store")
        assert stored or each.target.split(".")[0] not in ("sqlite3", "faiss"), each
        if each.source not in verbs:
            assert each.target not in verbs, each
            assert stored or not each.target.startswith(f"{room}store"), each
