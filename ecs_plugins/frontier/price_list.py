"""Price lists in files: the package's own, and LiteLLM's public map of models."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from ecs_plugins.common.files import read_text
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.prices import PER_TOKEN, ModelPrice, PriceTier, PriceVector

_IN_THE_MAP = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cached_input": "cache_read_input_token_cost",
    "cache_write": "cache_creation_input_token_cost",
    "cache_write_1h": "cache_creation_input_token_cost_above_1hr",
}
"""Prices of a model, and their names in LiteLLM's map."""

_TIER = re.compile(r"^(?P<price>.+)_above_(?P<thousands>\d+)k_tokens$")
_BATCH = "_batches"
_MOST_CANDIDATES = 8  # named in an error


def read_prices(
    path: str | os.PathLike[str], models: Mapping[str, str], *, batch: bool = False
) -> PriceVector:
    """The prices of a list; see `PriceVector.read`.

    Raises:
        StorageError: The file cannot be read.
        ConfigurationError: It is no price list; says what is wrong.
    """
    text = read_text(path, "the price list")
    try:
        listed = json.loads(text)
        if isinstance(listed, dict) and not {"unit", "answer"} & listed.keys():
            return _of_map(listed, models, batch=batch)
        return _of_own(listed)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ConfigurationError(f"{path} is no price list: {error}") from error


def _of_own(listed: Any) -> PriceVector:
    """The package's own list, which is per million tokens."""
    quoted = PriceVector.from_json({"unit": None, "answer": None, "scorer": 0.0, **listed})
    compressor = quoted.compressor
    return quoted.replace(
        scorer=quoted.scorer / 1_000_000,
        answer=quoted.answer.per_token(),
        compressor=None if compressor is None else compressor.per_token(),
    )


def _of_map(listed: Mapping[str, Any], models: Mapping[str, str], *, batch: bool) -> PriceVector:
    answer = _entry(listed, models.get("answer", ""), "answer")
    compressor = None
    written_by = answer
    if "compressor" in models:
        written_by = _entry(listed, models["compressor"], "compressor")
        compressor = _price(written_by)
    factor = _batch_factor(written_by) if batch else 1.0
    return PriceVector(
        unit="USD",
        answer=_price(answer),
        compressor=compressor,
        scorer=0.0,
        prepare_factor=factor,
    )


def _entry(listed: Mapping[str, Any], name: str, role: str) -> Mapping[str, Any]:
    """What the map says of a model: the exact name, else the only price behind a provider's name.

    Raises:
        ValueError: There is none, or several providers ask different prices.
    """
    if not name:
        raise ValueError(f"name the model of the role {role}, to find its price")
    exact = listed.get(name)
    if isinstance(exact, Mapping) and exact.get("input_cost_per_token") is not None:
        return exact
    candidates = {
        key: entry
        for key, entry in listed.items()
        if key.endswith(f"/{name}") and isinstance(entry, Mapping) and _is_priced(entry)
    }
    if not candidates:
        raise ValueError(f"it has no price of {name!r}, the model of the role {role}")
    first = next(iter(candidates.values()))
    if all(_quoted(entry) == _quoted(first) for entry in candidates.values()):
        return first
    shown = ", ".join(sorted(candidates)[:_MOST_CANDIDATES])
    more = len(candidates) - _MOST_CANDIDATES
    rest = f" and {more} more" if more > 0 else ""
    raise ValueError(
        f"{name!r}, the model of the role {role}, has different prices: name one of {shown}{rest}"
    )


def _is_priced(entry: Mapping[str, Any]) -> bool:
    return entry.get("input_cost_per_token") is not None


def _quoted(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The prices of an entry alone, so that two entries can be compared."""
    return {key: value for key, value in entry.items() if "cost" in key}


def _price(entry: Mapping[str, Any]) -> ModelPrice:
    tiers: dict[int, dict[str, Any]] = {}
    setting_of = {name: setting for setting, name in _IN_THE_MAP.items()}
    for key, value in entry.items():
        tier = _TIER.match(key)
        if tier is not None and tier["price"] in setting_of and value is not None:
            above = int(tier["thousands"]) * 1000
            tiers.setdefault(above, {})[setting_of[tier["price"]]] = value
    return ModelPrice(
        **_given(entry),
        tiers=tuple(PriceTier(above=above, **tiers[above]) for above in sorted(tiers)),
    )


def _given(entry: Mapping[str, Any]) -> dict[str, Any]:
    prices = {setting: entry.get(_IN_THE_MAP[setting]) for setting in PER_TOKEN}
    return {setting: price for setting, price in prices.items() if price is not None}


def _batch_factor(entry: Mapping[str, Any]) -> float:
    """What a batch interface charges over the usual price; 1.0 where the map knows of none."""
    usual = entry.get("input_cost_per_token")
    batched = entry.get(f"input_cost_per_token{_BATCH}")
    if not usual or batched is None:
        return 1.0
    return float(batched) / float(usual)
