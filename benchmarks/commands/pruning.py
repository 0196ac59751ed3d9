"""``python -m benchmarks pruning``: answers lost when sentences are removed from passages."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.progress import track

from benchmarks.commands import DataFile
from benchmarks.intervals import interval
from benchmarks.scored_once import ScoredOnce
from ecs_plugins.common.text import sentence_spans
from ecs_plugins.frontier import CalibrationQuestion
from ecs_plugins.frontier.journal import Journal
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.ranking.embedder import Embedder
from ecs_plugins.ranking.lexical import BM25Ranker
from ecs_plugins.shaping import ContextShaper, ShapedContext, ShapingConfig, Verdict
from ecs_plugins.shaping.choosing import KEPT_SHARE

HELP = """How often the answer's text survives when only sentences that help are kept.

\b
  python -m benchmarks pruning squad --data squad.json --out out/pruning-squad.db


Every question is on disk in --out before the next begins; the same command goes on from there.

Of SQuAD, HotpotQA or MuSiQue: the passages with the answer among others of the same article or
question. Beside the package, in as many characters: whole passages, best first; sentences by BM25
alone; and the package without a language model. Of HotpotQA also whether all supporting sentences
stay. Of the sample, questions that are answered by yes or no are left out: these words stand
anywhere.
"""
_KIND = ("ecs_plugins.pruning", 1)
_POLAR = frozenset({"yes", "no"})
PACKAGE = "sentences"
WHOLE = "whole passages"
BM25 = "BM25 sentences"
NO_MODEL = "no model"


@dataclass(frozen=True, slots=True)
class Left:
    """Result of a method on the passages of a question.

    Attributes:
        characters: How many there are.
        has_answer: Whether an answer stands in it.
        has_facts: Whether all supporting sentences do; None where they are not known.
    """

    characters: int
    has_answer: bool
    has_facts: bool | None = None


@dataclass(frozen=True, slots=True)
class Pruned:
    """One question at one share.

    Attributes:
        question: As asked.
        share: Of the characters of the selected passages that may stay.
        given: Characters of all passages.
        selected: The selected passages, whole.
        left: What stays of them, by method.
    """

    question: str
    share: float
    given: int
    selected: Left
    left: Mapping[str, Left]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Texts that should stay of the passages of a question.

    Attributes:
        answers: Any of these texts.
        facts: All of these sentences; none where they are not known.
    """

    answers: Sequence[str]
    facts: Sequence[str] = ()

    def left_in(self, text: str) -> Left:
        """Return the parts that a text contains."""
        has_answer = any(answer.casefold() in text.casefold() for answer in self.answers)
        has_facts = None
        if self.facts:
            has_facts = all(fact in text for fact in self.facts)
        return Left(len(text), has_answer, has_facts)


def pruning(
    dataset: Annotated[str, typer.Argument(help="squad, hotpotqa or musique.")],
    data: DataFile,
    limit: Annotated[int, typer.Option(min=1, help="A sample of so many questions.")] = 50,
    skip: Annotated[int, typer.Option(min=0, help="Leave out the first of the sample.")] = 0,
    passages: Annotated[int, typer.Option(min=2, help="Passages per question.")] = 10,
    top_k: Annotated[int | None, typer.Option(min=1, help="Kept before they are pruned.")] = None,
    share: Annotated[list[float] | None, typer.Option(help="Of the characters; several.")] = None,
    dtype: Annotated[str, typer.Option(help="Of the bundled model.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="Journal; printed only without it.")] = None,
    seed: Annotated[int, typer.Option(help="Of the sample and the other passages.")] = 42,
) -> None:
    """See `HELP`, which the command line shows."""
    from benchmarks.datasets.contexts import read_contexts
    from ecs_plugins.lm import LocalLM

    found = [q for q in read_contexts(dataset, data) if any(a in q.context.text for a in q.answers)]
    random.Random(seed).shuffle(found)
    model = LocalLM.bundled(dtype=dtype)
    chosen = [q for q in found[skip : skip + limit] if not _POLAR.issuperset(q.answers)]
    facts = supporting_sentences(data) if dataset == "hotpotqa" else {}
    shares = share or [KEPT_SHARE]
    identity = {
        "dataset": dataset,
        "dtype": dtype,
        "passages": passages,
        "seed": seed,
        "shares": shares,
        "top_k": top_k,
    }
    rows: list[Pruned] = []
    with closing(PruningJournal(out, identity)) as journal:
        for question in track(chosen, description=dataset):
            if question.id not in journal.rows:
                measured = measure(
                    model, [question], passages, facts=facts, shares=shares, top_k=top_k, seed=seed
                )
                journal.add(question.id, measured)
            rows += journal.rows[question.id]
    typer.echo("\n".join(summary(rows)))


class PruningJournal:
    """Rows on disk, by question.

    Args:
        path: The file, made if it is not there; None keeps nothing on disk.
        identity: Everything that the figures depend on; must equal that of the file.

    Attributes:
        rows: Question id -> its rows, one for each share.

    Raises:
        ConfigurationError: The file belongs to another measurement; says what differs.
        StorageError: It cannot be read or written, or is no journal.
    """

    def __init__(self, path: Path | None, identity: Mapping[str, object]) -> None:
        self.rows: dict[str, list[Pruned]] = {}
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._records = Journal(path, _KIND, identity)
        for record in self._records.records:
            self.rows[record["question"]] = [_row(each) for each in record["rows"]]

    def add(self, question: str, rows: Sequence[Pruned]) -> None:
        """Keep the rows of one question, on disk before this returns."""
        self._records.append({"question": question, "rows": [asdict(row) for row in rows]})
        self.rows[question] = list(rows)

    def close(self) -> None:
        """Close the file."""
        self._records.close()


def _row(stored: Mapping[str, Any]) -> Pruned:
    left = {method: Left(**each) for method, each in stored["left"].items()}
    return Pruned(**{**stored, "selected": Left(**stored["selected"]), "left": left})


def supporting_sentences(data: Path) -> dict[str, list[str]]:
    """The supporting sentences of a file of HotpotQA, by question."""
    from benchmarks.datasets.records import read_records

    facts: dict[str, list[str]] = {}
    for record in read_records("hotpotqa", data):
        sentences = dict(record["context"])
        supporting: list[str] = []
        for title, number in record["supporting_facts"]:
            # Some labels stand beyond the paragraph's end.
            supporting += sentences.get(title, [])[number : number + 1]
        facts[record["_id"]] = [sentence.strip() for sentence in supporting]
    return facts


def measure(
    model: LanguageModel,
    questions: Sequence[CalibrationQuestion],
    passages: int,
    *,
    facts: Mapping[str, Sequence[str]] | None = None,
    shares: Sequence[float] = (KEPT_SHARE,),
    top_k: int | None = None,
    embedder: Embedder | None = None,
    seed: int = 42,
) -> list[Pruned]:
    """Shape the passages of every question by sentences."""
    rows: list[Pruned] = []
    for question in questions:
        wanted = Wanted(question.answers, (facts or {}).get(question.id, ()))
        texts = shown(question, passages, seed)
        # What one share has read, the next need not.
        once = ScoredOnce(model)
        for share in shares:
            config = ShapingConfig(unit="sentence", top_k=top_k, keep_share=share)
            shaper = ContextShaper(once, config, embedder=embedder)
            shaped = shaper.shape(question.question, texts)
            rows.append(_compared(once, shaped, wanted, share))
    return rows


def shown(question: CalibrationQuestion, passages: int, seed: int) -> list[str]:
    """Return supporting and other passages with their titles, in order."""
    documents = question.context.documents
    draw = random.Random(f"{seed}:{question.question}")
    others = [n for n in range(len(documents)) if n not in question.supporting]
    size = max(0, passages - len(question.supporting))
    chosen = sorted({*question.supporting, *draw.sample(others, min(size, len(others)))})
    return [f"{documents[n].title}\n{documents[n].text.strip()}" for n in chosen]


def _compared(model: LanguageModel, shaped: ShapedContext, wanted: Wanted, share: float) -> Pruned:
    # One that has lost every sentence is no longer kept, but was selected.
    selected = [v for v in shaped.ranked if v.verdict is Verdict.SELECTED]
    texts = [verdict.text for verdict in selected]
    room = share * sum(map(len, texts))
    alone = ShapingConfig(
        unit="sentence",
        signal=None,
        ranker="bm25",
        top_k=len(texts),
        keep_share=share,
    )
    without_model = ContextShaper(model, alone).shape(shaped.query, texts)
    left = {
        PACKAGE: shaped.text,
        WHOLE: "\n".join(best_whole(texts, len(shaped.text))),
        BM25: "\n".join(best_by_bm25(shaped.query, texts, room)),
        NO_MODEL: without_model.text,
    }
    return Pruned(
        question=shaped.query,
        share=share,
        given=sum(len(verdict.text) for verdict in shaped.verdicts),
        selected=wanted.left_in("\n\n".join(texts)),
        left={method: wanted.left_in(text) for method, text in left.items()},
    )


def best_whole(texts: Sequence[str], room: float) -> list[str]:
    """Texts as far as they fit, the first ones first."""
    best: list[str] = []
    for text in texts:
        if len(text) <= room:
            best.append(text)
            room -= len(text)
    return best


def best_by_bm25(query: str, texts: Sequence[str], room: float) -> list[str]:
    """The sentences of all texts that BM25 puts first, as far as they fit, in reading order."""
    sentences: list[str] = []
    for text in texts:
        sentences += [text[start:end].strip() for start, end in sentence_spans(text)]
    kept: list[int] = []
    for place in BM25Ranker().rank(query, sentences).order:
        length = len(sentences[place])
        if length <= room:
            kept.append(place)
            room -= length
    return [sentences[place] for place in sorted(kept)]


def summary(rows: Sequence[Pruned]) -> list[str]:
    """One line per figure, by share."""
    lines: list[str] = []
    for share in dict.fromkeys(row.share for row in rows):
        lines += _summary([row for row in rows if row.share == share])
    return lines


def _summary(rows: Sequence[Pruned]) -> list[str]:
    asked = [row for row in rows if row.selected.has_answer]
    given = sum(row.given for row in rows)
    selected = sum(row.selected.characters for row in rows)
    lines = [
        f"share {rows[0].share:g}: {len(rows)} questions; the selected passages hold the answer "
        f"of {len(asked)}, and take {selected / max(1, given):.1%} of the characters given"
    ]
    for method in rows[0].left:
        kept = sum(row.left[method].characters for row in rows)
        lines.append(f"  {method}: {1 - kept / max(1, selected):.1%} fewer characters")
    lines += _stays("the answer stays", asked, lambda left: left.has_answer)
    known = [row for row in rows if row.selected.has_facts]
    lines += _stays("all supporting sentences stay", known, lambda left: bool(left.has_facts))
    return lines


def _stays(what: str, rows: Sequence[Pruned], is_in: Callable[[Left], bool]) -> list[str]:
    """Return the share that stays by method, and the package's difference to each."""
    lines: list[str] = []
    if not rows:
        return lines
    package = np.array([float(is_in(row.left[PACKAGE])) for row in rows])
    for method in rows[0].left:
        values = np.array([float(is_in(row.left[method])) for row in rows])
        low, high = interval(np.mean, values)
        line = f"  {what}, {method}: {values.sum():.0f} of {len(rows)}, "
        line += f"{values.mean():.1%} [{low:.1%}, {high:.1%}]"
        if method != PACKAGE:
            ahead = package - values
            low, high = interval(np.mean, ahead)
            line += f"; {PACKAGE} {ahead.mean():+.1%} [{low:+.1%}, {high:+.1%}]"
        lines.append(line)
    return lines
