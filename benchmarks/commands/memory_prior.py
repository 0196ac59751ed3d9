"""``python -m benchmarks memory-prior``: learn the prior of a memory's utility."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

SHARES = (0.05, 0.1, 0.2, 0.5)


def memory_prior(
    data: Annotated[
        Path | None, typer.Option(help="LoCoMo's JSON file, to report what is lost on it.")
    ] = None,
) -> None:
    """Learn which turns may be asked for; print the table that ships and its figures."""
    import numpy as np

    from benchmarks.bounded_chat import prior
    from benchmarks.bounded_chat.chats import read_chats
    from benchmarks.tables import markdown_table

    table = prior.learned_from(*prior.own_turns())
    shipped = {**prior.SOURCE, "weights": table.weights, "most": table.most}
    typer.echo(json.dumps(shipped, indent=1) + "\n")
    if data is None:
        return
    chats = [chat for chat in read_chats(data) if chat.questions]
    others = prior.without_each(chats)
    judged = {"longest turns": [np.array([len(t.text) for t in c.turns], float) for c in chats]}
    for known in prior.KNOWN:
        judged[f"own chats, as {known}"] = [
            np.array([table.worth(turn.text, known) for turn in chat.turns]) for chat in chats
        ]
        judged[f"the other chats of LoCoMo, as {known}"] = [
            np.array([others[chat.id].worth(turn.text, known) for turn in chat.turns])
            for chat in chats
        ]
    rows = [
        [name, *(f"{prior.evidence_held(chats, worths, share):.3f}" for share in SHARES)]
        for name, worths in judged.items()
    ]
    typer.echo("Evidence turns of LoCoMo held among the best turns, by the source of the weights:")
    typer.echo(markdown_table(["kept", *(f"{share:.0%}" for share in SHARES)], rows))
