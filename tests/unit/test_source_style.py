"""Limits of the source that no linter measures."""

import ast
import io
import tokenize
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ADAPTERS = {"langchain", "langgraph", "llama_index", "cli", "server"}
COMMON_NAMES = {"__init__", "__main__", "base", "config"}
TO_RENAME = {"result", "statements"}
"""Names that two modules share still. No name may join them."""
UNCOUNTED = {"COMMENT", "NL", "NEWLINE", "INDENT", "DEDENT", "ENDMARKER"}


def lines_of_bare_strings(source: str) -> set[int]:
    bodies = (getattr(node, "body", None) for node in ast.walk(ast.parse(source)))
    statements = [each for body in bodies if isinstance(body, list) for each in body]
    return {
        line
        for each in statements
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
        for line in range(each.lineno, each.end_lineno + 1)
    }


def tokens_per_code_line(folder: str) -> float:
    tokens = lines = 0
    for path in sorted((ROOT / folder).rglob("*.py")):
        source = path.read_text("utf-8")
        documented = lines_of_bare_strings(source)
        counted = [
            token
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if tokenize.tok_name[token.type] not in UNCOUNTED and token.start[0] not in documented
        ]
        tokens += len(counted)
        lines += len({n for each in counted for n in range(each.start[0], each.end[0] + 1)})
    return tokens / lines


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "most"), [("ecs_plugins", 8.2), ("tests", 9.0)])
def test_code_lines_are_short(folder, most):
    assert tokens_per_code_line(folder) <= most


def test_module_names_are_unique():
    modules = defaultdict(list)
    for path in sorted((ROOT / "ecs_plugins").rglob("*.py")):
        place = path.relative_to(ROOT / "ecs_plugins")
        if place.parts[0] not in ADAPTERS and path.stem not in COMMON_NAMES:
            modules[path.stem].append(place)
    repeated = {stem for stem, places in modules.items() if len(places) > 1}
    assert repeated <= TO_RENAME
