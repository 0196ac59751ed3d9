import ast
from pathlib import Path

import ecs_plugins.memory

ROOM = Path(ecs_plugins.memory.__file__).parent
FACADE = {"__init__", "entropic"}


def imported(file: Path) -> set[str]:
    """Every module that a file imports, or might: lazily and for type checking too."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file} imports relatively"
            names |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
        elif isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
    return names


def test_the_algorithm_does_not_know_where_it_is_stored():
    algorithm = [file for file in ROOM.glob("*.py") if file.stem not in FACADE]
    assert algorithm
    astray = {
        file.stem: names
        for file in algorithm
        if (names := {n for n in imported(file) if n.startswith("ecs_plugins.memory.store")})
    }
    assert astray == {}


def test_neither_the_algorithm_nor_the_store_knows_the_facade():
    inside = [
        file
        for file in ROOM.rglob("*.py")
        if file.parent.name != "facade" and not (file.parent == ROOM and file.stem in FACADE)
    ]
    facade = (
        "ecs_plugins.memory.entropic",
        "ecs_plugins.memory.EntropicMemory",
        "ecs_plugins.memory.facade",
    )
    assert any(file.parent.name == "store" for file in inside)
    astray = {
        file.stem: names
        for file in inside
        if (names := {name for name in imported(file) if name.startswith(facade)})
    }
    assert astray == {}


def test_a_part_of_the_facade_knows_no_other_part():
    parts = [file for file in (ROOM / "facade").glob("*.py") if file.stem != "opened"]
    astray = {
        file.stem: names
        for file in parts
        if (
            names := {name for name in imported(file) if name.startswith("ecs_plugins.memory.fac")}
            - {"ecs_plugins.memory.facade.opened"}
            - {f"ecs_plugins.memory.facade.opened.{name}" for name in ("Opened", "bridged")}
        )
    }
    assert astray == {}


def test_the_facade_reaches_into_the_store():
    assert "ecs_plugins.memory.store.core" in imported(ROOM / "entropic.py")
