"""``python -m benchmarks bounded-chat``: evidence that a small memory keeps of a long chat."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ecs_plugins.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.bounded_chat.comparison import ChatProtocol, ChatResults
    from benchmarks.bounded_chat.stores import StoreFactory

LONGEST = "Longest turns"
HEAP = "Heap by the prior"

HELP = """Bounded memory on LoCoMo or LongMemEval: evidence recall@k at the end, by capacity.

Half of the questions are asked while the chat goes on, the others at its end.

\b
  python -m benchmarks bounded-chat --data locomo10.json --out DIR
  python -m benchmarks bounded-chat --data locomo10.json --out DIR \\
      --limit 1 --turns 200 --capacities 10 --variants default,paper
"""


def bounded_chat(
    data: Annotated[Path, typer.Option(help="The JSON file of LoCoMo or LongMemEval.")],
    out: Annotated[Path, typer.Option(help="Folder for runs, tables and embeddings.")],
    capacities: Annotated[
        str, typer.Option(help="Items that may be searched, in percent of the turns.")
    ] = "1,2,5,10,20,50,100",
    variants: Annotated[
        str,
        typer.Option(help="Of Entropic Memory, separated by commas: default, paper."),
    ] = "default,paper",
    k: Annotated[str, typer.Option(help="Values of k.")] = "5,10",
    split: Annotated[
        str,
        typer.Option(
            help="Which half is asked on the way: 'interleaved' (every other question, by the "
            "time of its evidence), 'chronological' (the first half), or 'end' (nothing)."
        ),
    ] = "interleaved",
    by_session: Annotated[
        bool,
        typer.Option("--by-session", help="Count sessions found, not turns; as for LongMemEval."),
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many chats.")] = None,
    skip: Annotated[
        int, typer.Option(min=0, help="Leave out the first chats: those that settings come from.")
    ] = 0,
    turns: Annotated[int | None, typer.Option(min=20, help="Only so many turns of each.")] = None,
) -> None:
    """See `HELP`, which the command line shows."""
    from benchmarks.bounded_chat import chats as chat_data
    from benchmarks.bounded_chat import comparison as bench
    from ecs_plugins.ranking.embedder import default_embedder

    protocol = _protocol(capacities, k, split)
    ours = _chosen(variants)
    chats = chat_data.read_chats(data)[skip : None if limit is None else skip + limit]
    if turns is not None:
        chats = [chat_data.beginning(chat, turns) for chat in chats]
    chats = [
        replace(chat, by_session=chat.by_session or by_session)
        for chat in chats
        if len(chat.questions) > 1
    ]
    if not chats:
        raise InvalidInputError("no chat with two questions is left; --skip fewer or more --turns")
    out.mkdir(parents=True, exist_ok=True)
    console = Console()
    embedder = chat_data.CachedEmbedder(default_embedder(), out / "embeddings.npz")
    with console.status("embedding"):
        chat_data.embed_chats(embedder, chats)
    stores = _compared(ours)
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bar:
        job = bar.add_task("runs", total=None)
        results = bench.compare(
            chats,
            stores,
            embedder,
            protocol,
            progress=lambda done, total: bar.update(job, completed=done, total=total),
        )
    record = {
        "embedder": embedder.name,
        "chats": [
            {"id": chat.id, "turns": len(chat.turns), "questions": len(chat.questions)}
            for chat in chats
        ],
        **results.to_json(),
    }
    (out / "bounded_chat.json").write_text(json.dumps(record), encoding="utf-8")
    report = _report(results, list(ours))
    (out / "bounded_chat.md").write_text(report, encoding="utf-8")
    console.print(Markdown(report))

    console.print(f"wrote bounded_chat.json and .md to {out}", markup=False)


def _protocol(capacities: str, k: str, split: str) -> ChatProtocol:
    from benchmarks.bounded_chat.chats import Split
    from benchmarks.bounded_chat.comparison import ChatProtocol

    if split not in get_args(Split):
        raise InvalidInputError(f"--split is {split!r}; use one of {', '.join(get_args(Split))}")
    try:
        shares = tuple(float(each) / 100 for each in capacities.split(","))
        ks = tuple(int(each) for each in k.split(","))
    except ValueError as error:
        raise InvalidInputError(
            "--capacities and --k are numbers separated by commas, such as 2,5,10"
        ) from error
    return ChatProtocol(capacities=shares, ks=ks, split=cast("Split", split))


def _chosen(names: str) -> dict[str, StoreFactory]:
    """Return the variants of these names."""
    from benchmarks.bounded_chat import variants as ours

    known = ours.variants()
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in chosen if name not in known]
    if unknown or not chosen:
        raise InvalidInputError(
            f"Unknown variants: {', '.join(unknown) or 'none given'}. "
            f"Choose from {', '.join(known)}."
        )
    return {name: known[name] for name in chosen}


def _compared(ours: Mapping[str, StoreFactory]) -> dict[str, StoreFactory]:
    from benchmarks.bounded_chat.stores import baselines, references
    from benchmarks.bounded_chat.variants import Heap, Longest

    named = {_shown(name): make for name, make in ours.items()}
    return {**baselines(), LONGEST: Longest, HEAP: Heap, **named, **references()}


def _shown(name: str) -> str:
    return f"Entropic, {name}"


def _report(results: ChatResults, ours: list[str]) -> str:
    from benchmarks.bounded_chat.report import costs, differences, markdown
    from benchmarks.bounded_chat.stores import baselines

    shown, rivals = [_shown(name) for name in ours], list(baselines())
    parts = []
    for k in results.protocol.ks:
        parts += [
            f"Evidence recall@{k}, {results.protocol.split} questions, the words of the turn:",
            markdown(results, k, bounded=[*rivals, LONGEST, HEAP, *shown]),
            f"Minus the best of {', '.join(rivals)}, with 95 % intervals over chats and questions:",
            differences(results, k, ours=[LONGEST, *shown], baselines=rivals),
            "Minus the longest turns:",
            differences(results, k, ours=shown, baselines=[LONGEST]),
            "Minus the heap by the prior:",
            differences(results, k, ours=shown, baselines=[HEAP]),
            f"Evidence recall@{k}, any turn behind what is recalled:",
            markdown(results, k, bounded=(), count="provenance"),
            f"Milliseconds per turn told, and tokens that a recall of {k} returns:",
            costs(results, k),
        ]
    return "\n".join(parts)
