"""Part 2: a memory that holds a fifth of a conversation.

`EntropicMemory` gets the conversation turn by turn, with sleep phases. Half of the questions are
asked at the end of the session that answers them. Then the file is closed and opened again, and all
questions are asked.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
from rich.text import Text

from benchmarks.intervals import interval
from ecs_plugins.memory import EntropicMemory, MemoryConfig, StoreConfig
from ecs_plugins.memory.prior import worth
from ecs_plugins.memory.records import Memory
from ecs_plugins.ranking.embedder import Embedder
from examples.demo.context import Demo, shorten, table
from examples.demo.data import Question, Turn

HOT, COLD = 10, 40
"""Capacity of the tiers: together a fifth of the turns."""
RECALLED = 3
SHOWN = 3

Behind = Callable[[Sequence[str]], list[Turn]]
"""Function from message ids to their turns, in order."""


def run(demo: Demo) -> None:
    """Tell, sleep, close, open, ask."""
    if demo.embedder is None:
        demo.say('Left out: a memory needs an embedder: pip install "ecs-plugins[offline]"')
        return
    chat = demo.chat
    demo.say(
        f"{len(chat.turns)} turns of a chat of three friends, in {chat.sessions} sessions, are "
        f"added to a memory of {HOT + COLD} items. What does it still know?\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "memory.db"
        with _open(file, demo.embedder, demo.seed) as memory:
            behind = tell(demo, memory, chat.questions[::2])
            kept = held(memory, behind)
            before = _asked(memory, chat.questions)
        with _open(file, demo.embedder, demo.seed) as memory:
            after = _asked(memory, chat.questions)
            sound = memory.admin.verify().ok
    _show_kept(demo, kept)
    _show_recalled(demo, after, behind)
    found = [_holds(items, question, behind) for question, items in after]
    same = sum(map(_same, before, after))
    shares = _shares(chat.turns, kept, chat.questions)
    conclusion = concluded(shares, found, same, sound=sound)
    demo.say(conclusion)
    demo.results["memory"] = {
        "turns": len(chat.turns),
        "kept": len(kept),
        "evidence": {name: fmean(share) for name, share in shares.items()},
        "found": fmean(found),
        "same": same,
        "questions": len(chat.questions),
        "sound": sound,
        "conclusion": conclusion,
    }


def _open(file: Path, embedder: Embedder, seed: int) -> EntropicMemory:
    config = MemoryConfig(
        hot_capacity=HOT,
        cold_capacity=COLD,
        sleep_every=5,
        merge_threshold=0.75,  # the speakers' names alone make these turns alike
        proposal="medoid",
    )
    return EntropicMemory.open(file, embedder=embedder, config=config, store=StoreConfig(seed=seed))


def tell(demo: Demo, memory: EntropicMemory, asked: Sequence[Question]) -> Behind:
    """Add every turn; after each session ask its questions."""
    turns = demo.chat.turns
    assert demo.embedder is not None
    demo.embedder.embed_documents([turn.said for turn in turns])  # faster than one by one
    last = {turn.date: turn.id for turn in turns}
    date_of = {turn.id: turn.date for turn in turns}
    due: dict[str, list[Question]] = {}
    for question in asked:
        due.setdefault(last[date_of[max(question.evidence)]], []).append(question)
    turn_of: dict[str, Turn] = {}
    for turn in demo.progress("telling turns", turns):
        (name,) = memory.add(turn.said, metadata={"date": turn.date})
        turn_of[name] = turn
        for question in due.get(turn.id, ()):
            memory.recall(question.question)
            memory.observe(question.question, question.answer)
    return lambda names: sorted((turn_of[name] for name in names), key=lambda turn: turn.id)


def held(memory: EntropicMemory, behind: Behind) -> list[Turn]:
    """Return the turns of all items that a recall can find."""
    every = memory.recall("all of it", k=HOT + COLD, threshold=-1.0, record=False)
    turns = {turn for item in every for turn in behind(item.provenance)}
    return sorted(turns, key=lambda turn: turn.id)


def _asked(
    memory: EntropicMemory, questions: Sequence[Question]
) -> list[tuple[Question, list[Memory]]]:
    found = []
    for question in questions:
        items = memory.recall(question.question, k=RECALLED, threshold=-1.0, record=False)
        found.append((question, items))
    return found


def _holds(items: Sequence[Memory], question: Question, behind: Behind) -> bool:
    """Return True if a recalled item comes from a turn of the evidence."""
    turns = {turn.id for item in items for turn in behind(item.provenance)}
    return bool(turns & set(question.evidence))


def _same(before: tuple[Question, list[Memory]], after: tuple[Question, list[Memory]]) -> bool:
    """Return True if both recalls have the same items and scores."""

    def seen(items: Sequence[Memory]) -> list[tuple[str, str, float]]:
        # The last bits of a score depend on how many vectors are compared at once.
        return [(item.id, item.text, round(item.score, 5)) for item in items]

    return seen(before[1]) == seen(after[1])


def _shares(
    turns: Sequence[Turn], kept: Sequence[Turn], questions: Sequence[Question]
) -> dict[str, list[bool]]:
    """Return for each store and question if any evidence is kept."""
    size = HOT + COLD
    stores: dict[str, Collection[Turn]] = {
        "the memory": kept,
        "the newest turns": turns[-size:],
        "the longest turns": sorted(turns, key=lambda turn: -len(turn.text))[:size],
    }
    shares = {}
    for name, store in stores.items():
        ids = {turn.id for turn in store}
        shares[name] = [bool(ids & set(question.evidence)) for question in questions]
    return shares


def _show_kept(demo: Demo, kept: Sequence[Turn]) -> None:
    """Show the most valuable kept turns and the least valuable removed ones."""
    left = [turn for turn in demo.chat.turns if turn not in kept]
    shown = table(["", "turn"])
    for turn in sorted(kept, key=lambda turn: -worth(turn.said))[:SHOWN]:
        shown.add_row("kept", Text(shorten(turn.said, 95)), style="green")
    for turn in sorted(left, key=lambda turn: worth(turn.said))[:SHOWN]:
        shown.add_row("let go", Text(shorten(turn.said, 95)), style="red")
    demo.console.print(shown)


def _show_recalled(
    demo: Demo, after: Sequence[tuple[Question, list[Memory]]], behind: Behind
) -> None:
    shown = table(["asked after a restart", "first recollection", "states the answer"])
    right = [pair for pair in after if _holds(pair[1][:1], pair[0], behind)]
    wrong = [pair for pair in after if pair not in right]
    for stated, pairs in (("yes", right[: SHOWN - 1]), ("no", wrong[:1])):
        for question, items in pairs:
            first = Text(shorten(items[0].text, 60)) if items else Text("nothing")
            shown.add_row(Text(question.question), first, stated)
    demo.console.print(shown)


def concluded(
    shares: dict[str, list[bool]], found: Sequence[bool], same: int, *, sound: bool
) -> str:
    """Return the conclusion: evidence kept and found, compared with simple rules."""
    own = np.asarray(shares["the memory"], float)
    parts = []
    for name, share in shares.items():
        if name == "the memory":
            continue
        difference = own - np.asarray(share, float)
        low, high = interval(np.mean, difference)
        word = "more than" if low > 0 else "LESS than" if high < 0 else "as much as"
        parts.append(f"{word} {name} ({fmean(share):.0%})")
    state = "sound" if sound else "DAMAGED"
    return (
        f"So a fifth of the turns keeps evidence for {own.mean():.0%} of {len(own)} questions, "
        f"{', '.join(parts)}; {fmean(found):.0%} find it among {RECALLED} recollections. After "
        f"the restart {same} of {len(own)} recall the same, and the file is {state}."
    )
