"""Measure every strategy once on a user's own questions: the rows behind a frontier.

All strategies answer the same questions with the same model, prompt and greedy decoding
(section III-D of the paper). Work is cut into fixed batches of questions, each measured for
every configuration before the next begins, so that a run can be killed and continued: what is
in the journal is not measured again, and the batches are the same ones.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from tqdm import tqdm

from ecs_plugins.errors import ConfigurationError, InvalidInputError
from ecs_plugins.frontier.answering import (
    ANSWER_PROMPT,
    AnswerModel,
    answer_prompt,
    as_answer_model,
    check_template,
)
from ecs_plugins.frontier.cost import PriceVector
from ecs_plugins.frontier.data import CalibrationQuestion, data_hash
from ecs_plugins.frontier.envelope import EfficiencyFrontier
from ecs_plugins.frontier.hull import dominated_for_every_reuse
from ecs_plugins.frontier.journal import Journal, Row
from ecs_plugins.frontier.measurements import Account, Arm, Array, Measurements
from ecs_plugins.frontier.metrics import exact_match, token_f1
from ecs_plugins.frontier.points import ConfigValue, PointKey, config_json
from ecs_plugins.frontier.provenance import Dropped, Provenance
from ecs_plugins.frontier.strategies.base import Prepared, Strategy, prepare_all
from ecs_plugins.tokens import Role, Stage, TokenLedger

SEED = 42
# One-sided 99.5 %: with a few dozen configurations, a good one is seldom dropped by chance.
_CLEARLY = 2.576


@dataclass(frozen=True, slots=True)
class CalibrationConfig:
    """How to measure.

    Attributes:
        batch_size: Questions per batch and generation.
        max_new_tokens: Longest answer.
        prompt: With {context} and, behind it, {question}.
        drop_dominated: Give up configurations that are clearly dominated: another one is
            cheaper for every N and its paired F1 is higher by 2.6 standard errors.
        drop_after: Questions that must be answered before one is given up.
        progress: Whether to show a progress bar with the time left.

    Raises:
        ConfigurationError: A value is out of range.
    """

    batch_size: int = 8
    max_new_tokens: int = 24
    prompt: str = ANSWER_PROMPT
    drop_dominated: bool = False
    drop_after: int = 40
    progress: bool = False

    def __post_init__(self) -> None:
        if min(self.batch_size, self.max_new_tokens, self.drop_after) < 1:
            raise ConfigurationError("batch_size, max_new_tokens and drop_after must be positive")
        check_template(self.prompt)


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
        questions: What to ask; see `readers.read_questions`.
        strategies: Each a strategy in one configuration.
        answer_model: What `answering.as_answer_model` takes.
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
    arms = _Arms(strategies)
    questions = list(questions)
    repeated = [name for name, n in Counter(q.id for q in questions).items() if n > 1]
    if not questions or repeated:
        problem = f"the question id {repeated[0]!r} repeats" if repeated else "there is no question"
        raise InvalidInputError(f"cannot calibrate: {problem}")
    model = as_answer_model(answer_model)
    recorded: dict[str, ConfigValue] = {
        "max_new_tokens": chosen.max_new_tokens,
        "batch_size": chosen.batch_size,
        "prompt": hashlib.sha256(chosen.prompt.encode()).hexdigest()[:16],
        **(settings or {}),
    }
    identity = {
        "answering model": model.name,
        "data hash": data_hash(questions),
        **{f"{role} model": name for role, name in (models or {}).items()},
        **recorded,
    }
    with Journal(journal, identity) as kept:
        run = _Run(questions, arms, model, chosen, kept)
        run.measure()
        measured = run.measurements()
    provenance = Provenance(
        models={"answer": model.name, **(models or {})},
        data=data,
        data_hash=str(identity["data hash"]),
        questions=len(questions),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        package_version=_version(),
        seed=SEED,
        settings=recorded,
    )
    return EfficiencyFrontier.from_measurements(
        measured, prices=prices, provenance=provenance, dropped=list(run.dropped.values())
    )


class _Arms:
    """The strategies by key, checked before anything is measured."""

    def __init__(self, strategies: Iterable[Strategy]) -> None:
        self.by_key: dict[PointKey, Strategy] = {}
        for strategy in strategies:
            key = (strategy.name, config_json(strategy.config))
            if key in self.by_key:
                raise InvalidInputError(f"{key[0]} {key[1]} is given twice; remove one")
            self.by_key[key] = strategy
        names = {strategy.name for strategy in self.by_key.values() if strategy.routable}
        if len(names) < 2:
            raise InvalidInputError(
                "a calibration compares strategies and needs at least two that can be routed, "
                f"got {sorted(names) or 'none'}"
            )


class _Run:
    """One calibration: its rows so far and what was given up."""

    def __init__(
        self,
        questions: Sequence[CalibrationQuestion],
        arms: _Arms,
        model: AnswerModel,
        settings: CalibrationConfig,
        journal: Journal,
    ) -> None:
        self.questions = questions
        self.arms = arms.by_key
        self.model = model
        self.settings = settings
        self.journal = journal
        self.dropped: dict[PointKey, Dropped] = {}
        self._prepared: dict[tuple[PointKey, str], Prepared] = {}

    def measure(self) -> None:
        """Everything that the journal does not hold yet."""
        with tqdm(
            total=len(self.questions) * len(self.arms),
            disable=not self.settings.progress,
            unit="answer",
            smoothing=0.05,
        ) as bar:
            for batch in self._batches():
                for key, strategy in self.arms.items():
                    if key not in self.dropped:
                        bar.set_postfix_str(f"{key[0]} {key[1]}", refresh=False)
                        self._measure(key, strategy, batch)
                    bar.update(len(batch))
                if self.settings.drop_dominated:
                    self._drop(self._answered(batch))

    def _batches(self) -> Iterator[Sequence[CalibrationQuestion]]:
        for start in range(0, len(self.questions), self.settings.batch_size):
            yield self.questions[start : start + self.settings.batch_size]

    def _answered(self, batch: Sequence[CalibrationQuestion]) -> int:
        return self.questions.index(batch[-1]) + 1

    def _measure(
        self, key: PointKey, strategy: Strategy, batch: Sequence[CalibrationQuestion]
    ) -> None:
        if all((key, question.id) in self.journal.rows for question in batch):
            return
        try:
            rows = self._rows(key, strategy, batch)
        except InvalidInputError as error:
            self.dropped[key] = Dropped(
                strategy.name,
                dict(strategy.config),
                sum(1 for of, _ in self.journal.rows if of == key),
                f"could not be measured: {error}",
            )
            return
        self.journal.append(key, rows)

    def _rows(
        self, key: PointKey, strategy: Strategy, batch: Sequence[CalibrationQuestion]
    ) -> list[Row]:
        self._prepare(key, strategy, batch)
        prepared = [self._prepared[(key, question.context.id)] for question in batch]
        built = [
            strategy.build(ready, question.question)
            for ready, question in zip(prepared, batch, strict=True)
        ]
        template = self.settings.prompt
        prompts = [
            answer_prompt(made.text, question.question, template)
            for made, question in zip(built, batch, strict=True)
        ]
        started = time.perf_counter()
        replies = self.model.complete(prompts, max_new_tokens=self.settings.max_new_tokens)
        share = (time.perf_counter() - started) / len(batch)
        rows = []
        for question, ready, made, prompt, reply in zip(
            batch, prepared, built, prompts, replies, strict=True
        ):
            ledger = TokenLedger()
            ledger.add(ready.ledger)
            ledger.add(made.ledger)
            ledger.book(Stage.QUERY, Role.ANSWER_INPUT, reply.input_tokens)
            ledger.book(Stage.QUERY, Role.ANSWER_OUTPUT, reply.output_tokens)
            # By characters: counting tokens apart would cost a call and differ at the seam.
            start = len(template.partition("{context}")[0]) + len(made.text)
            prediction = reply.text.strip()
            rows.append(
                Row(
                    question.id,
                    prediction,
                    token_f1(_first_line(prediction), question.answers),
                    exact_match(_first_line(prediction), question.answers),
                    ledger.to_dict(),
                    reply.input_tokens * start / len(prompt) if made.shared else 0.0,
                    ready.seconds,
                    made.seconds + share,
                )
            )
        return rows

    def _prepare(
        self, key: PointKey, strategy: Strategy, batch: Sequence[CalibrationQuestion]
    ) -> None:
        wanted = {question.context.id: question.context for question in batch}
        known = {name: p for name in wanted if (p := self._prepared.get((key, name)))}
        missing = [context for name, context in wanted.items() if name not in known]
        for ready in prepare_all(strategy, missing):
            known[ready.context.id] = ready
        # Questions about one context tend to follow each other: only this batch's are kept.
        for old in [old for old in self._prepared if old[0] == key and old[1] not in wanted]:
            del self._prepared[old]
        for name, ready in known.items():
            self._prepared[(key, name)] = ready

    # Giving up early.

    def _drop(self, answered: int) -> None:
        if answered < self.settings.drop_after:
            return
        alive = [key for key in self.arms if key not in self.dropped]
        rows = self._table(alive, self.questions[:answered])
        means = {p.key: (p.f1, p.stage1, p.stage2) for p in rows.points()}
        for index, key in enumerate(alive):
            if not self.arms[key].routable:
                continue
            for rival_index, rival in enumerate(alive):
                if (
                    rival in self.dropped
                    or not self.arms[rival].routable
                    or not dominated_for_every_reuse(means[key], means[rival])
                    or not _clearly_better(rows.f1[rival_index], rows.f1[index])
                ):
                    continue
                by = f"{rival[0]} {rival[1]}"
                reason = f"dominated by {by} for every N after {answered} questions"
                config = dict(self.arms[key].config)
                self.dropped[key] = Dropped(key[0], config, answered, reason)
                break

    # Results.

    def measurements(self) -> Measurements:
        """All rows of the configurations that were measured on every question."""
        alive = [key for key in self.arms if key not in self.dropped]
        names = {key[0] for key in alive if self.arms[key].routable}
        if len(names) < 2:
            reasons = "; ".join(f"{d.strategy}: {d.reason}" for d in self.dropped.values())
            raise InvalidInputError(
                "fewer than two routable strategies could be measured, so there is nothing to "
                f"choose between. {reasons}"
            )
        return self._table(alive, self.questions)

    def _table(
        self, keys: Sequence[PointKey], questions: Sequence[CalibrationQuestion]
    ) -> Measurements:
        rows = [[self.journal.rows[(key, question.id)] for question in questions] for key in keys]

        def array(of: Callable[[Row], float]) -> Array:
            return np.array([[of(row) for row in line] for line in rows], dtype=np.float64)

        used = {
            (Stage(stage), Role(role))
            for line in rows
            for row in line
            for stage, roles in row.tokens.items()
            for role in roles
        }

        def booked(account: Account) -> Array:
            stage, role = map(str, account)
            return array(lambda row: row.tokens.get(stage, {}).get(role, 0))

        return Measurements(
            tuple(
                Arm(key[0], dict(self.arms[key].config), self.arms[key].routable) for key in keys
            ),
            tuple(question.id for question in questions),
            tuple(question.context.id for question in questions),
            array(lambda row: row.f1),
            array(lambda row: row.em),
            {account: booked(account) for account in sorted(used)},
            array(lambda row: row.shared_input),
            array(lambda row: row.prepare_seconds),
            array(lambda row: row.query_seconds),
        )


def _clearly_better(rival: Array, own: Array) -> bool:
    """Whether the paired mean difference exceeds its standard error by the margin."""
    difference = rival - own
    error = float(difference.std(ddof=1)) / math.sqrt(len(difference)) if len(own) > 1 else math.inf
    return float(difference.mean()) > _CLEARLY * error


def _first_line(text: str) -> str:
    """What is judged: small models go on talking behind their answer."""
    return text.strip().partition("\n")[0]


def _version() -> str:
    from ecs_plugins import __version__

    return __version__
