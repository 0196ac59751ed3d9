"""``python -m benchmarks report``: every figure of the README and the docs, from one command."""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Final

import typer

from ecs_plugins.errors import InvalidInputError

HELP = """Run the benchmarks behind the README and docs/measurements, one after another.

\b
  python -m benchmarks report --out out/report --data squad=squad.json \\
    --data hotpotqa=hotpot.json --data musique=musique.json --data mtrag=mtrag.json \\
    --data faq=faq.json --data locomo=locomo.json --data longmemeval=longmemeval.json

Each benchmark writes OUT/NAME.txt: its command, the date, the machine and its tables. The same
command goes on where the last one ended. A benchmark without its data is skipped and named.
OUT/report.md has all tables.
"""


@dataclass(frozen=True, slots=True)
class Job:
    """One benchmark: the page it belongs to and its arguments.

    ``{squad}`` stands for the file of a data set, ``{out}`` for a folder of the benchmark.
    """

    name: str
    page: str
    command: str
    needs_card: bool = False

    @property
    def data(self) -> tuple[str, ...]:
        """Names of the data sets that it reads."""
        return tuple(name for name in re.findall(r"{(\w+)}", self.command) if name != "out")


_FUSION: Final = " ".join(
    f"--data {name}={{{name}}}"
    for name in ("faq", "mtrag", "squad", "hotpotqa", "musique", "locomo")
)
JOBS: Final = (
    Job("policies", "reuse", "policies"),
    Job("month", "frontier_results", "month --contexts 300"),
    Job("lapsing", "lapsing", "lapsing --games 500"),
    Job("route", "decisions", "route --contexts 200000"),
    Job("gpu", "card", "gpu --out {out}", needs_card=True),
    Job("seconds", "cost", "seconds --data {squad} --repeats 3"),
    Job("seconds-float32", "cost", "seconds --data {squad} --repeats 3 --dtype float32"),
    Job("checks", "checks", "attribution mtrag={mtrag} --part 1"),
    Job(
        "citations",
        "citations",
        "attribution squad={squad} hotpotqa={hotpotqa} musique={musique} --limit 40",
    ),
    Job("signals", "known_answers", "signals hotpotqa={hotpotqa} locomo={locomo} --limit 20"),
    Job(
        "memory-relevance",
        "recall",
        "memory-relevance --longmemeval {longmemeval} --mtrag {mtrag} --locomo {locomo}",
    ),
    Job("memory-rules", "outdating", "memory-rules --mtrag {mtrag}"),
    Job("memory-prior", "prior", "memory-prior --data {locomo}"),
    Job("memory-store", "memory_store", "memory-store --data {locomo} --limit 3"),
    Job(
        "bounded-chat",
        "memory_evaluation",
        "bounded-chat --data {locomo} --out {out} --limit 3 --capacities 10,20"
        " --variants default --k 5",
    ),
    Job("infinite-room", "infinite_room", "infinite-room --seeds 20 --out {out}"),
    Job("memory-scale", "memory_cost", "memory-scale --size 1000 --size 10000 --out {out}"),
    Job(
        "memory-postgresql",
        "memory_postgresql",
        "memory-scale --size 1000 --size 10000 --address private --out {out}",
    ),
    Job(
        "engine",
        "performance",
        "engine --part compare --setting 1 --repeats 3 --dtype float32 --out {out}",
    ),
    Job("cross-encoder", "cross_encoder", "engine --part cross-encoder --repeats 3 --out {out}"),
    Job(
        "callers",
        "callers",
        "engine --part callers --model bundled --dtype float32 --repeats 2 --out {out}",
    ),
    Job("server-load", "server_load", "server-load --clients 64 --minutes 2"),
    Job("soak", "soak", "soak"),
    Job("attacks", "attacks", "robustness --data {squad} --limit 20"),
    Job(
        "pruning-hotpotqa",
        "pruning",
        "pruning hotpotqa --data {hotpotqa} --limit 40 --top-k 10 --share .4 --share .25"
        " --out {out}/journal.db",
    ),
    Job(
        "pruning-musique",
        "pruning",
        "pruning musique --data {musique} --limit 20 --top-k 10 --share .4 --out {out}/journal.db",
    ),
    Job("fusion", "fusion", f"fusion --journal {{out}} --limit 60 --minutes 60 {_FUSION}"),
)
"""Quick ones first."""
_DONE: Final = "Finished in "


def report(
    out: Annotated[Path, typer.Option(help="Folder of the tables; goes on where it ended.")],
    data: Annotated[list[str] | None, typer.Option(help="NAME=FILE of a data set.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Names of benchmarks; repeat it.")] = None,
    minutes: Annotated[float, typer.Option(min=0, help="Start none after this time.")] = 180.0,
) -> None:
    """Run the command that `HELP` describes."""
    files = dict(_named(each) for each in data or ())
    if unknown := set(only or ()) - {each.name for each in JOBS}:
        known = ", ".join(each.name for each in JOBS)
        raise InvalidInputError(f"no benchmark is called {sorted(unknown)[0]}; there are: {known}")
    out.mkdir(parents=True, exist_ok=True)
    chosen = [each for each in JOBS if not only or each.name in only]
    start = time.monotonic()
    for number, job in enumerate(chosen, 1):
        label = f"{number}/{len(chosen)} {job.name}"
        path = out / f"{job.name}.txt"
        missing = [name for name in job.data if name not in files]
        if path.exists() and _DONE in path.read_text(encoding="utf-8"):
            typer.echo(f"{label}: there already")
        elif missing:
            typer.echo(f"{label}: skipped, add --data {missing[0]}=FILE")
        elif job.needs_card and not _has_card():
            typer.echo(f"{label}: skipped, there is no NVIDIA card")
        elif time.monotonic() - start > 60 * minutes:
            typer.echo(f"{label}: no time left, run the same command again")
        else:
            typer.echo(f"{label}: {_run(job, files, out, path)}")
    (out / "report.md").write_text("\n".join(_pages(out)), encoding="utf-8")
    typer.echo(f"tables: {out / 'report.md'}")


def _named(text: str) -> tuple[str, str]:
    """Return the name and the absolute path of ``NAME=FILE``."""
    name, equals, path = text.partition("=")
    if not equals or not Path(path).is_file():
        raise InvalidInputError(f"--data {text}: give NAME=FILE with a file that exists")
    return name, str(Path(path).resolve())


def _run(job: Job, files: Mapping[str, str], out: Path, path: Path) -> str:
    """Run a benchmark, write its output to ``path``, and return how it ended."""
    folder = out / job.name
    folder.mkdir(exist_ok=True)
    values = {name: shlex.quote(value) for name, value in {**files, "out": str(folder)}.items()}
    arguments = shlex.split(job.command.format(**values))
    start = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "benchmarks", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "120"},
    )
    seconds = time.monotonic() - start
    if ended.returncode:
        path.with_suffix(".failed.txt").write_text(ended.stdout + ended.stderr, encoding="utf-8")
        return f"failed after {seconds:.0f} s, see {path.with_suffix('.failed.txt')}"
    shown = job.command.format_map({name: Path(value).name for name, value in values.items()})
    head = (
        f"python -m benchmarks {shown}\n{datetime.now(UTC):%d %B %Y}, ecs_plugins "
        f"{version('ecs_plugins')}, torch {version('torch')}, {_processor()}\n"
    )
    path.write_text(f"{head}\n{ended.stdout}\n{_DONE}{seconds:.0f} s.\n", encoding="utf-8")
    return f"{seconds:.0f} s"


def _has_card() -> bool:
    """Return True if PyTorch sees a CUDA card."""
    import torch

    return torch.cuda.is_available()


def _processor() -> str:
    """Return the processor's name with the instructions that matter for its speed."""
    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="utf-8") if info.is_file() else ""
    name = re.search(r"model name\s*:\s*(.+)", text)
    flags = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in text]
    return ", ".join([name[1] if name else platform.processor() or platform.machine(), *flags])


def _pages(out: Path) -> Iterator[str]:
    """Yield the lines of the report, by page of docs/measurements."""
    yield "# Measurements"
    for page in dict.fromkeys(each.page for each in JOBS):
        tables = [out / f"{each.name}.txt" for each in JOBS if each.page == page]
        tables = [each for each in tables if each.is_file()]
        if tables:
            yield f"\n## {page}"
        for table in tables:
            yield f"\n```text\n{table.read_text(encoding='utf-8').strip()}\n```"
