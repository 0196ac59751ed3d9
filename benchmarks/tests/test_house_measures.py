"""What `make house` and `make mutants` count."""

import pytest

from benchmarks.house import mutants, source
from benchmarks.house.covering import Covering
from benchmarks.house.stays import stays

CODE = '''"""Of the module."""

LIMIT = 3
"""Of the attribute."""


class Shelf:
    """Of the class."""

    def pick(self, books, by=None):
        """Of the method."""
        # A comment.
        if by and books or LIMIT:
            return [book for book in books if book]
        return None
'''


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "shelf.py").write_text(CODE, "utf-8")
    monkeypatch.setattr(source, "ROOT", tmp_path)
    (file,) = source.read_folder("room")
    return file


def test_docstrings_and_comments_are_no_code(shelf):
    assert shelf.lines == 15
    assert shelf.code == 6
    assert shelf.tokens == 37
    assert source.density([shelf]) == 37 / 6


def test_every_way_through_a_function_counts(shelf):
    (function,) = shelf.functions
    assert function.name == "room.shelf.Shelf.pick"
    # One; the if; two operands behind the first; the comprehension and its condition.
    assert function.complexity == 6
    assert source.functions_above([shelf], 5) == {function.name: 6}
    assert source.functions_above([shelf], 6) == {}


def test_a_call_that_stays_in_one_file_changes_file_once():
    from ecs_plugins.tokens import nested

    assert stays(lambda: nested({})) == 1
    assert stays(lambda: None) == 0


@pytest.mark.parametrize("room", mutants.ROOMS, ids=lambda room: room.name)
def test_every_room_that_is_mutated_and_its_tests_exist(room):
    for name in (*room.files, room.tests):
        assert (source.ROOT / name).exists()


def test_annotations_are_not_mutated(tmp_path):
    file = tmp_path / "typed.py"
    file.write_text("def half(x: int | None) -> float | None:\n    return x | 1\n", "utf-8")
    spans = mutants._annotation_spans(file)
    text = file.read_text("utf-8").splitlines()
    assert sorted(text[a[0] - 1][a[1] : b[1]] for a, b in spans) == ["float | None", "int | None"]


def test_of_a_difference_the_changed_lines_are_shown():
    shown = mutants._changed_lines(
        "--- a/x\n+++ b/x\n@@ -1 +1 @@\n def f():\n-    a\n+    b\n-c\n+d"
    )
    assert shown == "-    a\n+    b\n-c\n+d"


COVERED = """
LIMIT = 3
def longer(text):
    if (
        len(text)
        > LIMIT
    ):
        return True
    return False
"""


@pytest.fixture
def covered(tmp_path):
    """Makes what tests execute of a file, and names the file."""
    file = tmp_path / "covered.py"
    file.write_text(COVERED, "utf-8")
    lines = {"4": [0, 1], "5": [0, 1], "8": [0], "9": [1]}

    def covered_(everywhere=(), imported=()):
        seconds = {"short": 0.2, "long": 0.1, "apart": 0.3}
        return Covering(seconds, everywhere, {str(file): lines}, {str(file): imported}), str(file)

    return covered_


@pytest.mark.parametrize(
    ("line", "tests"),
    [
        (2, ["long", "short", "apart"]),
        (3, ["long", "short", "apart"]),
        (6, ["long", "short"]),
        (8, ["short"]),
        (9, ["long"]),
    ],
    ids=["constant", "signature", "rest of a condition", "branch", "end"],
)
def test_a_fault_is_judged_by_the_tests_that_execute_its_statement(line, tests, covered):
    noted, file = covered()
    assert noted.tests_of(file, line) == tests


def test_tests_that_start_processes_count_as_executing_everything(covered):
    noted, file = covered(everywhere=["apart"])
    assert noted.tests_of(file, 8) == ["short", "apart"]


def test_what_runs_on_import_is_executed_by_every_test(covered):
    noted, file = covered(imported=[8])
    assert noted.tests_of(file, 8) == ["long", "short", "apart"]


def test_chosen_tests_run_alone_and_show_whether_one_fails(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n", "utf-8")
    tests = """
def test_good(): pass
def test_bad(): assert False
def test_endless():
    while True: pass
"""
    (tmp_path / "test_some.py").write_text(tests, "utf-8")
    good, bad, endless = (f"test_some.py::test_{name}" for name in ("good", "bad", "endless"))
    noted = Covering({good: 0.1, bad: 0.1, endless: 0.0}, (), {}, {})
    assert not noted.one_fails([good], patience=30)
    assert noted.one_fails([good, bad], patience=30)
    assert not noted.one_fails([], patience=30)
    assert noted.one_fails([endless], patience=0.1)
