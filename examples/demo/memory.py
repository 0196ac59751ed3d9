"""Part 4: an agent's memory with room for a fifth of the conversation.

The conversation is told to `EntropicMemory` turn by turn, and slept over; questions are asked at
the end of the session that answers them, as people would. Shown is what the record says: what
was kept, merged and rejected, with the numbers that decided, and whether the file says the same
after it was closed and opened again.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from rich.text import Text

from ecs_plugins.memory import EntropicMemory, MemoryConfig
from ecs_plugins.memory.prior import worth
from ecs_plugins.memory.records import Recollection, RecordedDecision
from ecs_plugins.ranking.embedder import Embedder
from examples.demo.context import Demo, shorten, table
from examples.demo.data import Question, Repeated, Turn, choose

HOT, COLD = 10, 40
"""Items that a recall can find: a fifth of the turns."""
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

Behind = Callable[[Sequence[str]], list[Turn]]
"""The turns behind message ids, in order."""


def run(demo: Demo) -> None:
    """Tell, sleep, ask, close, open, ask again."""
    if demo.embedder is None:
        demo.say(
            "Left out: a memory needs an embedder. Install it with: pip install "
            '"ecs-plugins[offline]"'
        )
        return
    asked = choose(demo.data.questions, demo.limit)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "memory.db"
        with _open(file, demo.embedder) as memory:
            behind = tell(demo, memory, asked)
            counts = _show_sleeps(demo, memory)
            decided = memory.replay()
            _show_decisions(demo, [each.recorded for each in decided], behind)
            kept = _show_memories(demo, memory, behind)
            prior = _show_prior(
                demo, {turn for _, turns in _kept(memory, behind) for turn in turns}
            )
            facts = _show_facts(demo, memory, behind)
            before = {question.id: _recall(memory, question.question) for question in asked}
        with _open(file, demo.embedder) as memory:
            after = {question.id: _recall(memory, question.question) for question in asked}
            sound = memory.admin.verify().ok
    demo.results["memory"] = {
        "turns": len(demo.data.turns),
        "room": HOT + COLD,
        "decisions": counts,
        "decisions recomputed alike": sum(each.agrees for each in decided),
        "memories": kept,
        "prior": prior,
        "facts": facts,
        "restart": _show_restart(demo, asked, before, after, behind, sound=sound),
    }


def _open(file: Path, embedder: Embedder) -> EntropicMemory:
    config = MemoryConfig(
        hot_capacity=HOT,
        cold_capacity=COLD,
        sleep_every=5,
        merge_threshold=0.75,  # the speakers' names alone make these turns alike
        proposal="medoid",
    )
    return EntropicMemory.open(file, embedder=embedder, config=config)


def tell(demo: Demo, memory: EntropicMemory, asked: Sequence[Question]) -> Behind:
    """Add every turn; after each session, ask what can be answered by then."""
    turns = demo.data.turns
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
            found = memory.recall(question.question)
            memory.observe(question.question, question.answer, [item.id for item in found])
    return lambda names: sorted((turn_of[name] for name in names), key=lambda turn: turn.id)


def _recall(memory: EntropicMemory, question: str, k: int = RECALLED) -> list[Recollection]:
    return memory.recall(question, k=k, threshold=-1.0, record=False)


def _show_sleeps(demo: Demo, memory: EntropicMemory) -> dict[str, int]:
    sleeps = memory.sleeps()
    counts: Counter[str] = Counter()
    for report in sleeps:
        counts.update({str(kind): count for kind, count in report.counts.items()})
    demo.say(
        f"{len(demo.data.turns)} turns told to a memory of {HOT} + {COLD} items. "
        f"{len(sleeps)} sleep phases, {sum(report.seconds for report in sleeps):.1f} s in all: "
        + ", ".join(f"{count} {_KINDS[kind]}" for kind, count in counts.most_common())
        + "."
    )
    return dict(counts)


def _show_decisions(demo: Demo, recorded: Sequence[RecordedDecision], behind: Behind) -> None:
    """A few decisions of each kind, the closest ones, with what decided them."""
    shown = table(
        "What was decided, and by which numbers",
        ["decision", "what was said"],
        ["said", "F", "F of the weakest", "P", "draw"],
    )
    for kind in ("replace", "reject", "reinforce"):
        alike = [each.decision for each in recorded if each.decision.kind == kind]
        alike.sort(key=lambda each: (-each.support, -(each.probability or 0.0)))
        for decision in alike[:SHOWN]:
            numbers = (
                decision.candidate and decision.candidate.total,
                decision.victim and decision.victim.total,
                decision.probability,
                decision.draw,
            )
            shown.add_row(
                _KINDS[kind],
                Text(shorten(behind(decision.members)[-1].said, 90)),
                str(decision.support),
                *("" if number is None else f"{number:.2f}" for number in numbers),
            )
    demo.console.print(shown)


def _show_memories(demo: Demo, memory: EntropicMemory, behind: Behind) -> list[dict[str, object]]:
    """The memories that most was merged into, on arrival or in a sleep phase."""
    kept = _kept(memory, behind)
    merged = [(text, turns) for text, turns in kept if len(turns) > 1]
    shown = table(
        "What was merged: one memory, several turns", ["says", "also said in its place"], ["turns"]
    )
    for text, turns in sorted(merged, key=lambda pair: -len(pair[1]))[:SHOWN]:
        other = next((turn.said for turn in turns if turn.said != text), text)
        shown.add_row(Text(shorten(text, 90)), Text(shorten(other, 90)), str(len(turns)))
    demo.console.print(shown)
    return [{"text": text, "turns": [turn.id for turn in turns]} for text, turns in kept]


def _kept(memory: EntropicMemory, behind: Behind) -> list[tuple[str, list[Turn]]]:
    return [(each.text, behind(each.provenance)) for each in memory.memories()]


def _show_prior(demo: Demo, kept: Collection[Turn]) -> dict[str, float]:
    """What turns are worth by their text alone, before anybody has asked for them."""
    ranked = sorted(demo.data.turns, key=lambda turn: -worth(turn.said))
    shown = table(
        "What a turn looks worth, before anybody asked for it", ["turn"], ["nats", "kept"]
    )
    for turn in (*ranked[:SHOWN], *ranked[-SHOWN:]):
        held = "yes" if turn in kept else "no"
        shown.add_row(Text(shorten(turn.said, 100)), f"{worth(turn.said):+.2f}", held)
    demo.console.print(shown)
    answering = {name for question in demo.data.questions for name in question.evidence}
    groups = {
        "answer a question": [turn for turn in ranked if turn.id in answering],
        "answer none": [turn for turn in ranked if turn.id not in answering],
        "look least like it (a third)": ranked[-len(ranked) // 3 :],
    }
    out = {label: sum(t in kept for t in turns) / len(turns) for label, turns in groups.items()}
    demo.say(
        "Kept: "
        + ", ".join(f"{share:.0%} of the turns that {label}" for label, share in out.items())
        + "."
    )
    return out


def _show_facts(demo: Demo, memory: EntropicMemory, behind: Behind) -> dict[str, object]:
    """What is left at the end of the facts that the conversation repeats."""
    columns = ["told", "behind items in memory", "in one of them"]
    shown = table("Facts that were told again and again", ["fact"], columns)
    out: dict[str, object] = {}
    for fact in demo.data.repeated_facts:
        every = _recall(memory, fact.text, k=HOT + COLD)
        held = held_of(fact, [behind(item.provenance) for item in every])
        told = {"told": len(fact.turns), "held": sum(held), "most": max(held, default=0)}
        shown.add_row(Text(fact.text), *map(str, told.values()))
        out[fact.text] = told
    demo.console.print(shown)
    return out


def held_of(fact: Repeated, groups: Sequence[Sequence[Turn]]) -> list[int]:
    """How many tellings of a fact stand behind each item that holds any."""
    counts = (len({turn.id for turn in group} & set(fact.turns)) for group in groups)
    return [count for count in counts if count]


def _show_restart(
    demo: Demo,
    asked: Sequence[Question],
    before: dict[str, list[Recollection]],
    after: dict[str, list[Recollection]],
    behind: Behind,
    *,
    sound: bool,
) -> dict[str, object]:
    """What the file says after it was opened again."""
    shown = table(
        "After closing the file and opening it again",
        ["question", "first recollection"],
        ["score", "states the answer"],
    )
    same = found = 0
    for number, question in enumerate(asked):
        items = after[question.id]
        hits = [
            any(turn.id in question.evidence for turn in behind(item.provenance)) for item in items
        ]
        found += any(hits)
        same += _seen(before[question.id]) == _seen(items)
        if number < SHOWN:
            first = Text(shorten(items[0].text, 100))
            right = "yes" if hits[0] else "no"
            shown.add_row(Text(question.question), first, f"{items[0].score:.2f}", right)
    demo.console.print(shown)
    demo.say(
        f"{same} of {len(asked)} questions recall the same as before, with the same scores; "
        f"the file is {'sound' if sound else 'DAMAGED'}. Evidence is among the first "
        f"{RECALLED} for {found} of {len(asked)}, from a fifth of the conversation."
    )
    return {"questions": len(asked), "same": same, "sound": sound, "with evidence": found}


def _seen(found: Sequence[Recollection]) -> list[tuple[str, str, float]]:
    # The last bits of a score depend on how many vectors are compared at once.
    return [(item.id, item.text, round(item.score, 5)) for item in found]
