"""Measure every strategy once on a user's own questions: the rows of a frontier.

All strategies answer the same questions with the same model, prompt and greedy decoding
(section III-D of the paper); chains of the user's answer by themselves. Each fixed batch of
questions is measured for every configuration before the next begins, so that a killed run goes on
with what its journal lacks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, Field, TypeAdapter
from rich.console import Console
from rich.progress import Progress

from ecs_plugins import __version__
from ecs_plugins.common.checks import check_each, check_kind, check_several, shown
from ecs_plugins.common.config import Config
from ecs_plugins.common.files import digest
from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.frontier.answering import (
    ANSWER_PROMPT,
    AnswerModel,
    answer_prompt,
    as_answer_model,
    check_template,
)
from ecs_plugins.frontier.cost import ConfigValue, Dropped, PointKey, Provenance, config_json
from ecs_plugins.frontier.data import CalibrationQuestion, check_unique, data_hash
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.journal import Journal
from ecs_plugins.frontier.measured import check_choice
from ecs_plugins.frontier.measurements import TABLES, Arm, Measurements
from ecs_plugins.frontier.metrics import Metric, answer_part, as_metric
from ecs_plugins.frontier.prices import PriceVector
from ecs_plugins.frontier.strategies.base import (
    Answered,
    AnsweringStrategy,
    BuiltContext,
    Prepared,
    Strategy,
    prepare_all,
)
from ecs_plugins.frontier.usage import ModelCall, booked
from ecs_plugins.tokens import Account, Stage, TokenLedger, flat

_MEMBERS = ("name", "config", "routable", "prepare")


@dataclass(frozen=True, slots=True)
class CalibrationRow:
    """One configuration on one question; ``tokens`` by stage and role, the rest as in a `Usage`."""

    question: str
    f1: float
    tokens: Mapping[str, Mapping[str, int]]
    shared_input: float
    prepare_seconds: float
    query_seconds: float
    prepare_calls: int = 1
    query_calls: int = 1


_ROWS = TypeAdapter(tuple[PointKey, list[CalibrationRow]])
_KIND = ("ecs_plugins.calibration", 1)


class CalibrationConfig(Config):
    """Settings of a calibration; questions of a batch are generated together.

    Attributes:
        max_new_tokens: Longest answer.
        prompt: With {context} and, after it, {question}.
        progress: Whether to show a progress bar with the time left.
    """

    batch_size: int = Field(default=8, ge=1)
    max_new_tokens: int = Field(default=24, ge=1)
    prompt: Annotated[str, AfterValidator(check_template)] = ANSWER_PROMPT
    progress: bool = False


def calibrate(
    questions: Sequence[CalibrationQuestion],
    strategies: Iterable[Strategy | AnsweringStrategy],
    answer_model: object = None,
    *,
    metric: object = "f1",
    config: CalibrationConfig | None = None,
    journal: str | os.PathLike[str] | None = None,
    prices: PriceVector | None = None,
    data: str = "",
    models: Mapping[str, str] | None = None,
    settings: Mapping[str, ConfigValue] | None = None,
) -> EfficiencyFrontier:
    """Measure all strategies on all questions.

    Args:
        questions: Questions with their answers; see `read_questions`.
        strategies: Each a strategy in one configuration, or a chain of your own: `RoutedChain`.
        answer_model: Any model of `as_answer_model`; chains answer by themselves and need none.
        metric: Judges answers; see `as_metric`.
        config: How to measure.
        journal: File of the measured rows; give it again to go on after a kill.
        prices: Prices of the costs; by default each token costs one token.
        data: Name of the data set, for the record.
        models: Further models by role (``scorer``, ``embedder``), for the record.
        settings: Other settings of the models, such as the dtype, for the record. A journal
            measured with other models or settings is refused.

    Raises:
        InvalidInputError: No question, repeated ids, fewer than two routable points, or a
            strategy and configuration given twice.
        ConfigurationError: Something is no strategy, or the journal belongs to another
            calibration.
        StorageError: The journal cannot be written; its rows are kept.
        ModelError: The answering model failed; run again to go on.
    """
    chosen = CalibrationConfig.from_any(config)
    if prices is not None:
        check_kind("prices", prices, PriceVector)
    check_kind("models", models or {}, Mapping)  # type: ignore[type-abstract]
    check_kind("settings", settings or {}, Mapping)  # type: ignore[type-abstract]
    arms = _by_key(check_several("strategies", strategies))
    questions = check_each("questions", questions, CalibrationQuestion)
    if not questions:
        raise InvalidInputError("there is no question to calibrate with")
    check_unique(questions)
    model = _answer_model(answer_model, arms.values())
    named = {} if model is None else {"answer": model.name}
    recorded: dict[str, ConfigValue] = {
        "max_new_tokens": chosen.max_new_tokens,
        "batch_size": chosen.batch_size,
        "prompt": digest(chosen.prompt)[:16],
        "metric": str(getattr(metric, "__name__", metric)),
        **(settings or {}),
    }
    asked = data_hash(questions)
    identity = {"answering model": named.get("answer", ""), "data hash": asked, **recorded}
    for role, name in (models or {}).items():
        identity[f"{role} model"] = name
    run = _Calibration(questions, arms, model, chosen, as_metric(metric))
    with closing(Journal(journal, _KIND, identity)) as run.journal:
        for record in run.journal.records:
            run.restore(record)
        run.measure()
        measured = run.measurements()
    provenance = Provenance(
        models={**named, **(models or {})},
        data=data,
        data_hash=asked,
        questions=len(questions),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        package_version=__version__,
        settings=recorded,
    )
    return EfficiencyFrontier.from_measurements(
        measured, prices=prices, provenance=provenance, dropped=list(run.dropped.values())
    )


def _answer_model(
    answer_model: object, arms: Iterable[Strategy | AnsweringStrategy]
) -> AnswerModel | None:
    """Return the model that answers from the contexts of strategies; None if only chains run."""
    if answer_model is not None:
        return as_answer_model(answer_model)
    needing = [arm.name for arm in arms if not isinstance(arm, AnsweringStrategy)]
    if needing:
        raise ConfigurationError(
            f"{', '.join(needing)} only build contexts; give the model that answers from them"
        )
    return None


def _by_key(
    strategies: Iterable[Strategy | AnsweringStrategy],
) -> dict[PointKey, Strategy | AnsweringStrategy]:
    """Return the strategies by key, checked before anything is measured."""
    arms: dict[PointKey, Strategy | AnsweringStrategy] = {}
    for given in strategies:
        # A chain of a framework says what is measured of it.
        strategy = given
        as_strategy = getattr(given, "as_strategy", None)
        if as_strategy is not None:
            strategy = as_strategy()
        if any(not hasattr(strategy, member) for member in _MEMBERS):
            raise ConfigurationError(
                f"{shown(strategy, 60)} is no strategy; a chain or query engine of your own is "
                "measured as RoutedChain('its name', answer=...)"
            )
        key = (strategy.name, config_json(strategy.config))
        if key in arms:
            raise InvalidInputError(f"{key[0]} {key[1]} is given twice; remove one")
        arms[key] = strategy
    check_choice(key for key, strategy in arms.items() if strategy.routable)
    return arms


@dataclass
class _Calibration:
    """Calibration with its rows so far and its dropped points."""

    questions: Sequence[CalibrationQuestion]
    arms: Mapping[PointKey, Strategy | AnsweringStrategy]
    model: AnswerModel | None
    settings: CalibrationConfig
    metric: Metric
    journal: Journal = field(init=False)
    rows: dict[tuple[PointKey, str], CalibrationRow] = field(default_factory=dict)
    dropped: dict[PointKey, Dropped] = field(default_factory=dict)
    _prepared: dict[PointKey, dict[str, Prepared]] = field(default_factory=dict)

    def restore(self, record: Mapping[str, Any]) -> None:
        """Take the rows of a record of the journal."""
        key, rows = _ROWS.validate_python((record["key"], record["rows"]))
        self.rows |= {(key, row.question): row for row in rows}

    def measure(self) -> None:
        """Measure every answer that the journal does not hold yet."""
        size = self.settings.batch_size
        answers = len(self.questions) * len(self.arms)
        hidden = not self.settings.progress
        with Progress(console=Console(stderr=True), disable=hidden, transient=True) as progress:
            task = progress.add_task("calibrating", total=answers)
            for start in range(0, len(self.questions), size):
                batch = self.questions[start : start + size]
                for key in self.arms:
                    progress.update(task, description=f"{key[0]} {key[1]}")
                    self._measure(key, batch)
                    progress.advance(task, len(batch))

    def _measure(self, key: PointKey, batch: Sequence[CalibrationQuestion]) -> None:
        is_measured = all((key, question.id) in self.rows for question in batch)
        if is_measured or key in self.dropped:
            return
        arm = self.arms[key]
        try:
            ready = self._prepare(key, batch)
            if isinstance(arm, AnsweringStrategy):
                pairs = zip(ready, batch, strict=True)
                answers = [arm.answer(prepared, each.question) for prepared, each in pairs]
            else:
                answers = self._answers(arm, ready, batch)
            rows = list(map(self._row, batch, ready, answers))
        except InvalidInputError as error:
            measured = sum(of == key for of, _ in self.rows)
            reason = f"could not be measured: {error}"
            self.dropped[key] = Dropped(arm.name, dict(arm.config), measured, reason)
            return
        self.journal.append({"key": key, "rows": [asdict(row) for row in rows]})
        self.rows |= {(key, row.question): row for row in rows}

    def _row(
        self, question: CalibrationQuestion, prepared: Prepared, answered: Answered
    ) -> CalibrationRow:
        ledger = TokenLedger(dict(prepared.cost.tokens))
        ledger.add(answered.ledger)
        prediction = answer_part(answered.text, answered.answer_field)
        if isinstance(prediction, str):
            # Small models go on talking after their answer: the first line is judged.
            prediction = prediction.strip().partition("\n")[0]
        return CalibrationRow(
            question.id,
            self.metric(prediction, question.answers),
            ledger.to_dict(),
            answered.shared_input,
            prepared.cost.seconds,
            answered.seconds,
            max(1, len(prepared.cost.calls)),
            answered.calls,
        )

    def _answers(
        self, arm: Strategy, ready: Sequence[Prepared], batch: Sequence[CalibrationQuestion]
    ) -> list[Answered]:
        """Return the answers of the model from the contexts of a strategy."""
        assert self.model is not None, "checked before anything is measured"
        template = self.settings.prompt
        built = []
        prompts = []
        for prepared, question in zip(ready, batch, strict=True):
            context = arm.build(prepared, question.question)
            built.append(context)
            prompt = answer_prompt(context.text, question.question, template)
            prompts.append(prompt)
        began = time.perf_counter()
        completions = self.model.complete(prompts, max_new_tokens=self.settings.max_new_tokens)
        share = (time.perf_counter() - began) / len(batch)
        answers = []
        for context, prompt, reply in zip(built, prompts, completions, strict=True):
            ledger = booked([ModelCall(Stage.QUERY, reply.input_tokens, reply.output_tokens)])
            ledger.add(context.ledger)
            shared = reply.input_tokens * _shared_part(context, prompt, template)
            seconds = context.seconds + share
            answers.append(Answered(reply.text, ledger, seconds, shared))
        return answers

    def _prepare(self, key: PointKey, batch: Sequence[CalibrationQuestion]) -> list[Prepared]:
        ready = self._prepared.setdefault(key, {})
        asked = {question.context.id: question.context for question in batch}
        missing = [context for name, context in asked.items() if name not in ready]
        for prepared in prepare_all(self.arms[key], missing):
            ready[prepared.context.id] = prepared
        return [ready[question.context.id] for question in batch]

    def measurements(self) -> Measurements:
        """Return all rows of the configurations that were measured on every question."""
        kept = {key: arm for key, arm in self.arms.items() if key not in self.dropped}
        reasons = [f"{each.strategy}: {each.reason}" for each in self.dropped.values()]
        routable = [key for key, arm in kept.items() if arm.routable]
        check_choice(routable, "; ".join(reasons))
        rows = [[self.rows[key, question.id] for question in self.questions] for key in kept]
        tables: dict[str, Any] = {}
        for name in TABLES:
            tables[name] = np.array([[getattr(row, name) for row in line] for line in rows])
        return Measurements(
            tuple(Arm(arm.name, dict(arm.config), arm.routable) for arm in kept.values()),
            tuple(question.id for question in self.questions),
            tuple(question.context.id for question in self.questions),
            tokens=_token_tables(rows),
            **tables,
        )


def _shared_part(context: BuiltContext, prompt: str, template: str) -> float:
    """Return the share of a prompt that is the same for every question about its context.

    By characters: counting tokens apart would cost a call and differ at the seam.
    """
    if not context.shared:
        return 0.0
    before = len(template.partition("{context}")[0])
    return (before + len(context.text)) / len(prompt)


def _token_tables(rows: Sequence[Sequence[CalibrationRow]]) -> dict[Account, np.ndarray]:
    """Return a table of tokens for every account that something was booked to."""
    spent = [[flat(row.tokens) for row in line] for line in rows]
    accounts = {account for line in spent for tokens in line for account in tokens}
    return {
        account: np.array([[tokens.get(account, 0) for tokens in line] for line in spent])
        for account in sorted(accounts)
    }
