"""Part 2: turns that hurt, because they state an outdated or a false answer, and repetitions.

The true answer is given here, so the utility is that of Definition 3.1: how many nats a turn
adds to the answer's log-probability. The model is small and the threshold is the paper's: the
counts are shown as they come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from ecs_plugins.ranking.registry import make_ranker
from ecs_plugins.shaping.config import ShapingConfig
from ecs_plugins.shaping.result import PassageVerdict, ShapedContext, Verdict
from ecs_plugins.shaping.shaper import ContextShaper
from examples.demo.context import Demo
from examples.demo.data import Question, Repeated, choose

OTHERS = 3
"""Further turns in each case: those that match the question's words best."""
EXAMPLES = 4

_STYLES = {Verdict.HELPS: "green", Verdict.HURTS: "red", Verdict.REDUNDANT: "yellow"}
_ROLES = {
    "evidence": "states the answer",
    "misleading": "outdated or false",
    "other": "shares words only",
}


@dataclass(frozen=True, slots=True)
class Judged:
    """One turn in one case."""

    question: Question
    turn: str
    role: str
    verdict: PassageVerdict


def run(demo: Demo) -> None:
    """Judge turns of three kinds, then repetitions, given the true answer."""
    cases = choose([q for q in demo.data.questions if q.misleading], demo.limit)
    judged = judge(demo, cases)
    demo.console.print(_counts(judged, len(cases)))
    demo.console.print(_hurting(judged))
    repetitions: dict[str, object] = {}
    for group in demo.data.near_duplicates:
        turns, shaped = judge_repeated(demo, group)
        demo.console.print(_repeated(group, shaped))
        repetitions[group.question] = {
            turn: str(verdict.verdict) for turn, verdict in zip(turns, shaped.verdicts, strict=True)
        }
    demo.results["verdicts"] = {
        "cases": [question.id for question in cases],
        "counts": {role: _tally(judged, role) for role in _ROLES},
        "repetitions": repetitions,
    }


def judge(demo: Demo, cases: Sequence[Question]) -> list[Judged]:
    """Score each case's evidence, misleading turns and a few others, in the order of the chat."""
    shaper = _shaper(demo)
    texts = {turn.id: turn.passage for turn in demo.data.turns}
    out: list[Judged] = []
    with demo.progress("judging turns", len(cases)) as bar:
        for case in cases:
            stated = {*case.evidence, *case.misleading}
            turns = sorted({*stated, *_nearest(case.question, texts, stated)})
            shaped = shaper.shape(case.question, [texts[t] for t in turns], answer=case.answer)
            for turn, verdict in zip(turns, shaped.verdicts, strict=True):
                role = "evidence" if turn in case.evidence else "other"
                role = "misleading" if turn in case.misleading else role
                out.append(Judged(case, turn, role, verdict))
            bar.advance(bar.task_ids[0])
    return out


def judge_repeated(demo: Demo, group: Repeated) -> tuple[list[str], ShapedContext]:
    """Judge turns that say the same, among a few others; the ids of the turns, and the result.

    The dates are left out: to ECS a number that the other turn lacks is news, so a turn with
    another date is never redundant.
    """
    texts = {turn.id: f"{turn.speaker}: {turn.text}" for turn in demo.data.turns}
    turns = sorted({*group.turns, *_nearest(group.question, texts, group.turns)})
    shaped = _shaper(demo).shape(group.question, [texts[t] for t in turns], answer=group.answer)
    return turns, shaped


def _nearest(question: str, texts: Mapping[str, str], without: Collection[str]) -> list[str]:
    """The turns that match the question's words best, other than those given."""
    ids = list(texts)
    order = make_ranker("bm25").rank(question, list(texts.values())).order
    return [ids[i] for i in order if ids[i] not in without][:OTHERS]


def _shaper(demo: Demo) -> ContextShaper:
    config = ShapingConfig(signal="answer_shift", ranker=None, on_error="raise")
    return ContextShaper(demo.model, config)


def _tally(judged: Sequence[Judged], role: str) -> dict[str, int]:
    return dict(Counter(str(item.verdict.verdict) for item in judged if item.role == role))


def _counts(judged: Sequence[Judged], cases: int) -> Table:
    table = Table(
        title=f"Verdicts in {cases} questions about what changed or was false, answer given",
        title_justify="left",
    )
    table.add_column("turn", no_wrap=True)
    # The answer is given and its shift has a threshold, so nothing is `selected` by rank alone.
    verdicts = [Verdict.HELPS, Verdict.NEUTRAL, Verdict.HURTS, Verdict.REDUNDANT]
    for verdict in verdicts:
        table.add_column(str(verdict), justify="right", style=_STYLES.get(verdict))
    for role, meaning in _ROLES.items():
        tally = _tally(judged, role)
        table.add_row(meaning, *(str(tally.get(str(verdict), 0)) for verdict in verdicts))
    return table


def _hurting(judged: Sequence[Judged]) -> Table:
    """The misleading turns that lower the true answer's log-probability most."""
    misleading = [j for j in judged if j.role == "misleading" and j.verdict.utility is not None]
    misleading.sort(key=lambda item: item.verdict.utility or 0.0)
    table = Table(title="The misleading turns with the least utility", title_justify="left")
    table.add_column("question (true answer)", ratio=2)
    table.add_column("turn", ratio=3)
    table.add_column("nats", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for item in misleading[:EXAMPLES]:
        table.add_row(
            Text(f"{item.question.question} ({item.question.answer})"),
            Text(item.verdict.text),
            f"{item.verdict.utility:+.2f}",
            _styled(item.verdict),
        )
    return table


def _repeated(group: Repeated, shaped: ShapedContext) -> Table:
    table = Table(
        title=f"Said {len(group.turns)} times: {group.question} ({group.answer})",
        title_justify="left",
    )
    table.add_column("turn", ratio=1)
    table.add_column("nats", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for verdict in shaped.verdicts:
        utility = "" if verdict.utility is None else f"{verdict.utility:+.2f}"
        table.add_row(Text(verdict.text), utility, _styled(verdict))
    return table


def _styled(verdict: PassageVerdict) -> Text:
    return Text(str(verdict.verdict), style=_STYLES.get(verdict.verdict, ""))
