"""``python -m benchmarks soak``: many clients at once on the engine and on a memory."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated

import torch
import typer

from benchmarks.engine.soak import soak_engine, soak_memory

HELP = """Many clients at once: latency, growth of the process, calls lost.

\b
  OMP_NUM_THREADS=1 python -m benchmarks soak

1,000 questions over 200 pools from 64 threads on a small random model, and 10,000 messages from 16
threads to one memory on the disk.
"""


def soak(
    questions: Annotated[int, typer.Option(min=1, help="Asked of the engine.")] = 1000,
    pools: Annotated[int, typer.Option(min=1, help="Of 8 passages each.")] = 200,
    clients: Annotated[int, typer.Option(min=1, help="Threads that ask.")] = 64,
    messages: Annotated[int, typer.Option(min=1, help="Added to the memory.")] = 10_000,
    threads: Annotated[int, typer.Option(min=1, help="Threads that add.")] = 16,
    out: Annotated[Path | None, typer.Option(help="JSON file; printed only without it.")] = None,
) -> None:
    """See `HELP`, which the command line shows."""
    torch.set_num_threads(1)
    found = {"engine": soak_engine(questions=questions, pools=pools, clients=clients)}
    typer.echo(json.dumps(found["engine"], indent=1))
    with tempfile.TemporaryDirectory() as folder:
        found["memory"] = soak_memory(Path(folder) / "m.db", messages=messages, threads=threads)
    typer.echo(json.dumps(found["memory"], indent=1))
    if out is not None:
        out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
