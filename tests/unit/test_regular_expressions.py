"""Linear time of regular expressions on untrusted text.

Costs are shares of what a plainly linear expression needs for the same text, in time of this
process. A quadratic one needs dozens of times more for the shortest text that is tried.
"""

import ast
import importlib
import pkgutil
import re
import time
from collections import deque
from itertools import product
from pathlib import Path

import pytest

import ecs_plugins
from ecs_plugins.common.inert import TAG, inert
from ecs_plugins.common.text import as_replies, sentence_spans
from ecs_plugins.integrations.notes import without_notes
from ecs_plugins.shaping.passages import split_passages
from ecs_plugins.shaping.sentences import pieces_of

SMALL = 3_000
GENEROUS = 15


def expressions() -> dict[str, tuple[re.Pattern, str]]:
    """Every expression of the package, and how it is applied: anchored, or all through a text."""
    found = {}
    packages = pkgutil.walk_packages(ecs_plugins.__path__, "ecs_plugins.")
    names = [package.name for package in packages if "__main__" not in package.name]
    for module_name in names:
        module = importlib.import_module(module_name)
        source = Path(module.__file__).read_text("utf-8")
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                found[f"{module_name}.{name}"] = value, way_of(name, source)
        for literal in re.findall(r'\bre\.(?!compile|escape)\w+\((r".+?")', source):
            pattern = re.compile(ast.literal_eval(literal))
            found[f"{module_name} {literal}"] = pattern, "finditer"
    return found


def way_of(name: str, source: str) -> str:
    """Return the way a source applies an expression: anchored or throughout."""
    methods = set(re.findall(rf"\b{name}\.(\w+)\(", source))
    if methods and methods <= {"match", "fullmatch"}:
        return "match"
    return "finditer"


def some(characters: list[str], at_most: int) -> list[str]:
    return characters[:: -(-len(characters) // at_most) or 1]


def worst_cases(pattern: re.Pattern) -> set[tuple[str, str, str]]:
    """Prefix, repeated part and suffix."""
    named = set(pattern.pattern)
    letters = sorted(filter(str.isalnum, named))
    others = sorted(named.difference(letters))
    kinds = sorted({*some(others, 40), *some(letters, 6), *" \na1."})
    few = some(kinds, 8)
    marks = set()
    if TAG in pattern.pattern:
        marks = {f"<{TAG}>", f"<{TAG}", "<", "< /"}
    pairs = map("".join, product(few, few))
    pumps = {*kinds, *pairs, *marks}
    single = [pump for pump in pumps if len(pump) == 1]
    ends = ("\0", "a")
    behind_nothing = product([""], pumps, ends)
    behind_something = product([*few, *marks], single, ends)
    return {*behind_nothing, *behind_something}


def text_of(case: tuple[str, str, str], length: int) -> str:
    before, pump, behind = case
    return before + pump * (length // len(pump)) + behind


def seconds(work, *args) -> float:
    began = time.process_time()
    work(*args)
    return time.process_time() - began


def least(repeats: int, work, *args) -> float:
    return min(seconds(work, *args) for _ in range(repeats))


def run(pattern: re.Pattern, way: str, text: str) -> None:
    if way == "match":
        pattern.match(text)
    else:
        deque(pattern.finditer(text), maxlen=0)


def linear(length: int) -> float:
    """Return the cost of one pass over a text with a match per character."""
    return least(3, run, re.compile(r"\w"), "finditer", "a" * length)


@pytest.fixture(scope="module")
def found():
    return expressions()


def dearest(pattern: re.Pattern, way: str, limit: float) -> tuple[tuple[str, str, str], float]:
    """Return the worst case and its cost, or the first one above the limit."""
    worst, most = ("", "a", ""), 0.0
    for case in worst_cases(pattern):
        text = text_of(case, SMALL)
        cost = seconds(run, pattern, way, text)
        if cost > limit:
            cost = least(2, run, pattern, way, text)
        if cost > most:
            worst, most = case, cost
        if cost > limit:
            break
    return worst, most


@pytest.mark.slow
@pytest.mark.parametrize("large", [50_000, 1_000_000])
def test_every_expression_is_linear(found, large):
    assert len(found) > 15
    assert {way for _, way in found.values()} == {"match", "finditer"}
    limits = {length: GENEROUS * linear(length) for length in (SMALL, large)}
    for where, (pattern, way) in found.items():
        case, cost = dearest(pattern, way, limits[SMALL])
        assert cost <= limits[SMALL], (where, way, case)
        assert seconds(run, pattern, way, text_of(case, large)) <= limits[large], (where, way, case)


@pytest.mark.parametrize("pattern", [r"\s*x", r"[.!?]+ ", r"<\s*/?\s*x", r"a.*?b", r"[?]\W*$"])
def test_a_quadratic_expression_would_be_noticed(pattern):
    limit = GENEROUS * linear(SMALL)
    assert dearest(re.compile(pattern), "finditer", limit)[1] > limit


@pytest.mark.parametrize(
    "work",
    [
        sentence_spans,
        pieces_of,
        without_notes,
        inert,
        lambda text: as_replies([f"Ana: {text}", f"Ben: {text}"] * 6),
        lambda text: split_passages([text], lambda texts: [len(each) for each in texts], 10**9),
    ],
)
@pytest.mark.parametrize(
    "pump",
    [
        *(".", "? ", "?", "«a. ", "\n", "\n ", " ", '."', "<", "< ", f"<{TAG}>", f"<{TAG}> </"),
        *(
            "Ana: ",
            "> ",
            "- a\n",
            "(a) ",
            "a: b\n",
            "  a:\n",
            "| a ",
            "{",
            "```\n",
            "a,b,c\n",
            "a\n--\n",
        ),
    ],
)
def test_parsers_of_untrusted_text_take_linear_time(work, pump):
    short, long = (f"<{pump * (size // len(pump))}\0" for size in (5_000, 20_000))
    limit = 10 * max(seconds(work, short), linear(len(short)))  # quadratic: 16 times
    if seconds(work, long) > limit:  # once more, as something else may have taken the time
        limit = 10 * max(least(2, work, short), linear(len(short)))
        assert least(2, work, long) <= limit
