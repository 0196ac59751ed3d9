"""Price lists as people write them: JSON with prices per million tokens.

    {"unit": "USD", "answer": {"input": 0.75, "cached_input": 0.075, "output": 4.5},
     "compressor": {"input": 0.1, "output": 0.4}, "scorer": 0.0,
     "prepare_factor": 0.5, "per_second": 0.0}

Only ``unit`` and ``answer`` are needed. The compressor costs what the answering model costs and
the local scorer nothing, unless the list says otherwise.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from ecs_plugins.common.files import read_text
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.cost import ModelPrice, PriceVector

_KNOWN = {"unit", "answer", "compressor", "scorer", "prepare_factor", "per_second"}
_MODEL = {"input", "output", "cached_input"}


def read_prices(path: str | os.PathLike[str]) -> PriceVector:
    """Read a price list.

    Raises:
        StorageError: The file cannot be read.
        ConfigurationError: It is no price list; says what is wrong.
    """
    text = read_text(path, "the price list")
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"{path} is not valid JSON: {error}") from error
    where = str(path)
    fields = _fields(where, data, _KNOWN)
    if not isinstance(fields.get("unit"), str) or "answer" not in fields:
        raise ConfigurationError(f'{where} needs "unit" (a name) and "answer" (prices)')
    return PriceVector(
        unit=str(fields["unit"]),
        answer=_model(f"{where}: answer", fields["answer"]),
        compressor=(
            _model(f"{where}: compressor", fields["compressor"])
            if fields.get("compressor") is not None
            else None
        ),
        scorer=_number(f"{where}: scorer", fields.get("scorer", 0.0)) / 1e6,
        prepare_factor=_number(f"{where}: prepare_factor", fields.get("prepare_factor", 1.0)),
        per_second=_number(f"{where}: per_second", fields.get("per_second", 0.0)),
    )


def _model(where: str, data: object) -> ModelPrice:
    fields = _fields(where, data, _MODEL)
    if not {"input", "output"} <= fields.keys():
        raise ConfigurationError(f'{where} needs "input" and "output" per million tokens')
    cached = fields.get("cached_input")
    return ModelPrice.per_million(
        _number(where, fields["input"]),
        _number(where, fields["output"]),
        None if cached is None else _number(where, cached),
    )


def _fields(where: str, data: object, known: set[str]) -> Mapping[str, object]:
    if not isinstance(data, dict):
        raise ConfigurationError(f"{where} must be an object with {', '.join(sorted(known))}")
    unknown = sorted(data.keys() - known)
    if unknown:
        raise ConfigurationError(
            f"{where}: unknown field {unknown[0]!r}; known are {', '.join(sorted(known))}"
        )
    return data


def _number(where: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigurationError(f"{where}: expected a number, got {value!r}")
    return float(value)
