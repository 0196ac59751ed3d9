"""Rules of a memory next to ten-line baselines: outdating, long messages, refusals.

Own texts, written for this comparison after the rules (``datasets/memory_rules.json``).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import benchmarks.datasets
from ecs_plugins.memory import EntropicMemory
from ecs_plugins.memory.outdating import OutdatingJudge, Statement
from ecs_plugins.memory.store import intake
from ecs_plugins.ranking.embedder import Embedder

DATA = Path(benchmarks.datasets.__file__).with_name("memory_rules.json")
_SENTENCES = {"900": 12, "2,600": 36}
_EVERY_ANSWER = 4  # of MTRAG is asked again
_OTHERS = 8  # statements in a memory besides a reply
_NEVER = 2.0  # a cosine that none reaches


class KnowingJudge:
    """Judge that knows the changes of the data, and errs on a share of its verdicts."""

    def __init__(self, changes: Sequence[Sequence[str]], errors: float) -> None:
        self._changes = {(new, old) for old, new, _ in changes}
        self._errors = errors
        self._draw = random.Random(0)

    def judge(self, new: Statement, older: Sequence[Statement], /) -> Sequence[float]:
        """See `OutdatingJudge.judge`."""
        right = [(new.text, each.text) in self._changes for each in older]
        return [float(each != (self._draw.random() < self._errors)) for each in right]


@contextmanager
def _memory(
    embedder: Embedder, texts: Sequence[Any], judge: OutdatingJudge | None = None
) -> Iterator[EntropicMemory]:
    """Open a memory in which texts were said one minute apart."""
    with EntropicMemory.open(embedder=embedder, judge=judge) as memory:
        for minute, text in enumerate(texts):
            role, words = text if isinstance(text, tuple) else ("user", text)
            memory.add(words, role=role, at=1.7e9 + 60 * minute)
        memory.admin.wait()
        yield memory


def outdating(data: Any, embedder: Embedder) -> list[list[str]]:
    """Count the questions whose true statement comes first: after a change, and without one."""
    changes, kept = data["changes"], data["kept"]
    texts = [row[0] for row in (*changes, *kept)] + [row[1] for row in (*changes, *kept)]
    rows = []
    for name, errors in (("no rule", None), ("a judge that is right", 0.0), ("errs in 10 %", 0.1)):
        judge = None if errors is None else KnowingJudge(changes, errors)
        counts = {"first": [0, 0], "newest of the first two": [0, 0]}
        with _memory(embedder, texts, judge) as memory:
            for kind, cases in enumerate((changes, kept)):
                for old, new, question in cases:
                    best = memory.recall(question, k=3, record=False)
                    true = old if kind else new
                    newest = max(best[:2], key=lambda each: each.created, default=None)
                    counts["first"][kind] += bool(best) and best[0].text == true
                    counts["newest of the first two"][kind] += (
                        newest is not None and newest.text == true
                    )
        for order, (changed, unchanged) in counts.items():
            if order == "first" or errors is None:
                outcome = [f"{changed} of {len(changes)}", f"{unchanged} of {len(kept)}"]
                rows.append([name if order == "first" else order, *outcome])
    return rows


def long_messages(data: Any, embedder: Embedder) -> list[list[str]]:
    """Count the facts of long messages that are found among three, by parts and by the whole."""
    shorts = [row[0] for row in data["kept"]]
    rows = []
    for length, count in _SENTENCES.items():
        texts = [(fact, _hidden(data, fact, count, n)) for n, (fact, *_) in enumerate(data["long"])]
        with _memory(embedder, [*(text for _, text in texts), *shorts]) as memory:
            finders = {"its sentences": memory._store.near_parts, "the whole": lambda *_: None}
            for name, near_parts in finders.items():
                memory._store.near_parts = near_parts
                found = [0, 0]
                for fact, *questions in data["long"]:
                    for kind, question in enumerate(questions):
                        best = memory.recall(question, k=3, record=False)
                        found[kind] += any(fact in each.text for each in best)
                noise = sum(bool(memory.recall(each, record=False)) for each in data["unrelated"])
                outcome = [f"{each} of {len(texts)}" for each in found]
                rows.append([f"{length} characters, {name}", *outcome, f"{noise} of 10"])
    return rows


def _hidden(data: Any, fact: str, count: int, number: int) -> str:
    """Return a long message with a fact at its begin, in its middle or at its end."""
    filler = data["filler"]
    lines = [filler[(5 * number + place) % len(filler)] for place in range(count)]
    lines.insert((0, count // 2, count)[number % 3], fact)
    return " ".join(lines)


def refusals(data: Any, mtrag: Path | None, embedder: Embedder) -> list[list[str]]:
    """Count the replies that are recalled when their questions are asked again."""
    replies = {"own": (data["refusals"], data["answers"])}
    if mtrag is not None:
        kinds: tuple[list[Any], list[Any]] = ([], [])
        for task in json.loads(mtrag.read_text(encoding="utf-8"))["tasks"]:
            is_answer = "UNANSWERABLE" not in task["answerability"]
            kinds[is_answer].append((task["turns"][-1]["text"], task["answer"]))
        replies["MTRAG"] = (kinds[0], kinds[1][::_EVERY_ANSWER])
    shipped = (intake._ADDS, intake._REFUSES)
    rows = []
    for name, kinds_of_reply in replies.items():
        for rule, (adds, refuses) in {
            "read with its question": (-1.0, _NEVER),
            "alone if it adds little": (shipped[0], _NEVER),
            "and if it is near a refusal": shipped,
        }.items():
            row = [f"{name}, {rule}"]
            with patch.multiple(intake, _ADDS=adds, _REFUSES=refuses):
                for pairs in kinds_of_reply:
                    again = sum(_is_recalled(data, embedder, *pair) for pair in pairs)
                    row.append(f"{again} of {len(pairs)}")
            rows.append(row)
    return rows


def _is_recalled(data: Any, embedder: Embedder, question: str, reply: str) -> bool:
    """Return True if a reply is recalled when its question is asked again."""
    others = [row[0] for row in data["kept"][:_OTHERS]]
    with _memory(embedder, [*others, question, ("assistant", reply)]) as memory:
        return any(each.text == reply for each in memory.recall(question, record=False))
