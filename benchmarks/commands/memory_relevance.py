"""``python -m benchmarks memory-relevance``: learn the scores of a recall."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def memory_relevance(
    longmemeval: Annotated[Path, typer.Option(help="Histories of LongMemEval (MIT).")],
    mtrag: Annotated[Path, typer.Option(help="Tasks of MTRAG (Apache-2.0).")],
    locomo: Annotated[
        Path | None, typer.Option(help="LoCoMo's JSON file, to check the shipped numbers on it.")
    ] = None,
    embeddings: Annotated[
        Path | None, typer.Option(help="Where embeddings are kept between runs.")
    ] = None,
) -> None:
    """Learn the numbers of `ecs_plugins.memory.relevance`; print the shipped ones' figures."""
    from benchmarks.bounded_chat import relevance
    from benchmarks.bounded_chat.chats import CachedEmbedder, read_chats
    from benchmarks.tables import markdown_table
    from ecs_plugins.memory.config import MemoryConfig
    from ecs_plugins.ranking.embedder import default_embedder

    embedder = CachedEmbedder(default_embedder(), embeddings)
    asked = relevance.own_questions(embedder)
    asked += relevance.chat_questions("LongMemEval", read_chats(longmemeval), embedder)
    asked += relevance.mtrag_questions(mtrag, embedder)
    numbers = relevance.learned_scores(asked)
    typer.echo(json.dumps(numbers, indent=1) + "\n")
    if locomo is not None:
        asked += relevance.chat_questions("LoCoMo", read_chats(locomo), embedder)
    embedder.save()
    rows = relevance.figures(asked, MemoryConfig().threshold)
    header = ["questions", "count", "share with a note", "evidence among three"]
    header += ["cosine alone: share with a note", "evidence among three"]
    typer.echo(markdown_table(header, rows))
