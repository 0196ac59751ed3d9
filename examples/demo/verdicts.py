"""Part 2: turns that hurt, because they state an outdated or a false answer, and repetitions.

The true answer is given here, so the utility is that of Definition 3.1: how many nats a turn
adds to the answer's log-probability. The model is small and the threshold is the paper's: the
counts are shown as they come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from rich.table import Table
from rich.text import Text

from ecs_plugins.ranking.registry import make_ranker
from ecs_plugins.shaping import ContextShaper, ShapingConfig
from ecs_plugins.shaping.result import PassageVerdict
from examples.demo.context import Demo, table
from examples.demo.data import Question, choose

OTHERS = 3
"""Further turns in each case: those that match the question's words best."""
EXAMPLES = 4

_STYLES = {"helps": "green", "hurts": "red", "redundant": "yellow"}
_ROLES = {
    "evidence": "states the answer",
    "misleading": "outdated or false",
    "other": "shares words only",
}
_VERDICTS = ("helps", "neutral", "hurts", "redundant")
"""The answer is given and its shift has a threshold, so nothing is `selected` by rank alone."""


def run(demo: Demo) -> None:
    """Judge turns of three kinds, then repetitions, given the true answer."""
    config = ShapingConfig(signal="answer_shift", ranker=None, on_error="raise")
    shaper = ContextShaper(demo.model, config)
    cases = choose([q for q in demo.data.questions if q.misleading], demo.limit)
    counts = {role: Counter[str]() for role in _ROLES}
    misleading: list[tuple[Question, PassageVerdict]] = []
    for case in demo.progress("judging turns", cases):
        judged = judge(demo, shaper, case)
        for turn, verdict in judged.items():
            role = _role(turn, case)
            counts[role][str(verdict.verdict)] += 1
            if role == "misleading" and verdict.utility is not None:
                misleading.append((case, verdict))
    demo.console.print(_counted(counts, len(cases)))
    demo.console.print(_least_useful(misleading))
    demo.results["verdicts"] = {
        "cases": [case.id for case in cases],
        "counts": {role: dict(by_verdict) for role, by_verdict in counts.items()},
        "repetitions": _repetitions(demo, shaper),
    }


def _role(turn: str, case: Question) -> str:
    if turn in case.misleading:
        return "misleading"
    return "evidence" if turn in case.evidence else "other"


def _counted(counts: Mapping[str, Counter[str]], cases: int) -> Table:
    shown = table(
        f"Verdicts in {cases} questions about what changed or was false, answer given",
        ["turn"],
        _VERDICTS,
    )
    for role, meaning in _ROLES.items():
        by_verdict = counts[role]
        shown.add_row(meaning, *(str(by_verdict[verdict]) for verdict in _VERDICTS))
    return shown


def _least_useful(judged: Sequence[tuple[Question, PassageVerdict]]) -> Table:
    shown = table(
        "The misleading turns with the least utility",
        ["question (true answer)", "turn"],
        ["nats", "verdict"],
    )

    def least_first(pair: tuple[Question, PassageVerdict]) -> float:
        _, verdict = pair
        return verdict.utility or 0.0

    for case, verdict in sorted(judged, key=least_first)[:EXAMPLES]:
        question = Text(f"{case.question} ({case.answer})")
        shown.add_row(question, Text(verdict.text), *_judged(verdict))
    return shown


def judge(demo: Demo, shaper: ContextShaper, case: Question) -> dict[str, PassageVerdict]:
    """Verdicts on a case's evidence, misleading turns and a few others, in order of the chat."""
    texts = {turn.id: turn.passage for turn in demo.data.turns}
    stated = {*case.evidence, *case.misleading}
    turns = sorted({*stated, *_nearest(case.question, texts, stated)})
    shaped = shaper.shape(case.question, [texts[t] for t in turns], answer=case.answer)
    return dict(zip(turns, shaped.verdicts, strict=True))


def _repetitions(demo: Demo, shaper: ContextShaper) -> dict[str, dict[str, str]]:
    """Judge turns that say the same, among a few others.

    The dates are left out: to ECS a number that the other turn lacks is news, so a turn with
    another date is never redundant.
    """
    texts = {turn.id: turn.said for turn in demo.data.turns}
    out: dict[str, dict[str, str]] = {}
    for group in demo.data.near_duplicates:
        turns = sorted({*group.turns, *_nearest(group.text, texts, group.turns)})
        shaped = shaper.shape(group.text, [texts[t] for t in turns], answer=group.answer)
        title = f"Said {len(group.turns)} times: {group.text} ({group.answer})"
        shown = table(title, ["turn"], ["nats", "verdict"])
        for verdict in shaped.verdicts:
            shown.add_row(Text(verdict.text), *_judged(verdict))
        demo.console.print(shown)
        verdicts = [str(verdict.verdict) for verdict in shaped.verdicts]
        out[group.text] = dict(zip(turns, verdicts, strict=True))
    return out


def _nearest(question: str, texts: Mapping[str, str], without: Collection[str]) -> list[str]:
    """The turns that match the question's words best, other than those given."""
    ids = list(texts)
    order = make_ranker("bm25").rank(question, list(texts.values())).order
    return [ids[i] for i in order if ids[i] not in without][:OTHERS]


def _judged(verdict: PassageVerdict) -> tuple[str, Text]:
    """Cells of a table: utility and verdict."""
    utility = "" if verdict.utility is None else f"{verdict.utility:+.2f}"
    name = str(verdict.verdict)
    return utility, Text(name, style=_STYLES.get(name, ""))
