"""What `make house` and `make mutants` count."""

import ast
from pathlib import Path

import pytest

from benchmarks.house import mutants, source
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


def test_the_command_of_a_room_runs_its_tests_alone():
    command = mutants._command(mutants.ROOMS[0], mutants.QUICK)
    assert "tests/unit/memory" in command
    ast.parse(command.split(' -c "')[1].removesuffix('"'))
    assert Path(command.split()[0]).is_file()
