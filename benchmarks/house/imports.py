"""Who imports whom: the arrows of the package and its circles, from the source alone.

Every import counts, also one inside a function or under ``TYPE_CHECKING``: it too must be read by
whoever wants to understand a module. A name taken from a package's public face counts as an import
of the module that the face's stub names.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.house.source import PACKAGE, ROOT

AT_THE_ROOT = {"__init__", "__main__", "errors", "tokens"}

_BASE = {"", "common"}
_SEEN = {
    "": {"", "common"},
    "common": _BASE,
    "lm": {*_BASE, "lm"},
    "ranking": {*_BASE, "lm", "ranking"},
    "shaping": {*_BASE, "lm", "ranking", "shaping"},
    "storage": {*_BASE, "storage"},
    "memory": {*_BASE, "storage", "lm", "ranking", "shaping", "memory"},
    "frontier": {*_BASE, "storage", "lm", "ranking", "shaping", "memory", "frontier"},
}
"""Which folders the modules of a folder may import from."""
_ENGINES = ("shaping", "memory", "frontier")
_SEEN["integrations"] = {*_BASE, "storage", "lm", "ranking", *_ENGINES, "integrations"}
for _framework in ("langchain", "langgraph", "llama_index"):
    _SEEN[_framework] = {*_SEEN["integrations"], _framework}
_SEEN["server"] = {*_SEEN["frontier"], "server"}
_SEEN["cli"] = {*_SEEN["integrations"], "server", "cli"}

_FRAMEWORKS = {
    "langchain": {"langchain", "langchain_core", "langchain_classic", "langgraph"},
    "langgraph": {"langgraph", "langchain_core"},
    "llama_index": {"llama_index"},
}
"""The top-level modules of each framework, by the only folder that may import them."""


@dataclass(frozen=True, slots=True)
class Import:
    """One import statement's target.

    Attributes:
        source: The importing module.
        target: The imported module, of the package or of another.
        face: The package whose public face the name was taken from, if it was.
    """

    source: str
    target: str
    face: str | None = None


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _folder(module: str) -> str:
    parts = module.split(".")
    path = ROOT.joinpath(*parts[:2])
    return parts[1] if len(parts) > 1 and path.is_dir() else ""


class House:
    """The package as it stands in the checkout."""

    def __init__(self) -> None:
        self.files = sorted((ROOT / PACKAGE).rglob("*.py"))
        self.modules = {_module(path): path for path in self.files}

    @cached_property
    def faces(self) -> dict[str, dict[str, str]]:
        """Package -> exported name -> module that defines it."""
        found: dict[str, dict[str, str]] = {}
        for stub in sorted((ROOT / PACKAGE).rglob("__init__.pyi")):
            package = _module(stub)
            names = found.setdefault(package, {})
            for node in ast.parse(stub.read_text("utf-8")).body:
                if isinstance(node, ast.ImportFrom):
                    module = f"{package}.{node.module}" if node.module else package
                    for alias in node.names:
                        names[alias.asname or alias.name] = module
        return found

    @cached_property
    def statements(self) -> dict[str, list[ast.stmt]]:
        """Module -> its imports and classes, also those within functions."""
        kinds = (ast.Import, ast.ImportFrom, ast.ClassDef)
        trees = {name: ast.parse(path.read_text("utf-8")) for name, path in self.modules.items()}
        return {
            name: [node for node in ast.walk(tree) if isinstance(node, kinds)]
            for name, tree in trees.items()
        }

    @cached_property
    def imports(self) -> list[Import]:
        """Every import, of the package's modules and of others."""
        found = []
        for module, path in self.modules.items():
            for node in self.statements[module]:
                if isinstance(node, ast.Import):
                    found += [Import(module, alias.name) for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    found += [self._target(module, path, node, alias.name) for alias in node.names]
        return found

    def _target(self, module: str, path: Path, node: ast.ImportFrom, name: str) -> Import:
        base = node.module or ""
        if node.level:
            parents = module.split(".") if path.stem == "__init__" else module.split(".")[:-1]
            kept = parents[: len(parents) - node.level + 1]
            base = ".".join([*kept, base] if base else kept)
        if f"{base}.{name}" in self.modules:
            return Import(module, f"{base}.{name}")
        behind = self.faces.get(base, {}).get(name)
        return Import(module, base) if behind is None else Import(module, behind, face=base)

    @cached_property
    def inner(self) -> list[Import]:
        """The imports of the package's own modules."""
        return [each for each in self.imports if each.target in self.modules]

    def circles(self) -> list[list[str]]:
        """The groups of modules that import each other, however far around (Tarjan)."""
        graph: dict[str, set[str]] = {module: set() for module in self.modules}
        for each in self.inner:
            if each.source != each.target:
                graph[each.source].add(each.target)
        return _strongly_connected(graph)

    def wrong_arrows(self) -> list[str]:
        """Imports against the house's rules, one line each."""
        found = set()
        for each in self.imports:
            source, target = _folder(each.source), _folder(each.target)
            arrow = f"{each.source} -> {each.target}"
            if each.target not in self.modules:
                top = each.target.partition(".")[0]
                owners = [name for name, tops in _FRAMEWORKS.items() if top in tops]
                if owners and source not in owners:
                    found.add(f"{arrow}: only {' and '.join(owners)} may import it")
                if top in ("benchmarks", "examples", "tests"):
                    found.add(f"{arrow}: the package stands without it")
            elif source not in _SEEN:
                if each.source != f"{PACKAGE}.__main__":
                    found.add(f"{arrow}: {source!r} is no folder of the house")
            elif target not in _SEEN[source] and each.source != f"{PACKAGE}.__main__":
                found.add(f"{arrow}: {source or 'the root'} may not see {target}")
            elif target in _ENGINES and source in _ENGINES and source != target and not each.face:
                found.add(f"{arrow}: engines meet through their public faces")
        return sorted(found)

    def strangers(self) -> list[str]:
        """Modules at the root that do not belong there."""
        return [path.name for path in (ROOT / PACKAGE).glob("*.py") if path.stem not in AT_THE_ROOT]

    def namesakes(self) -> list[str]:
        """Classes that share their name with a class of another module.

        Folders of frameworks do not count against each other: who uses one does not read the other.
        """
        places: dict[str, set[str]] = {}
        repeated: set[str] = set()
        for module, statements in self.statements.items():
            names = [node.name for node in statements if isinstance(node, ast.ClassDef)]
            place = _folder(module)
            for name in names:
                known = places.setdefault(name, set())
                apart = place in _FRAMEWORKS and known <= _FRAMEWORKS.keys() - {place}
                if known and not apart:
                    repeated.add(name)
                known.add(place)
        return sorted(repeated)

    def drawing(self) -> str:
        """Which folder imports which, as a Mermaid flowchart.

        What everybody may import is left out, and so is an arrow that a longer way says already.
        """
        graph: dict[str, set[str]] = {}
        for each in self.inner:
            source, target = _folder(each.source), _folder(each.target)
            if source and target and source != target and target != "common":
                graph.setdefault(source, set()).add(target)
        rows = [
            f"    {source} --> {target}"
            for source in sorted(graph)
            for target in sorted(graph[source])
            if not any(_reaches(graph, other, target) for other in graph[source] - {target})
        ]
        return "\n".join(["flowchart TD", *rows]) + "\n"


def _reaches(graph: dict[str, set[str]], source: str, target: str) -> bool:
    return source == target or any(
        _reaches(graph, other, target) for other in graph.get(source, ())
    )


def _strongly_connected(graph: dict[str, set[str]]) -> list[list[str]]:
    numbers: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        numbers[node] = low[node] = len(numbers)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in numbers:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], numbers[other])
        if low[node] == numbers[node]:
            cut = stack.index(node)
            group = stack[cut:]
            del stack[cut:]
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(graph):
        if node not in numbers:
            visit(node)
    return found
