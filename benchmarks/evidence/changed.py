"""Statements of real answers, true and with a number, a name or a negation changed.

Statements are made from the answers of MTRAG: those of which most words stand, in order, in one
sentence of a relevant passage. The changes know English and nothing of the package's own reading.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from ecs_plugins.common.text import sentence_spans, terms
from ecs_plugins.ranking.lexical import BM25Ranker
from ecs_plugins.shaping.attribution.statements import statements_of

PASSAGES = 12
"""Passages of each statement: the relevant ones, and those that BM25 takes for them."""
IN_ORDER = 0.8
"""Share of a statement's words that one sentence has in order."""
FEWEST_WORDS = 6
CHANGES = ("number", "name", "negation")

_NUMBER = re.compile(r"(?<![\w.,:/-])\d+(?:[.,]\d+)*(?![\w:/])")
_SPELT_LIST = "two three four five six seven eight nine ten eleven twelve twenty thirty fifty"
_SPELT = _SPELT_LIST.split()
_SPELT_NUMBER = re.compile(rf"\b(?:{'|'.join(_SPELT)})\b")
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][\w'’-]+(?: [A-Z][\w'’-]+)*")
_AUXILIARY = re.compile(
    r"\b(?:is|was|are|were|has|have|had|can|could|will|would|may|might|must|should)\b(?! not|n't)"
)
_DENIED = re.compile(r"\b(?:not|never) |(?<=[a-z])n['’]t\b|\b[Nn]o (?=[a-z])")


@dataclass(frozen=True, slots=True)
class TrueStatement:
    """A statement of an answer, its passages, and false statements made from it.

    Attributes:
        id: The task of its answer.
        question: The question that was answered.
        text: The statement.
        passages: Texts that it is held against, in random order.
        relevant: Places of the relevant ones.
        changed: False statements by what was changed.
    """

    id: str
    question: str
    text: str
    passages: tuple[str, ...]
    relevant: tuple[int, ...]
    changed: Mapping[str, str]


def true_statements(path: Path, limit: int, seed: int, part: int = 0) -> list[TrueStatement]:
    """Return statements of answers that repeat a sentence of their passages.

    Args:
        path: The file of MTRAG-UN.
        limit: How many.
        seed: Of every draw.
        part: 0 or 1: the answers are divided in two halves.
    """
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    documents: dict[str, str] = data["documents"]
    order = list(documents)
    ranker = BM25Ranker()
    made: list[TrueStatement] = []
    draw = random.Random(f"{seed}:{part}")
    tasks = [task for place, task in enumerate(data["tasks"]) if place % 2 == part]
    draw.shuffle(tasks)
    for task in tasks:
        relevant = [id for id in task["relevant"] if id in documents]
        statements = _repeated(task["answer"], [documents[id] for id in relevant])
        if not statements:
            continue
        question = task["turns"][-1]["text"]
        scores = ranker.rank(f"{question} {task['answer']}", [documents[id] for id in order]).scores
        best = sorted(range(len(order)), key=lambda place: -scores[place])
        others = [order[place] for place in best if order[place] not in relevant]
        ids = relevant + others[: max(0, PASSAGES - len(relevant))]
        draw.shuffle(ids)
        passages = tuple(documents[id] for id in ids)
        places = tuple(place for place, id in enumerate(ids) if id in relevant)
        for text in statements:
            changed = changes_of(text, [documents[id] for id in relevant], draw)
            statement = TrueStatement(task["task_id"], question, text, passages, places, changed)
            made.append(statement)
            if len(made) == limit:
                return made
    return made


def _repeated(answer: str, passages: Iterable[str]) -> list[str]:
    """Return the statements of an answer that a sentence repeats, verbatim or lightly edited."""
    sentences = [
        terms(passage[start:end]) for passage in passages for start, end in sentence_spans(passage)
    ]
    repeated: list[str] = []
    for statement in statements_of(answer):
        words = terms(statement.text)
        if len(words) >= FEWEST_WORDS and any(
            _in_order(words, sentence) >= IN_ORDER for sentence in sentences
        ):
            repeated.append(statement.text)
    return repeated


def _in_order(words: Sequence[str], sentence: Sequence[str]) -> float:
    blocks = SequenceMatcher(None, words, sentence, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks) / len(words)


def changes_of(text: str, passages: Sequence[str], draw: random.Random) -> dict[str, str]:
    """Return the text with one thing changed, by what was changed; empty if nothing can be."""
    changed = {
        "number": with_other_number(text, draw),
        "name": with_other_name(text, passages, draw),
        "negation": with_other_negation(text),
    }
    return {kind: other for kind, other in changed.items() if other}


def with_other_number(text: str, draw: random.Random) -> str:
    """Return the text with another number in digits or words; empty if it has none."""
    matches = [*_NUMBER.finditer(text), *_SPELT_NUMBER.finditer(text)]
    if not matches:
        return ""
    match = draw.choice(matches)
    written = match.group()
    if not written[0].isdigit():
        other = draw.choice([word for word in _SPELT if word != written])
    else:
        other = _other_digits(written, draw)
    return f"{text[: match.start()]}{other}{text[match.end() :]}"


def _other_digits(written: str, draw: random.Random) -> str:
    """Return a number that looks alike: one digit before the point is another one."""
    whole = re.match(r"[\d,]+", written)
    assert whole is not None
    places = [place for place in range(whole.end()) if written[place].isdigit()]
    place = draw.choice(places)
    digit = draw.choice([each for each in "123456789" if each != written[place]])
    return f"{written[:place]}{digit}{written[place + 1 :]}"


def with_other_name(text: str, passages: Sequence[str], draw: random.Random) -> str:
    """Return the text with another name of its passages; empty if it has none."""
    matches = list(_NAME.finditer(text))
    words = set(text.lower().split())
    names = {match.group() for passage in passages for match in _NAME.finditer(passage)}
    others = sorted(name for name in names if words.isdisjoint(name.lower().split()))
    if not matches or not others:
        return ""
    match = draw.choice(matches)
    return f"{text[: match.start()]}{draw.choice(others)}{text[match.end() :]}"


def with_other_negation(text: str) -> str:
    """Return the text without its negation, or with one; empty if it takes none."""
    if _DENIED.search(text):
        return _DENIED.sub("", text, count=1)
    match = _AUXILIARY.search(text)
    return f"{text[: match.end()]} not{text[match.end() :]}" if match else ""
