import ast
from functools import cache
from pathlib import Path

import ecs_plugins.memory

ROOM = Path(ecs_plugins.memory.__file__).parent
FACADE = {"__init__", "entropic", "admin", "sleep"}


@cache
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


def astray(files, prefixes):
    found = {
        file.stem: {name for name in imported(file) if name.startswith(prefixes)} for file in files
    }
    return {stem: names for stem, names in found.items() if names}


ALGORITHM = [file for file in ROOM.glob("*.py") if file.stem not in FACADE]
STORE = list((ROOM / "store").glob("*.py"))


def test_the_algorithm_does_not_know_where_it_is_stored():
    assert len(ALGORITHM) > 5
    assert astray(ALGORITHM, "ecs_plugins.memory.store") == {}


def test_neither_the_algorithm_nor_the_store_knows_the_facade():
    facade = tuple(f"ecs_plugins.memory.{name}" for name in (*FACADE - {"__init__"}, "Entropic"))
    assert len(STORE) > 5
    assert astray([*ALGORITHM, *STORE], facade) == {}


def test_sql_and_faiss_are_the_stores_business():
    others = [*ALGORITHM, *(ROOM / f"{name}.py" for name in FACADE)]
    assert astray(others, ("sqlite3", "faiss")) == {}
