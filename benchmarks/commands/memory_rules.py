"""``python -m benchmarks memory-rules``: outdating, long messages and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def memory_rules(
    mtrag: Annotated[
        Path | None, typer.Option(help="Tasks of MTRAG (Apache-2.0), for its refusals.")
    ] = None,
) -> None:
    """Compare three rules of the memory with ten-line baselines."""
    from benchmarks.bounded_chat import rules
    from benchmarks.bounded_chat.chats import CachedEmbedder
    from benchmarks.tables import markdown_table
    from ecs_plugins.ranking.embedder import default_embedder

    data = json.loads(rules.DATA.read_text(encoding="utf-8"))
    embedder = CachedEmbedder(default_embedder())
    head = ["the true statement comes first", "after a change", "without one"]
    typer.echo(markdown_table(head, rules.outdating(data, embedder)))
    head = ["found by", "own words", "other words", "unrelated questions answered"]
    typer.echo(markdown_table(head, rules.long_messages(data, embedder)))
    head = ["recalled when asked again", "refusals", "answers"]
    typer.echo(markdown_table(head, rules.refusals(data, mtrag, embedder)))
