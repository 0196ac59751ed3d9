"""How code reads: lines by their kind, tokens per line, complexity of functions."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "ecs_plugins"

OTHER_KINDS = {"SQL": "*.sql", "templates": "*.j2", "JSON": "*.json", "styles": "*.mplstyle"}
"""What the package holds beside Python, by the patterns of its files."""

_LAYOUT = {
    tokenize.NEWLINE,
    tokenize.NL,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.COMMENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}
"""Tokens that say nothing themselves."""

_BRANCHES = (
    ast.If,
    ast.For,
    ast.While,
    ast.AsyncFor,
    ast.ExceptHandler,
    ast.IfExp,
    ast.comprehension,
    ast.match_case,
)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Function:
    """A function and the ways through it.

    Attributes:
        name: ``module.qualified.name``.
        complexity: One, and one more for every branch, loop, handler, ternary, comprehension with
            each of its conditions, ``case``, and operand of ``and`` or ``or`` behind the first.
    """

    name: str
    complexity: int


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One Python file.

    Attributes:
        path: Where it is, relative to the checkout.
        lines: All its lines.
        code: Lines with a token that is neither a comment nor of a docstring.
        tokens: Names, numbers, strings and operators on them.
        functions: Its functions and methods, inner ones too.
    """

    path: str
    lines: int
    code: int
    tokens: int
    functions: Sequence[Function]


def read_folder(folder: str) -> list[SourceFile]:
    """Every Python file below a folder of the checkout; each is read once in a process."""
    return [_read(path) for path in sorted((ROOT / folder).rglob("*.py"))]


def density(files: Sequence[SourceFile]) -> float:
    """Tokens per line of code; joined lines raise it."""
    lines = sum(file.code for file in files)
    return sum(file.tokens for file in files) / lines if lines else 0.0


def longest(files: Sequence[SourceFile]) -> SourceFile:
    """The file with most lines."""
    return max(files, key=lambda file: file.lines)


def functions_above(files: Sequence[SourceFile], complexity: int) -> dict[str, int]:
    """Functions of more than this complexity, each with its own."""
    return {
        function.name: function.complexity
        for file in files
        for function in file.functions
        if function.complexity > complexity
    }


def lines_beside_python() -> dict[str, int]:
    """Lines of the package's other files, by kind."""
    return {
        kind: sum(_line_count(path) for path in (ROOT / PACKAGE).rglob(pattern))
        for kind, pattern in OTHER_KINDS.items()
    }


def _line_count(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


@cache
def _read(path: Path) -> SourceFile:
    text = path.read_text("utf-8")
    tree = ast.parse(text)
    documented = _docstring_lines(tree)
    code: set[int] = set()
    tokens = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        rows = range(token.start[0], token.end[0] + 1)
        if token.type in _LAYOUT or documented.issuperset(rows):
            continue
        code.update(rows)
        tokens += 1
    relative = path.relative_to(ROOT)
    module = ".".join(relative.with_suffix("").parts)
    functions = list(_functions(tree, module))
    return SourceFile(relative.as_posix(), len(text.splitlines()), len(code), tokens, functions)


def _docstring_lines(tree: ast.Module) -> set[int]:
    """Lines of docstrings, those of attributes too."""
    rows: set[int] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        if isinstance(node, _DOCUMENTED) and body and _is_text(body[0]):
            rows.update(_rows(body[0]))
        for one, following in pairwise(body):
            if isinstance(one, ast.Assign | ast.AnnAssign) and _is_text(following):
                rows.update(_rows(following))
    return rows


def _is_text(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
        return False
    return isinstance(node.value.value, str)


def _rows(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _functions(node: ast.AST, outside: str) -> Iterator[Function]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{outside}.{child.name}"
            yield Function(name, _complexity(child))
            yield from _functions(child, name)
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{outside}.{child.name}")
        else:
            yield from _functions(child, outside)


def _complexity(function: ast.AST) -> int:
    ways = 1
    for node in ast.walk(function):
        if isinstance(node, _BRANCHES):
            ways += 1
        if isinstance(node, ast.comprehension):
            ways += len(node.ifs)
        if isinstance(node, ast.BoolOp):
            ways += len(node.values) - 1
    return ways
