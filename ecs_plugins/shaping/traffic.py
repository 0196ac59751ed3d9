"""Records of an application's answers: numbers of shaped passages, and of those an answer used.

Labelled examples are rare, answers are not. What an answer rests on, as `ContextShaper.attribute`
tells it, labels the passages that were shaped for its question. A file of such labels holds numbers
and names of signals, and no text; ``ecs-plugins diagnose --from-traffic`` learns from it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from ecs_plugins.common.files import private, read_records, refuse_open_database
from ecs_plugins.errors import ConfigurationError, InvalidInputError, StorageError
from ecs_plugins.shaping.attribution.result import Attribution
from ecs_plugins.shaping.probability import FEATURES, SHIPPED, LabelledList, ProbabilityFit
from ecs_plugins.shaping.result import PassageVerdict, ShapedContext

VERSION: Literal[1] = 1
"""Of the lines of a file."""
MIN_TO_LEARN = 50
"""Answers from which on a probability is learned."""


class _Passage(TypedDict):
    """One passage that was scored, as a line has it.

    ``parts`` is what the signal said, ``used`` tells whether the answer cites it.
    """

    parts: dict[str, float]
    used: bool


class _Line(TypedDict):
    version: Literal[1]
    model: str
    signal: str
    passages: list[_Passage]


_LINES = TypeAdapter(_Line)


@dataclass(frozen=True, slots=True)
class ShapingTraffic:
    """A file to which answers of an application are added, as numbers.

    ```python
    traffic = ShapingTraffic("traffic.jsonl")
    shaped = shaper.shape(question, passages)
    answer = ...
    traffic.add(shaped, shaper.attribute(question, passages, answer))
    ```

    Attributes:
        path: Of the file; only its owner may read it.
    """

    path: str | os.PathLike[str]

    def add(self, shaped: ShapedContext, attribution: Attribution) -> bool:
        """Add the passages that an answer rests on.

        Args:
            shaped: What was made of the passages.
            attribution: Of the answer, to the same passages or to the kept ones.

        Returns:
            Whether something was added: not where nothing is cited, or no passage was scored.

        Raises:
            InvalidInputError: The attribution is to other passages, by their number.
            StorageError: The file cannot be written.
        """
        verdicts = _attributed(shaped, attribution)
        used = set(attribution.cited)
        passages: list[_Passage] = []
        for place, verdict in enumerate(verdicts):
            if verdict.utility is None:
                continue
            passages.append({"parts": _numbers(verdict), "used": place in used})
        if not used or not passages:
            return False
        line: _Line = {
            "version": VERSION,
            "model": shaped.model,
            "signal": shaped.signal,
            "passages": passages,
        }
        self._append(json.dumps(line, allow_nan=False))
        return True

    def _append(self, line: str) -> None:
        refuse_open_database(self.path)
        try:
            with open(self.path, "a", encoding="utf-8", opener=private) as file:
                file.write(f"{line}\n")
        except OSError as error:
            raise StorageError(
                f"cannot write {self.path}: {error.strerror or error}; name another place"
            ) from error


def learned_from_traffic(
    path: str | os.PathLike[str], model: str | None = None
) -> tuple[ProbabilityFit, int]:
    """Return a probability learned from a file of `ShapingTraffic`, and the number of answers.

    Args:
        path: The file.
        model: Name of the model whose answers count; it may be left out where there is one.

    Raises:
        StorageError: The file cannot be read.
        InvalidInputError: A line cannot be used, or there are too few, or all passages are alike.
        ConfigurationError: There are several models or signals, and none is named.
    """
    lines = read_records(path, _line)
    name, signal = _one_kind(lines, model, Path(path))
    known = [line for line in lines if (line["model"], line["signal"]) == (name, signal)]
    if len(known) < MIN_TO_LEARN:
        raise InvalidInputError(
            f"{path} holds {len(known)} answers with {name}, and {MIN_TO_LEARN} are "
            "needed to learn from: wait for more"
        )
    lists: list[LabelledList] = []
    for line in known:
        parts = [passage["parts"] for passage in line["passages"]]
        labels = [passage["used"] for passage in line["passages"]]
        lists.append(LabelledList(parts, labels))
    fit = ProbabilityFit.fitted_to_lists(lists, prior=SHIPPED.get((name, signal)))
    if fit is None:
        raise InvalidInputError("nothing can be learned where all passages are alike")
    return fit, len(known)


def _attributed(shaped: ShapedContext, attribution: Attribution) -> Sequence[PassageVerdict]:
    """The verdicts of the passages that an answer was held against."""
    for verdicts in (shaped.verdicts, shaped.kept):
        if len(verdicts) == attribution.passages:
            return verdicts
    raise InvalidInputError(
        f"the answer was held against {attribution.passages} passages, and {len(shaped.verdicts)} "
        f"were shaped, {len(shaped.kept)} kept: pass the same ones, or those that were kept"
    )


def _numbers(verdict: PassageVerdict) -> dict[str, float]:
    numbers = {"utility": verdict.utility or 0.0}
    for name in FEATURES:
        value = verdict.parts.get(name)
        if value is not None and math.isfinite(value):
            numbers[name] = value
    return numbers


def _line(text: str, _: int) -> _Line:
    return _LINES.validate_json(text, strict=True)


def _one_kind(lines: Sequence[_Line], model: str | None, path: Path) -> tuple[str, str]:
    """The model and the signal that are learned about."""
    kinds = {(line["model"], line["signal"]) for line in lines}
    if model is not None:
        kinds = {kind for kind in kinds if kind[0] == model}
    if not kinds:
        of_whom = "nobody" if model is None else model
        raise InvalidInputError(f"{path} holds no answers of {of_whom}")
    if len(kinds) > 1:
        found = ", ".join(f"{name} with {signal}" for name, signal in sorted(kinds))
        raise ConfigurationError(
            f"{path} holds answers of {found}: name one with --model, or keep a file for each"
        )
    (kind,) = kinds
    return kind
