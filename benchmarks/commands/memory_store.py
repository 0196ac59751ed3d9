"""``python -m benchmarks memory-store``: search in a store by key compared with a recall."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.commands import DataFile

if TYPE_CHECKING:
    pass

HELP = """Evidence recall@5 and cost of EntropicStore.search, beside recall and SqliteStore.

SqliteStore takes part where langgraph-checkpoint-sqlite is installed, and pysqlite3-binary if
Python's own sqlite3 loads no extensions.

\b
  python -m benchmarks memory-store --data locomo10.json
"""


def memory_store(
    data: DataFile,
    embeddings: Annotated[
        Path | None, typer.Option(help="Where embeddings are kept between runs.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many chats.")] = None,
) -> None:
    """Print a table: one row for each way to find a turn."""
    from benchmarks.bounded_chat.chats import CachedEmbedder, embed_chats, read_chats
    from benchmarks.store_search import measured
    from benchmarks.tables import markdown_table
    from ecs_plugins.ranking.embedder import default_embedder

    chats = read_chats(data, limit)
    embedder = CachedEmbedder(default_embedder(), embeddings)
    embed_chats(embedder, chats)
    results = measured(chats, embedder)
    questions = sum(len(chat.questions) for chat in chats)
    turns = sum(len(chat.turns) for chat in chats)
    typer.echo(f"{len(chats)} chats, {turns} turns, {questions} questions")
    rows = [[name, *result.row] for name, result in results.items()]
    header = ["way", "evidence recall@5", "ms per search", "ms per put", "kB per item"]
    typer.echo(markdown_table(header, rows))
