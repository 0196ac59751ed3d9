"""Prices of tokens and seconds in money, seconds or joules, for Eq. 1.

`PriceVector` turns counted tokens and seconds into a cost. A provider's prompt cache, which the
paper leaves out, only moves cost from stage 2 to stage 1.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field
from typing_extensions import TypeIs

from ecs_plugins.common.checks import check_kind, shown
from ecs_plugins.common.config import Config
from ecs_plugins.common.files import read_text
from ecs_plugins.errors import ConfigurationError
from ecs_plugins.frontier.usage import ModelCall
from ecs_plugins.tokens import Account, Role, Stage

_MILLION = 1_000_000
_PROMPT: Account = (Stage.QUERY, Role.ANSWER_INPUT)
_PER_TOKEN = {"input", "output", "cached_input", "cache_write", "cache_write_1h", "scorer"}


class _Quoted(Config):
    """Prices per token; None where they do not differ."""

    input: float | None = Field(default=None, ge=0)
    output: float | None = Field(default=None, ge=0)
    cached_input: float | None = Field(default=None, ge=0)
    cache_write: float | None = Field(default=None, ge=0)
    cache_write_1h: float | None = Field(default=None, ge=0)


class PriceTier(_Quoted):
    """Prices of prompts that are longer than ``above`` tokens; None for that of shorter ones."""

    above: int = Field(gt=0)


def _as_tiers(given: Any) -> Any:
    """Return price tiers read from a list of JSON objects; leave other values unchanged."""
    if not isinstance(given, list):
        return given
    return tuple(PriceTier.from_any(tier) for tier in given)


class ModelPrice(_Quoted):
    """Price per token of one model.

    Attributes:
        input: Per prompt token.
        output: Per written token.
        cached_input: Per prompt token that a prompt cache serves; None for no cache.
        cache_write: Per prompt token that is written to the cache; None for ``input``.
        cache_write_1h: The same for an entry that lives an hour.
        cache_seconds: How long an entry lives after it was last read.
        cache_least: Shorter shared prompts are not cached.
        tiers: Other prices for longer prompts, by rising length.
    """

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cache_seconds: float = Field(default=300.0, gt=0)
    cache_least: int = Field(default=0, ge=0)
    tiers: Annotated[tuple[PriceTier, ...], BeforeValidator(_as_tiers)] = ()

    def without_tiers(self, prompt_tokens: float) -> ModelPrice:
        """Return the prices of prompts of a length."""
        prices: dict[str, Any] = {"tiers": ()}
        for tier in self.tiers:
            if prompt_tokens > tier.above:
                own = tier.model_dump(exclude={"above"}, exclude_none=True)
                prices.update(own)
        return self.replace(**prices)

    @property
    def read_price(self) -> float:
        """Return the price of a prompt token that the cache serves."""
        if self.cached_input is None:
            return self.input
        return self.cached_input

    @property
    def write_price(self) -> float:
        """Return the price of a prompt token that is written to the cache."""
        if self.cache_write is None:
            return self.input
        return self.cache_write

    def cache_extra(self, cached: float, written: float, written_1h: float) -> float:
        """Return the cost of cached and written prompt tokens beyond ``input``."""
        long_price = self.cache_write_1h
        if long_price is None:
            long_price = self.write_price
        total = cached * (self.read_price - self.input)
        total += written * (self.write_price - self.input)
        total += written_1h * (long_price - self.input)
        return total


def _per_million(listed: Any) -> Any:
    """Return prices per token, from a list or a part of one that quotes a million tokens."""
    if isinstance(listed, list):
        return [_per_million(each) for each in listed]
    if not isinstance(listed, dict):
        return listed
    prices = {}
    for name, value in listed.items():
        is_price = name in _PER_TOKEN and isinstance(value, int | float)
        prices[name] = value / _MILLION if is_price else _per_million(value)
    return prices


class PriceVector(Config):
    """Price of each token and second; by default each token of any model costs one token.

    Attributes:
        unit: Unit of costs: "tokens", "USD", "s", "J".
        answer: The big model that answers.
        compressor: The model that compresses contexts; None for the answering one.
        scorer: Per token of the small scoring model.
        prepare_factor: Multiplies the compressor's prices in stage 1: 0.5 for a batch interface
            at half price.
        per_second: Per second of wall time: rent of the machine, or its power in watts where the
            unit is J.
    """

    unit: str = Field(default="tokens", min_length=1)
    answer: ModelPrice = ModelPrice(input=1.0, output=1.0)
    compressor: ModelPrice | None = None
    scorer: float = Field(default=1.0, ge=0)
    prepare_factor: float = Field(default=1.0, ge=0)
    per_second: float = Field(default=0.0, ge=0)

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        models: Mapping[str, str] | None = None,
        *,
        batch: bool = False,
    ) -> PriceVector:
        """Read a price list: JSON with prices per million tokens, as providers quote them.

            {"unit": "USD", "answer": {"input": 0.75, "cached_input": 0.075, "output": 4.5},
             "compressor": {"input": 0.1, "output": 0.4}, "scorer": 0.0,
             "prepare_factor": 0.5, "per_second": 0.0}

        Only ``unit`` and ``answer`` are needed. The compressor costs what the answering model
        costs and the local scorer nothing, unless the list says otherwise.

        LiteLLM's public price map is read, too (``model_prices_and_context_window.json``), with
        the names in ``models["answer"]`` and ``models["compressor"]``: the exact name, else that
        after a provider's where all providers ask the same. ``batch`` prices stage 1 by the
        map's batch interface. Shared prompts below its ``prompt_cache_min_tokens`` are not cached.

        Raises:
            StorageError: The file cannot be read.
            ConfigurationError: It is no price list; the message names the fault.
        """
        text = read_text(path, "the price list")
        try:
            listed = json.loads(text)
            if not isinstance(listed, dict) or {"unit", "answer"} & listed.keys():
                return cls.from_json(
                    _per_million({"unit": None, "answer": None, "scorer": 0.0, **listed})
                )
            settings = settings_of_map(listed, models or {}, batch=batch)
            return cls.from_json(settings)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise ConfigurationError(f"{path} is no price list: {error}") from error

    @property
    def caches(self) -> bool:
        """Return True if a prompt cache makes the answering model cheaper."""
        return self.answer.read_price < self.answer.input

    @property
    def compressing(self) -> ModelPrice:
        """Return the price of the model that compresses."""
        return self.compressor or self.answer

    def call_cost(self, call: ModelCall) -> float:
        """Return the cost of one call, at the tier of its own prompt."""
        model = self.compressing if call.stage == Stage.PREPARE else self.answer
        price = model.without_tiers(call.read)
        cost = call.read * price.input + call.written * price.output
        if call.cache.total:
            cost += price.cache_extra(*call.cache)
        if call.stage == Stage.PREPARE:
            cost *= self.prepare_factor
        return cost

    def stages(self, usage: Any) -> tuple[Any, Any]:
        """Return the costs of stage 1 and of stage 2 for which Eq. 1 holds at every N.

        A `Usage` gives numbers; anything with its attributes as arrays gives arrays.

        With a prompt cache, c shared tokens cost ``c * write`` once and ``c * cached`` N - 1
        times: ``c * cached`` per query in stage 2 and ``c * (write - cached)`` in stage 1. Each
        stage has the prices of the tier of its mean prompt, by the calls that it makes.
        """
        prepare = self.per_second * usage.prepare_seconds
        query = self.per_second * usage.query_seconds
        prepare = prepare + self.scorer * usage.tokens.get((Stage.PREPARE, Role.SCORER), 0.0)
        query = query + self.scorer * usage.tokens.get((Stage.QUERY, Role.SCORER), 0.0)
        for model, read, written in self._models():
            prepare = prepare + self.prepare_factor * _plain(
                model, usage, Stage.PREPARE, read, written
            )
            query = query + _plain(model, usage, Stage.QUERY, read, written)
        if not self.caches:
            return prepare, query
        shared = self._cached_tokens(usage)
        extra = _by_tier(usage, self.answer, _PROMPT, lambda p: p.cache_extra(shared, 0, 0))
        return prepare + self.lapsing(usage), query + extra

    def _models(self) -> tuple[tuple[ModelPrice, Role, Role], ...]:
        """Return each model with the roles of the tokens that it reads and writes."""
        return (
            (self.answer, Role.ANSWER_INPUT, Role.ANSWER_OUTPUT),
            (self.compressing, Role.COMPRESS_INPUT, Role.COMPRESS_OUTPUT),
        )

    def lapsing(self, usage: Any) -> Any:
        """Return the part of stage 1 that a prompt cache forgets: writing instead of reading."""
        if not self.caches:
            return 0.0
        shared = self._cached_tokens(usage)
        return _by_tier(
            usage, self.answer, _PROMPT, lambda p: shared * (p.write_price - p.read_price)
        )

    def _cached_tokens(self, usage: Any) -> Any:
        """Return the shared prompt tokens, where they are enough to be cached."""
        shared = usage.shared_input
        return shared * (shared >= self.answer.cache_least)


def _plain(price: ModelPrice, usage: Any, stage: Stage, read: Role, written: Role) -> Any:
    """Return the cost of a stage's tokens of one model, as if no cache touched them."""
    inputs = usage.tokens.get((stage, read), 0.0)
    outputs = usage.tokens.get((stage, written), 0.0)
    return _by_tier(usage, price, (stage, read), lambda p: inputs * p.input + outputs * p.output)


def _by_tier(
    usage: Any, price: ModelPrice, prompt: Account, cost: Callable[[ModelPrice], Any]
) -> Any:
    """Return a cost at the tier of the mean prompt of the calls of a stage."""
    if not price.tiers:
        return cost(price)
    calls = usage.prepare_calls if prompt[0] == Stage.PREPARE else usage.query_calls
    mean = usage.tokens.get(prompt, 0.0) / np.maximum(1, calls)
    total: Any = 0.0
    starts = [float(tier.above) for tier in price.tiers]
    for low, high in pairwise([-1.0, *starts, math.inf]):
        within = (mean > low) & (mean <= high)
        total = total + within * cost(price.without_tiers(low + 1))
    return total


# LiteLLM's public map of models and their prices.

_IN_THE_MAP = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cached_input": "cache_read_input_token_cost",
    "cache_write": "cache_creation_input_token_cost",
    "cache_write_1h": "cache_creation_input_token_cost_above_1hr",
}
"""Prices of a model, and their names in the map."""

_HERE = {name: price for price, name in _IN_THE_MAP.items()}
_PRICE = re.compile(rf"({'|'.join(_HERE)})(?:_above_(\d{{1,6}})k_tokens)?")
_RANGES = "tiered_pricing"
_MOST_CANDIDATES = 8  # named in an error


def settings_of_map(
    listed: Mapping[str, Any], models: Mapping[str, str], *, batch: bool
) -> dict[str, Any]:
    """Return the settings of a `PriceVector`, read from LiteLLM's price map.

    Raises:
        ValueError: The map has no price of a model, or several.
    """
    check_kind("models", models, Mapping)  # type: ignore[type-abstract]
    answer = _entry(listed, models.get("answer", ""), "answer")
    compressor = None
    if "compressor" in models:
        compressor = _entry(listed, models["compressor"], "compressor")
    settings = {"unit": "USD", "answer": _price(answer), "scorer": 0.0}
    if compressor is not None or batch:
        settings["compressor"] = _price(compressor or answer, batch=batch)
    return settings


def _entry(listed: Mapping[str, Any], name: str, role: str) -> Mapping[str, Any]:
    """Return the map's entry of a model: the exact name, else the only entry of any provider."""
    if not name or not isinstance(name, str):
        raise ValueError(
            f"name the model of the role {role}, to find its price; got {shown(name, 60)}"
        )
    exact = _flat(listed.get(name))
    if _is_priced(exact):
        return exact
    candidates = {}
    for key in listed:
        entry = _flat(listed[key])
        if key.endswith(f"/{name}") and _is_priced(entry):
            candidates[key] = entry
    if not candidates:
        raise ValueError(f"it has no price of {name!r}, the model of the role {role}")
    first, *others = candidates.values()
    quoted = _costs(first)
    if all(_costs(entry) == quoted for entry in others):
        return first
    names = sorted(candidates)
    several = ", ".join(names[:_MOST_CANDIDATES])
    more = len(names) - _MOST_CANDIDATES
    rest = f" and {more} more" if more > 0 else ""
    raise ValueError(
        f"{name!r}, the model of the role {role}, has different prices: name one of {several}{rest}"
    )


def _is_priced(entry: object) -> TypeIs[Mapping[str, Any]]:
    return isinstance(entry, Mapping) and entry.get("input_cost_per_token") is not None


def _costs(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if "cost" in key}


def _flat(entry: object) -> object:
    """Return an entry with its list of price ranges rewritten as the usual flat keys."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get(_RANGES), list):
        return entry
    flat = {key: value for key, value in entry.items() if key != _RANGES}
    for tier in entry[_RANGES]:
        try:
            thousands, part = divmod(tier["range"][0], 1000)
        except (TypeError, LookupError):
            return entry
        if part:
            return entry
        suffix = f"_above_{int(thousands)}k_tokens" if thousands else ""
        for name in _HERE:
            if tier.get(name) is not None:
                flat[f"{name}{suffix}"] = tier[name]
    return flat


def _price(entry: Mapping[str, Any], *, batch: bool = False) -> dict[str, Any]:
    """Return the settings of a `ModelPrice`; with ``batch``, at the batch prices."""
    tiers: dict[int, dict[str, Any]] = defaultdict(dict)
    for key, value in entry.items():
        match = _PRICE.fullmatch(key)
        if match is not None and value is not None:
            name, thousands = match.groups()
            price = _batch_price(entry, key, name) if batch else value
            tiers[int(thousands or 0) * 1000][_HERE[name]] = price
    price = tiers.pop(0, {})
    price["tiers"] = [{"above": above, **tiers[above]} for above in sorted(tiers)]
    least = entry.get("prompt_cache_min_tokens")
    if least is not None:
        price["cache_least"] = int(least)
    return price


def _batch_price(entry: Mapping[str, Any], key: str, name: str) -> float:
    """Return the batch price of a key; without one a tier has the discount of the usual price."""
    usual: float = entry.get(name) or 0.0
    discounted = entry.get(f"{name}_batches")
    price: float = entry[key]
    listed: float | None = entry.get(f"{key}_batches")
    if discounted is None or listed is not None:
        return price if listed is None else listed
    return price * discounted / usual if usual else price
