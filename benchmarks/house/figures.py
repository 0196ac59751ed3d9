"""The measures that have a limit."""

from __future__ import annotations

from benchmarks.house.imports import House
from benchmarks.house.limits import COMPLEXITY, EXCEPTIONS
from benchmarks.house.source import PACKAGE, density, functions_above, longest, read_folder


def figures(house: House) -> dict[str, float]:
    """What `benchmarks.house.limits.LIMITS` bounds."""
    from ecs_plugins.memory.config import MemoryConfig

    package = read_folder(PACKAGE)
    tests = read_folder("tests")
    return {
        "tokens per line of code": round(density(package), 2),
        "tokens per line of tests": round(density(tests), 2),
        "lines of the longest file": longest(package).lines,
        "lines of the longest file of tests": longest(tests).lines,
        "functions too complex, without an exception": len(too_complex()),
        "exceptions that have become needless": len(needless_exceptions()),
        "public names": sum(map(len, house.faces.values())),
        "settings of the memory": len(MemoryConfig.model_fields),
        "circles of imports": len(house.circles()),
        "arrows that run the wrong way": len(house.wrong_arrows()),
        "strangers at the root": len(house.strangers()),
        "classes of one name": len(house.namesakes()),
    }


def too_complex() -> dict[str, int]:
    """Functions above the limit that are no exception, or more complex than theirs allows."""
    above = functions_above(read_folder(PACKAGE), COMPLEXITY)
    return {name: number for name, number in above.items() if number > EXCEPTIONS.get(name, 0)}


def needless_exceptions() -> list[str]:
    """Exceptions whose function has become simpler than they allow, or is gone."""
    above = functions_above(read_folder(PACKAGE), COMPLEXITY)
    return sorted(name for name, most in EXCEPTIONS.items() if above.get(name, 0) < most)
