"""``python -m benchmarks memory-words``: what a person feels of a memory."""

from __future__ import annotations

from typing import Annotated

import typer

HELP = "Ask a memory for facts in other words and after changes, with the settings that ship."
_OTHERS = (
    "Good morning!",
    "I watched a film about whales last night.",
    "The coffee machine makes a strange noise.",
    "We had pasta for lunch.",
    "My neighbour plays the trumpet.",
    "What a long week.",
)


def memory_words(
    rounds: Annotated[int, typer.Option(min=1, help="Memories of 30 facts, drawn anew.")] = 4,
    seed: Annotated[int, typer.Option(help="Of the draw.")] = 1,
) -> None:
    """Print what is recalled in other words, in other languages, and after changes."""
    from benchmarks.drawing import markdown_table
    from benchmarks.memory_words import asking, cases
    from ecs_plugins.ranking.embedder import default_embedder

    embedder = default_embedder()
    questions = cases.read_questions()
    changed, holding = cases.read_changes()
    shares = [
        *asking.in_other_words(embedder, questions, rounds, seed),
        *asking.in_other_languages(embedder, questions),
        *asking.of_changes(embedder, changed, holding, _OTHERS),
    ]
    rows = [[share.what, str(share)] for share in shares]
    typer.echo(markdown_table(["asked", "share"], rows))
