"""How often one call of an operation changes file on its way.

A stay is a run of calls within one file of the package. An operation of few stays can be read from
top to bottom; one of many sends its reader to and fro.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from benchmarks.house.source import PACKAGE, ROOT

if TYPE_CHECKING:
    from ecs_plugins import EntropicMemory

Operation = Callable[[], object]


def stays(operation: Operation) -> int:
    """Stays of one call, those of this thread alone."""
    package = f"{ROOT / PACKAGE}/"
    count = 0
    current = ""

    def watch(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count, current
        place = frame.f_code.co_filename
        if event != "call" or not place.startswith(package):
            return
        # Comprehensions and lambdas belong to the file that is being read anyway.
        if frame.f_code.co_name.startswith("<"):
            return
        if place != current:
            count += 1
            current = place

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        operation()
    finally:
        sys.setprofile(before)
    return count


def operations() -> dict[str, Operation]:
    """One call of each operation that users wait for, behind a first one that warmed it up."""
    return {
        "add": partial(_memory().add, "One more fact."),
        "recall": partial(_memory().recall, "Which thing is fact 7 about?"),
        "sleep": _memory().sleep,
        "shape": _shape(),
        "route": _route(),
    }


def _memory() -> EntropicMemory:
    from ecs_plugins import EntropicMemory, FakeEmbedder

    memory = EntropicMemory.open(":memory:", embedder=FakeEmbedder())
    memory.add([f"Fact number {number} is about thing {number}." for number in range(30)])
    memory.recall("Which thing?")
    memory.add("warm")
    return memory


def _shape() -> Operation:
    from ecs_plugins import ContextShaper, FakeLanguageModel, ShapingConfig

    shaper = ContextShaper(FakeLanguageModel(), ShapingConfig(top_k=1))
    passages = ["Anna lives in Rome.", "The tram was late.", "Tea is on the table."]
    shaper.shape("Where?", passages)
    return partial(shaper.shape, "Where does Anna live?", passages)


def _route() -> Operation:
    from ecs_plugins.frontier import (
        EfficiencyFrontier,
        ReuseLedger,
        Router,
        RouterConfig,
        StrategyPoint,
    )

    frontier = EfficiencyFrontier(
        [
            StrategyPoint("full", {}, 0.8, 0, 1000),
            StrategyPoint("bm25", {}, 0.6, 0, 200),
            StrategyPoint("notes", {}, 0.75, 2000, 100),
        ]
    )
    router = Router(frontier, RouterConfig(target_f1=0.7), ledger=ReuseLedger(":memory:"))
    router.route(context_id="a")
    return partial(router.route, context_id="a")


def measured() -> dict[str, int]:
    """The stays of every operation."""
    return {name: stays(operation) for name, operation in operations().items()}


def main() -> None:
    """Print them; for a process of its own, where nothing else has been loaded."""
    for name, count in measured().items():
        print(f"{name} {count}")  # noqa: T201


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    main()
