"""``python -m benchmarks memory-store``: search in a store by key compared with a recall."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from benchmarks.commands import DataFile

if TYPE_CHECKING:
    from benchmarks.bounded_chat.chats import CachedEmbedder, Chat

HELP = """Evidence recall@5 and cost of EntropicStore.search, beside recall and SqliteStore.

SqliteStore takes part where langgraph-checkpoint-sqlite is installed, and pysqlite3-binary if
Python's own sqlite3 loads no extensions.

\b
  python -m benchmarks memory-store --data locomo10.json
  python -m benchmarks memory-store --data locomo10.json --shaped 120
"""


def memory_store(
    data: DataFile,
    embeddings: Annotated[
        Path | None, typer.Option(help="Where embeddings are kept between runs.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many chats.")] = None,
    shaped: Annotated[
        int,
        typer.Option(min=0, help="In place of that: so many questions with a shaper behind."),
    ] = 0,
) -> None:
    """Print a table: one row for each way to find a turn."""
    from benchmarks.bounded_chat.chats import CachedEmbedder, embed_chats, read_chats
    from benchmarks.store_search import measured
    from benchmarks.tables import markdown_table
    from ecs_plugins.ranking.embedder import default_embedder

    chats = read_chats(data, limit)
    embedder = CachedEmbedder(default_embedder(), embeddings)
    embed_chats(embedder, chats)
    if shaped:
        _print_shaped(chats, embedder, shaped)
        return
    results = measured(chats, embedder)
    questions = sum(len(chat.questions) for chat in chats)
    turns = sum(len(chat.turns) for chat in chats)
    typer.echo(f"{len(chats)} chats, {turns} turns, {questions} questions")
    rows = [[name, *result.row] for name, result in results.items()]
    header = ["way", "evidence recall@5", "ms per search", "ms per put", "kB per item"]
    typer.echo(markdown_table(header, rows))


def _print_shaped(chats: Sequence[Chat], embedder: CachedEmbedder, count: int) -> None:
    from benchmarks.intervals import interval
    from benchmarks.store_search import shaped
    from benchmarks.tables import markdown_table
    from ecs_plugins import ContextShaper, LocalLM

    recalls = shaped(chats, embedder, ContextShaper(LocalLM.bundled()), count)
    plain, behind = map(np.array, recalls.values())
    low, high = interval(np.mean, behind - plain)
    rows = [[name, f"{np.mean(found):.3f}"] for name, found in recalls.items()]
    rows.append(["difference", f"{np.mean(behind - plain):+.3f} [{low:+.3f}, {high:+.3f}]"])
    typer.echo(f"{len(plain)} questions")
    typer.echo(markdown_table(["way", "evidence recall@5"], rows))
