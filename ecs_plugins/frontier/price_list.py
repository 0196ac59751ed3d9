"""LiteLLM's public map of models and their prices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from typing_extensions import TypeIs

from ecs_plugins.common.checks import check_kind, shown

_IN_THE_MAP = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cached_input": "cache_read_input_token_cost",
    "cache_write": "cache_creation_input_token_cost",
    "cache_write_1h": "cache_creation_input_token_cost_above_1hr",
}
"""Prices of a model, and their names in LiteLLM's map."""

_TIER = re.compile(r"^(?P<price>.+)_above_(?P<thousands>\d{1,6})k_tokens$")
_RANGES = "tiered_pricing"
_LEAST = "prompt_cache_min_tokens"
_BATCH = "_batches"
_MOST_CANDIDATES = 8  # named in an error


def settings_of_map(
    listed: Mapping[str, Any], models: Mapping[str, str], *, batch: bool
) -> dict[str, Any]:
    """Return the settings of a `PriceVector` behind LiteLLM's map.

    Raises:
        ValueError: It has no price of a model, or several.
    """
    check_kind("models", models, Mapping)  # type: ignore[type-abstract]
    answer = _entry(listed, models.get("answer", ""), "answer")
    compressor = None
    written_by = answer
    if "compressor" in models:
        written_by = _entry(listed, models["compressor"], "compressor")
        compressor = _price(written_by)
    if batch:
        compressor = _price(_batched(written_by))
    return {
        "unit": "USD",
        "answer": _price(answer),
        "compressor": compressor,
        "scorer": 0.0,
    }


def _entry(listed: Mapping[str, Any], name: str, role: str) -> Mapping[str, Any]:
    """Return the map's entry of a model: the exact name, else the only entry of any provider.

    Raises:
        ValueError: There is none, or several providers ask different prices.
    """
    if not name or not isinstance(name, str):
        raise ValueError(
            f"name the model of the role {role}, to find its price; got {shown(name, 60)}"
        )
    exact = _flat(listed.get(name))
    if _is_priced(exact):
        return exact
    candidates: dict[str, Mapping[str, Any]] = {}
    for key in listed:
        entry = _flat(listed[key])
        if key.endswith(f"/{name}") and _is_priced(entry):
            candidates[key] = entry
    if not candidates:
        raise ValueError(f"it has no price of {name!r}, the model of the role {role}")
    first, *others = candidates.values()
    quoted = _quoted(first)
    if all(_quoted(entry) == quoted for entry in others):
        return first
    names = sorted(candidates)
    several = ", ".join(names[:_MOST_CANDIDATES])
    more = len(candidates) - _MOST_CANDIDATES
    rest = f" and {more} more" if more > 0 else ""
    raise ValueError(
        f"{name!r}, the model of the role {role}, has different prices: name one of {several}{rest}"
    )


def _flat(entry: object) -> object:
    """Return an entry whose prices stand in a list of ranges, in the names of the others."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get(_RANGES), list):
        return entry
    flat = {key: value for key, value in entry.items() if key != _RANGES}
    for tier in entry[_RANGES]:
        start = _start_of(tier)
        if start is None:
            return entry
        suffix = f"_above_{start}k_tokens" if start else ""
        for name in _IN_THE_MAP.values():
            if tier.get(name) is not None:
                flat[f"{name}{suffix}"] = tier[name]
    return flat


def _start_of(tier: object) -> int | None:
    """The thousands of tokens that a range of prices begins above; None where it has no such."""
    tokens = tier.get("range") if isinstance(tier, Mapping) else None
    if not isinstance(tokens, list) or not tokens or not isinstance(tokens[0], int | float):
        return None
    thousands = tokens[0] / 1000
    return int(thousands) if thousands == int(thousands) else None


def _is_priced(entry: object) -> TypeIs[Mapping[str, Any]]:
    if not isinstance(entry, Mapping):
        return False
    return entry.get("input_cost_per_token") is not None


def _quoted(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the prices of an entry alone, so that two entries can be compared."""
    return {key: value for key, value in entry.items() if "cost" in key}


def _price(entry: Mapping[str, Any]) -> dict[str, Any]:
    tiers: dict[int, dict[str, Any]] = {}
    setting_of = {name: setting for setting, name in _IN_THE_MAP.items()}
    for key, value in entry.items():
        match = _TIER.match(key)
        if match is None or value is None:
            continue
        setting = setting_of.get(match["price"])
        if setting is not None:
            above = int(match["thousands"]) * 1000
            tier = tiers.setdefault(above, {"above": above})
            tier[setting] = value
    rising = [tiers[above] for above in sorted(tiers)]
    return {**_given(entry), "tiers": rising}


def _given(entry: Mapping[str, Any]) -> dict[str, Any]:
    prices = {}
    for setting, name in _IN_THE_MAP.items():
        price = entry.get(name)
        if price is not None:
            prices[setting] = price
    least = entry.get(_LEAST)
    if least is not None:
        prices["cache_least"] = int(least)
    return prices


def _batched(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry at the prices of its batch interface, where the map knows them.

    A tier without a batch price of its own has the discount of the price without tiers.
    """
    batched = dict(entry)
    for name in _IN_THE_MAP.values():
        usual = entry.get(name)
        price = entry.get(f"{name}{_BATCH}")
        if price is None:
            continue
        batched[name] = price
        for key, above in entry.items():
            tier = _TIER.match(key)
            if tier is None or tier["price"] != name or above is None:
                continue
            listed = entry.get(f"{key}{_BATCH}")
            if listed is None and usual:
                listed = above * price / usual
            batched[key] = above if listed is None else listed
    return batched
