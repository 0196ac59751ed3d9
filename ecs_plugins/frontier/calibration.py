"""Measure every strategy once on a user's own questions: the rows behind a frontier.

All strategies answer the same questions with the same model, prompt and greedy decoding
(section III-D of the paper). Each fixed batch of questions is measured for every configuration
before the next begins, so that a killed run goes on with what its journal lacks.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Annotated

import numpy as np
from pydantic import AfterValidator, Field, TypeAdapter
from tqdm import tqdm

from ecs_plugins import __version__
from ecs_plugins.common.config import Config
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.frontier.answering import (
    ANSWER_PROMPT,
    AnswerModel,
    answer_prompt,
    as_answer_model,
    check_template,
    exact_match,
    token_f1,
)
from ecs_plugins.frontier.cost import ConfigValue, Dropped, PointKey, Provenance, config_json
from ecs_plugins.frontier.data import CalibrationQuestion, check_unique, data_hash
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.journal import Journal
from ecs_plugins.frontier.measured import check_choice
from ecs_plugins.frontier.measurements import TABLES, Arm, Measurements
from ecs_plugins.frontier.prices import PriceVector
from ecs_plugins.frontier.strategies.base import Prepared, Strategy, prepare_all
from ecs_plugins.tokens import Role, Stage, TokenLedger, flat

SEED = 42


@dataclass(frozen=True, slots=True)
class CalibrationRow:
    """One configuration on one question; ``tokens`` by stage and role, the rest as in a `Usage`."""

    question: str
    prediction: str
    f1: float
    em: float
    tokens: Mapping[str, Mapping[str, int]]
    shared_input: float
    prepare_seconds: float
    query_seconds: float


_ROWS = TypeAdapter(tuple[PointKey, list[CalibrationRow]])
_KIND = ("ecs_plugins.calibration", 1)


class CalibrationConfig(Config):
    """How to measure, in batches of questions that are generated together.

    Attributes:
        max_new_tokens: Longest answer.
        prompt: With {context} and, behind it, {question}.
        progress: Whether to show a progress bar with the time left.
    """

    batch_size: int = Field(default=8, ge=1)
    max_new_tokens: int = Field(default=24, ge=1)
    prompt: Annotated[str, AfterValidator(check_template)] = ANSWER_PROMPT
    progress: bool = False


def calibrate(
    questions: Sequence[CalibrationQuestion],
    strategies: Iterable[Strategy],
    answer_model: object,
    *,
    config: CalibrationConfig | None = None,
    journal: str | os.PathLike[str] | None = None,
    prices: PriceVector | None = None,
    data: str = "",
    models: Mapping[str, str] | None = None,
    settings: Mapping[str, ConfigValue] | None = None,
) -> EfficiencyFrontier:
    """Measure all strategies on all questions.

    Args:
        questions: What to ask; see `read_questions`.
        strategies: Each a strategy in one configuration.
        answer_model: What `as_answer_model` takes.
        config: How to measure.
        journal: File that keeps what is measured; give it again to go on after a kill.
        prices: What costs are counted in; tokens by default.
        data: Name of the data set, for the record.
        models: Further models by role (``scorer``, ``embedder``), for the record.
        settings: What else shapes the result, such as the dtype, for the record. A journal
            measured with other models or settings is refused.

    Raises:
        InvalidInputError: No question, repeated ids, fewer than two routable strategies, or a
            strategy and configuration given twice.
        ConfigurationError: The journal belongs to another calibration.
        StorageError: The journal cannot be written; what it holds is kept.
        ModelError: The answering model failed; run again to go on.
    """
    chosen = config or CalibrationConfig()
    arms = _by_key(strategies)
    questions = list(questions)
    if not questions:
        raise InvalidInputError("there is no question to calibrate with")
    check_unique(questions)
    model = as_answer_model(answer_model)
    named = {"answer": model.name, **(models or {})}
    recorded: dict[str, ConfigValue] = {
        "max_new_tokens": chosen.max_new_tokens,
        "batch_size": chosen.batch_size,
        "prompt": hashlib.sha256(chosen.prompt.encode()).hexdigest()[:16],
        **(settings or {}),
    }
    asked = data_hash(questions)
    identity = {"answering model": model.name, "data hash": asked, **recorded}
    identity |= {f"{role} model": name for role, name in (models or {}).items()}
    run = _Calibration(questions, arms, model, chosen)
    with closing(Journal(journal, _KIND, identity)) as run.journal:
        for record in run.journal.records:
            key, batch = _ROWS.validate_python((record["key"], record["rows"]))
            run.rows |= {(key, row.question): row for row in batch}
        run.measure()
        measured = run.measurements()
    now = datetime.now(UTC).isoformat(timespec="seconds")
    provenance = Provenance(
        named, data, asked, len(questions), now, __version__, SEED, settings=recorded
    )
    return EfficiencyFrontier.from_measurements(
        measured, prices=prices, provenance=provenance, dropped=list(run.dropped.values())
    )


def _by_key(strategies: Iterable[Strategy]) -> dict[PointKey, Strategy]:
    """The strategies by key, checked before anything is measured."""
    arms: dict[PointKey, Strategy] = {}
    for strategy in strategies:
        key = (strategy.name, config_json(strategy.config))
        if key in arms:
            raise InvalidInputError(f"{key[0]} {key[1]} is given twice; remove one")
        arms[key] = strategy
    check_choice(key for key, strategy in arms.items() if strategy.routable)
    return arms


@dataclass
class _Calibration:
    """One calibration: its rows so far and what was given up."""

    questions: Sequence[CalibrationQuestion]
    arms: Mapping[PointKey, Strategy]
    model: AnswerModel
    settings: CalibrationConfig
    journal: Journal = field(init=False)
    rows: dict[tuple[PointKey, str], CalibrationRow] = field(default_factory=dict)
    dropped: dict[PointKey, Dropped] = field(default_factory=dict)
    _prepared: dict[PointKey, dict[str, Prepared]] = field(default_factory=dict)

    def measure(self) -> None:
        """Everything that the journal does not hold yet."""
        size = self.settings.batch_size
        answers = len(self.questions) * len(self.arms)
        hidden = not self.settings.progress
        with tqdm(total=answers, disable=hidden, unit="answer", smoothing=0.05) as bar:
            for start in range(0, len(self.questions), size):
                batch = self.questions[start : start + size]
                for key in self.arms:
                    bar.set_postfix_str(f"{key[0]} {key[1]}", refresh=False)
                    self._measure(key, batch)
                    bar.update(len(batch))

    def _measure(self, key: PointKey, batch: Sequence[CalibrationQuestion]) -> None:
        known = all((key, question.id) in self.rows for question in batch)
        if known or key in self.dropped:
            return
        try:
            rows = self._rows(key, batch)
            self.journal.append({"key": key, "rows": [asdict(row) for row in rows]})
            self.rows |= {(key, row.question): row for row in rows}
        except InvalidInputError as error:
            measured = sum(1 for of, _ in self.rows if of == key)
            reason = f"could not be measured: {error}"
            self.dropped[key] = Dropped(key[0], dict(self.arms[key].config), measured, reason)

    def _rows(self, key: PointKey, batch: Sequence[CalibrationQuestion]) -> list[CalibrationRow]:
        arm, template = self.arms[key], self.settings.prompt
        ready = self._prepare(key, batch)
        built = [arm.build(p, q.question) for p, q in zip(ready, batch, strict=True)]
        prompts = [
            answer_prompt(made.text, question.question, template)
            for made, question in zip(built, batch, strict=True)
        ]
        started = time.perf_counter()
        replies = self.model.complete(prompts, max_new_tokens=self.settings.max_new_tokens)
        share = (time.perf_counter() - started) / len(batch)
        rows = []
        for question, before, made, prompt, reply in zip(
            batch, ready, built, prompts, replies, strict=True
        ):
            ledger = TokenLedger(dict(before.ledger))
            ledger.add(made.ledger)
            ledger.book(Stage.QUERY, Role.ANSWER_INPUT, reply.input_tokens)
            ledger.book(Stage.QUERY, Role.ANSWER_OUTPUT, reply.output_tokens)
            # By characters: counting tokens apart would cost a call and differ at the seam.
            shared = len(template.partition("{context}")[0]) + len(made.text)
            prediction = reply.text.strip()
            # Small models go on talking behind their answer: the first line is judged.
            answer = prediction.partition("\n")[0]
            row = CalibrationRow(
                question.id,
                prediction,
                token_f1(answer, question.answers),
                exact_match(answer, question.answers),
                ledger.to_dict(),
                reply.input_tokens * shared / len(prompt) if made.shared else 0.0,
                before.seconds,
                made.seconds + share,
            )
            rows.append(row)
        return rows

    def _prepare(self, key: PointKey, batch: Sequence[CalibrationQuestion]) -> list[Prepared]:
        wanted = {question.context.id: question.context for question in batch}
        # Questions about one context tend to follow each other: only this batch's are kept.
        known = {name: p for name, p in self._prepared.get(key, {}).items() if name in wanted}
        missing = [context for name, context in wanted.items() if name not in known]
        known |= {p.context.id: p for p in prepare_all(self.arms[key], missing)}
        self._prepared[key] = known
        return [known[question.context.id] for question in batch]

    def measurements(self) -> Measurements:
        """All rows of the configurations that were measured on every question."""
        kept = {key: arm for key, arm in self.arms.items() if key not in self.dropped}
        reasons = "; ".join(f"{d.strategy}: {d.reason}" for d in self.dropped.values())
        check_choice((key for key, arm in kept.items() if arm.routable), reasons)
        rows = [[self.rows[key, q.id] for q in self.questions] for key in kept]
        spent = [[flat(row.tokens) for row in line] for line in rows]
        used = sorted({account for line in spent for tokens in line for account in tokens})
        return Measurements(
            tuple(Arm(arm.name, dict(arm.config), arm.routable) for arm in kept.values()),
            tuple(question.id for question in self.questions),
            tuple(question.context.id for question in self.questions),
            tokens={
                account: np.array([[tokens.get(account, 0) for tokens in line] for line in spent])
                for account in used
            },
            **{
                name: np.array([[getattr(row, name) for row in line] for line in rows])
                for name in TABLES
            },
        )
