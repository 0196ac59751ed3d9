"""Part 4: an agent's memory with room for a fifth of the conversation.

The conversation is told to `EntropicMemory` turn by turn, and slept over; questions are asked at
the end of the session that answers them, as people would. Shown is what the record says: what
was kept, merged and rejected, with the numbers that decided, and whether the file says the same
after it was closed and opened again.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from examples.demo.context import Demo, shorten
from examples.demo.data import Question, RepeatedFact, Turn, choose

if TYPE_CHECKING:
    from ecs_plugins.memory.config import MemoryConfig
    from ecs_plugins.memory.entropic import EntropicMemory
    from ecs_plugins.memory.records import Recollection, RecordedDecision, ReplayedDecision
    from ecs_plugins.ranking.embedder import Embedder

HOT, COLD = 10, 40
"""Items that a recall can find: a fifth of the turns."""
SLEEP_EVERY = 5
RECALLED = 3
SHOWN = 3

_KINDS = {
    "insert": "kept (there was room)",
    "replace": "kept (weakest went)",
    "reinforce": "merged",
    "reject": "rejected",
    "evict": "evicted",
    "discard": "discarded",
}


@dataclass(frozen=True, slots=True)
class Told:
    """A conversation after it was told: which message is which turn."""

    turn_of: dict[str, Turn]

    def turns(self, messages: Sequence[str]) -> list[Turn]:
        """The turns behind message ids, in order."""
        return sorted((self.turn_of[name] for name in messages), key=lambda turn: turn.id)


def run(demo: Demo) -> None:
    """Tell, sleep, ask, close, open, ask again."""
    if demo.embedder is None:
        demo.console.print(
            "[yellow]Left out: a memory needs an embedder. Install it with: pip install "
            '"ecs-plugins\\[offline]"[/]'
        )
        return
    asked = choose(demo.data.questions, demo.limit)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "memory.db"
        with _open(file, demo.embedder) as memory:
            told = tell(demo, memory, asked)
            _show_sleeps(demo, memory)
            decided = memory.replay()
            _show_decisions(demo, [each.recorded for each in decided], told)
            _show_merged(demo, memory, told)
            facts = _show_facts(demo, memory, told)
            before = {question.id: _recall(memory, question) for question in asked}
            kept = memory.memories()
        restart = _restart(demo, file, demo.embedder, asked, before, told)
    demo.results["memory"] = {
        "turns": len(demo.data.turns),
        "room": HOT + COLD,
        "sleeps": len({each.recorded.sleep for each in decided}),
        "decisions": dict(Counter(str(each.recorded.decision.kind) for each in decided)),
        "decisions recomputed alike": _alike(decided),
        "memories": [
            {"text": each.text, "turns": [turn.id for turn in told.turns(each.provenance)]}
            for each in kept
        ],
        "facts": facts,
        "restart": restart,
    }


def _config() -> MemoryConfig:
    from ecs_plugins.memory.config import MemoryConfig

    return MemoryConfig(
        hot_capacity=HOT,
        cold_capacity=COLD,
        sleep_every=SLEEP_EVERY,
        merge_threshold=0.75,  # the speakers' names alone make these turns alike
        proposal="medoid",
        threshold=0.5,
    )


def _open(file: Path, embedder: Embedder) -> EntropicMemory:
    from ecs_plugins.memory.entropic import EntropicMemory

    return EntropicMemory.open(file, embedder=embedder, config=_config())


def tell(demo: Demo, memory: EntropicMemory, asked: Sequence[Question]) -> Told:
    """Add every turn; after each session, ask what can be answered by then."""
    turns = demo.data.turns
    assert demo.embedder is not None
    texts = [_said(turn) for turn in turns]
    demo.embedder.embed_documents(texts)  # all at once: faster than one by one
    last = {turn.date: turn.id for turn in turns}
    date_of = {turn.id: turn.date for turn in turns}
    due: dict[str, list[Question]] = {}
    for question in asked:
        due.setdefault(last[date_of[max(question.evidence)]], []).append(question)
    turn_of: dict[str, Turn] = {}
    with demo.progress("telling turns", len(turns)) as bar:
        for turn, text in zip(turns, texts, strict=True):
            (name,) = memory.add(text, metadata={"date": turn.date})
            turn_of[name] = turn
            for question in due.get(turn.id, ()):
                found = memory.recall(question.question)
                memory.observe(question.question, question.answer, [item.id for item in found])
            bar.advance(bar.task_ids[0])
    return Told(turn_of)


def _said(turn: Turn) -> str:
    return f"{turn.speaker}: {turn.text}"


def _recall(memory: EntropicMemory, question: Question) -> list[Recollection]:
    return memory.recall(question.question, k=RECALLED, threshold=-1.0, record=False)


def _show_sleeps(demo: Demo, memory: EntropicMemory) -> None:
    sleeps = memory.sleeps()
    counts: Counter[str] = Counter()
    for report in sleeps:
        counts.update(report.counts)
    done = ", ".join(f"{count} {_KINDS[kind]}" for kind, count in counts.most_common())
    demo.console.print(
        f"{len(demo.data.turns)} turns told to a memory of {HOT} + {COLD} items. "
        f"{len(sleeps)} sleep phases, {sum(report.seconds for report in sleeps):.1f} s in all: "
        f"{done}.",
        highlight=False,
        markup=False,
    )


def _show_decisions(demo: Demo, recorded: Sequence[RecordedDecision], told: Told) -> None:
    """A few decisions of each kind, the closest ones, with what decided them."""
    table = Table(title="What was decided, and by which numbers", title_justify="left")
    table.add_column("decision", no_wrap=True)
    table.add_column("what was said", ratio=1)
    table.add_column("said", justify="right")
    for column in ("F", "F of the weakest", "P", "draw"):
        table.add_column(column, justify="right", no_wrap=True)
    for kind in ("replace", "reject", "reinforce"):
        alike = [each for each in recorded if each.decision.kind == kind]
        alike.sort(key=lambda each: (-each.decision.support, -(each.decision.probability or 0.0)))
        for each in alike[:SHOWN]:
            decision = each.decision
            text = _said(told.turns(decision.members)[-1])
            numbers = (
                decision.candidate and decision.candidate.total,
                decision.victim and decision.victim.total,
                decision.probability,
                decision.draw,
            )
            table.add_row(
                _KINDS[kind],
                Text(shorten(text, 90)),
                str(decision.support),
                *("" if number is None else f"{number:.2f}" for number in numbers),
            )
    demo.console.print(table)


def _show_merged(demo: Demo, memory: EntropicMemory, told: Told) -> None:
    """The memories that most was merged into, on arrival or in a sleep phase."""
    merged = [each for each in memory.memories() if len(each.provenance) > 1]
    merged.sort(key=lambda each: -len(each.provenance))
    table = Table(title="What was merged: one memory, several turns", title_justify="left")
    table.add_column("turns", justify="right")
    table.add_column("says", ratio=1)
    table.add_column("also said in its place", ratio=1)
    for each in merged[:SHOWN]:
        turns = told.turns(each.provenance)
        others = [_said(turn) for turn in turns if _said(turn) != each.text] or [each.text]
        table.add_row(str(len(turns)), Text(shorten(each.text, 90)), Text(shorten(others[0], 90)))
    demo.console.print(table)


def _show_facts(demo: Demo, memory: EntropicMemory, told: Told) -> dict[str, object]:
    """What is left at the end of the facts that the conversation repeats."""
    table = Table(title="Facts that were told again and again", title_justify="left")
    table.add_column("fact", ratio=1)
    table.add_column("told", justify="right")
    table.add_column("behind items in memory", justify="right")
    table.add_column("in one of them", justify="right")
    out: dict[str, object] = {}
    for fact in demo.data.repeated_facts:
        every = memory.recall(fact.fact, k=HOT + COLD, threshold=-1.0, record=False)
        held = held_of(fact, [told.turns(item.provenance) for item in every])
        table.add_row(
            Text(fact.fact), str(len(fact.turns)), str(sum(held)), str(max(held, default=0))
        )
        out[fact.fact] = {"told": len(fact.turns), "held": sum(held), "most": max(held, default=0)}
    demo.console.print(table)
    return out


def held_of(fact: RepeatedFact, groups: Sequence[Sequence[Turn]]) -> list[int]:
    """How many tellings of a fact stand behind each item that holds any."""
    counts = (len({turn.id for turn in group} & set(fact.turns)) for group in groups)
    return [count for count in counts if count]


def _restart(
    demo: Demo,
    file: Path,
    embedder: Embedder,
    asked: Sequence[Question],
    before: dict[str, list[Recollection]],
    told: Told,
) -> dict[str, object]:
    """Open the file again and ask the same."""
    with _open(file, embedder) as memory:
        after = {question.id: _recall(memory, question) for question in asked}
        sound = memory.admin.verify()
    same = sum(_seen(before[name]) == _seen(after[name]) for name in before)
    table = Table(title="After closing the file and opening it again", title_justify="left")
    table.add_column("question", ratio=2)
    table.add_column("first recollection", ratio=3)
    table.add_column("cosine", justify="right", no_wrap=True)
    table.add_column("states the answer", no_wrap=True)
    found = 0
    for number, question in enumerate(asked):
        best = after[question.id][0]
        hit = any(
            turn.id in question.evidence
            for item in after[question.id]
            for turn in told.turns(item.provenance)
        )
        found += hit
        if number < SHOWN:
            right = any(turn.id in question.evidence for turn in told.turns(best.provenance))
            table.add_row(
                Text(question.question), Text(shorten(best.text, 100)), f"{best.score:.2f}",
                "yes" if right else "no",
            )  # fmt: skip
    demo.console.print(table)
    demo.console.print(
        f"{same} of {len(asked)} questions recall the same as before, with the same scores; "
        f"the file is {'sound' if sound.ok else 'DAMAGED'}. Evidence is among the first "
        f"{RECALLED} for {found} of {len(asked)}, from a fifth of the conversation.",
        highlight=False,
        markup=False,
    )
    return {"questions": len(asked), "same": same, "sound": sound.ok, "with evidence": found}


def _seen(found: Sequence[Recollection]) -> list[tuple[str, str, float]]:
    return [(item.id, item.text, item.score) for item in found]


def _alike(decided: Sequence[ReplayedDecision]) -> int:
    return sum(each.agrees for each in decided)
