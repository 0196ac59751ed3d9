"""Costs of the package: import time, wheel size, CPU time of shape, add, recall and route.

The script measures any checkout: ``PYTHONPATH=CHECKOUT python benchmarks/package_costs.py``. It
prints JSON. Times are medians of CPU time on one thread.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median

import typer

IMPORTS = ("", ".langchain", ".langgraph", ".llama_index", ".memory.entropic", ".shaping.shaper")
_TIMED_IMPORT = "import time; b = time.process_time(); import {}; print(time.process_time() - b)"
DATA = Path(__file__).parents[1] / "examples" / "data"


def import_seconds(module: str, repeats: int = 7) -> float:
    """Return the CPU seconds of an import in a new process."""
    command = [sys.executable, "-W", "ignore", "-c", _TIMED_IMPORT.format(module)]
    times = []
    for _ in range(repeats):
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        times.append(float(printed))
    return median(times)


def wheel_kib(checkout: Path) -> float:
    """Return the size of the wheel of a checkout in KiB."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, "."]
        subprocess.run(command, cwd=checkout, capture_output=True, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        return wheel.stat().st_size / 1024


def cpu_ms(work: Callable[[str], object], texts: Iterable[str]) -> float:
    """Return the median CPU milliseconds of a call."""
    times = []
    for text in texts:
        began = time.process_time()
        work(text)
        times.append(1000 * (time.process_time() - began))
    return median(times)


def shape_ms(questions: Sequence[str], passages: Sequence[str]) -> dict[str, float]:
    """Return the cost of shaping ten passages, with and without cached keys and values."""
    from ecs_plugins import ContextShaper, LocalLM

    model = LocalLM.bundled()
    shaper = ContextShaper(model)
    shaper.shape(questions[0], passages[:10])

    def first(question: str) -> None:
        model.clear_cache()
        shaper.shape(question, passages[:10])

    return {
        "shape, new passages": cpu_ms(first, questions[:5]),
        "shape, known passages": cpu_ms(
            lambda question: shaper.shape(question, passages[:10]), questions[5:15]
        ),
    }


def memory_ms(turns: Sequence[str], questions: Sequence[str]) -> dict[str, float]:
    """Return the cost of adding a turn and of a recall, with the offline embedder."""
    from ecs_plugins import EntropicMemory
    from ecs_plugins.ranking.embedder import default_embedder

    embedder = default_embedder()
    embedder.embed_documents(["warm"])
    with (
        tempfile.TemporaryDirectory() as folder,
        EntropicMemory.open(Path(folder) / "m.db", embedder=embedder) as memory,
    ):
        return {"add": cpu_ms(memory.add, turns), "recall": cpu_ms(memory.recall, questions)}


def route_us() -> dict[str, float]:
    """Return the cost of a decision without and with a ledger, in microseconds."""
    from ecs_plugins.frontier import (
        EfficiencyFrontier,
        ReuseLedger,
        Router,
        RouterConfig,
        StrategyPoint,
    )

    points = [
        StrategyPoint("full_context", {}, f1=0.8, stage1=0, stage2=600),
        StrategyPoint("memory_compression", {"ratio": 0.5}, f1=0.79, stage1=1500, stage2=100),
        StrategyPoint("bm25", {"depth": 4}, f1=0.5, stage1=0, stage2=50),
    ]
    frontier, config = EfficiencyFrontier(points), RouterConfig(target_f1=0.78)
    alone = Router(frontier, config)
    names = [f"context {number % 300}" for number in range(2000)]
    with tempfile.TemporaryDirectory() as folder, ReuseLedger(Path(folder) / "l.db") as ledger:
        counted = Router(frontier, config, ledger=ledger)
        return {
            "route": 1000 * cpu_ms(lambda _: alone.route(), names),
            "route, with a ledger": 1000
            * cpu_ms(lambda name: counted.route(context_id=name), names),
        }


def main() -> None:
    """Measure the checkout on the import path and print JSON."""
    import ecs_plugins

    checkout = Path(ecs_plugins.__file__).parents[1]
    handbook = json.loads((DATA / "handbook.json").read_text("utf-8"))
    chat = json.loads((DATA / "conversation.json").read_text("utf-8"))
    asked = json.loads((DATA / "questions.json").read_text("utf-8"))["conversation"]
    turns = [
        f"{turn['speaker']}: {turn['text']}" for each in chat["sessions"] for turn in each["turns"]
    ]
    figures: dict[str, dict[str, float]] = {
        "import, CPU s": {
            f"ecs_plugins{name}": import_seconds(f"ecs_plugins{name}") for name in IMPORTS
        },
        "wheel, KiB": {"wheel": wheel_kib(checkout)},
        "CPU ms": shape_ms(
            [each["question"] for each in handbook["questions"]],
            [f"{each['title']}: {each['text']}" for each in handbook["passages"]],
        )
        | memory_ms(turns, [each["question"] for each in asked]),
        "CPU us": route_us(),
    }
    rounded = {
        kind: {name: round(value, 3) for name, value in values.items()}
        for kind, values in figures.items()
    }
    typer.echo(json.dumps({"version": ecs_plugins.__version__, **rounded}, indent=1))


if __name__ == "__main__":
    main()
