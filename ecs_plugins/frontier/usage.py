"""Tokens of a model call, as frameworks and providers report them.

Providers count the prompt in two ways. OpenAI, Gemini, DeepSeek, LangChain and LiteLLM report all
prompt tokens and say how many of them came from the cache. Anthropic and Bedrock report only those
that the cache neither served nor stored. The names in a report tell which way it is. Names in camel
case are read as well. A report without a count of the prompt is unknown, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic.alias_generators import to_camel

from ecs_plugins.tokens import Role, Stage, TokenLedger


class CacheTokens(NamedTuple):
    """Prompt tokens read from a prompt cache, written for 5 minutes, and written for an hour."""

    read: int
    written: int
    written_1h: int

    @property
    def total(self) -> int:
        """Return all of them."""
        return sum(self)

    def plus(self, other: CacheTokens) -> CacheTokens:
        """Return the sum of two calls."""
        return CacheTokens(*map(sum, zip(self, other, strict=True)))


NO_CACHE = CacheTokens(0, 0, 0)


class ReportedUsage(NamedTuple):
    """Tokens of one call; None where nothing says it."""

    prompt: int | None = None
    written: int | None = None
    cache: CacheTokens = NO_CACHE


class ModelCall(NamedTuple):
    """One call of a model, for prices that depend on the length of its prompt."""

    stage: Stage
    read: int
    written: int
    cache: CacheTokens = NO_CACHE


def booked(calls: Iterable[ModelCall]) -> TokenLedger:
    """Return the tokens of some calls."""
    ledger = TokenLedger()
    for stage, read, written, _ in calls:
        prepares = stage == Stage.PREPARE
        ledger.book(stage, Role.COMPRESS_INPUT if prepares else Role.ANSWER_INPUT, read)
        ledger.book(stage, Role.COMPRESS_OUTPUT if prepares else Role.ANSWER_OUTPUT, written)
    return ledger


_PLACES = (
    "usage_metadata",  # LangChain; Gemini's own replies
    "raw.usage",  # LlamaIndex: the reply of the provider
    "raw.usage_metadata",
    "usage",  # the reply of a provider
    "additional_kwargs",  # LlamaIndex, in the names of OpenAI
    "message.additional_kwargs",
    "response_metadata.token_usage",  # older LangChain
    "response_metadata.usage",
    "token_usage",  # ``llm_output`` of completion models
    "raw",  # Ollama
)
"""Places of a report in a reply."""

_PROMPT = ("prompt_tokens", "input_tokens", "prompt_eval_count", "tokens.input_tokens")
_WRITTEN = ("completion_tokens", "output_tokens", "eval_count", "tokens.output_tokens")
_GEMINI_PROMPT = ("prompt_token_count", "tool_use_prompt_token_count")
_GEMINI_WRITTEN = ("candidates_token_count", "thoughts_token_count")
_DETAILS = ("prompt_tokens_details", "input_tokens_details", "input_token_details")
_CACHE_READ = (
    "prompt_tokens_details.cached_tokens",
    "input_tokens_details.cached_tokens",
    "input_token_details.cache_read",
    "cached_content_token_count",
    "prompt_cache_hit_tokens",
    "cache_read_input_tokens",
)
_CACHE_WRITE = (
    "cache_creation_input_tokens",
    "cache_write_input_tokens",
    "cache_write_tokens",
    "prompt_tokens_details.cache_creation_tokens",
    "prompt_tokens_details.cache_write_tokens",
    "input_tokens_details.cache_write_tokens",
    "input_token_details.cache_creation",
)
_LIVES = (
    "cache_creation",
    "input_token_details",
    "prompt_tokens_details.cache_creation_token_details",
)
"""Places where writes are told apart by how long they live."""


def reported_usage(reply: Any) -> ReportedUsage:
    """Return the first report of tokens in a reply of a framework or a provider."""
    for place in _PLACES:
        usage = _read(_part(reply, place))
        if usage.prompt is not None or usage.written is not None:
            return usage
    return ReportedUsage()


def _read(report: Any) -> ReportedUsage:
    if report is None:
        return ReportedUsage()
    if _count(report, _GEMINI_PROMPT[0]) is not None:
        prompt = _sum(report, _GEMINI_PROMPT)
        written = _sum(report, _GEMINI_WRITTEN)
    else:
        prompt = _first(report, _PROMPT)
        written = _first(report, _WRITTEN)
    cache = _cache(report)
    if prompt is not None and _leaves_out_cached(report):
        prompt += cache.total
    if prompt == 0:
        # Every call reads something: the framework has filled in a count that it was not told.
        return ReportedUsage(None, written or None)
    return ReportedUsage(prompt, written, cache)


def _leaves_out_cached(report: Any) -> bool:
    """Return True if the prompt tokens of a report leave out the cached tokens."""
    if _count(report, "input_tokens") is None or _count(report, "prompt_tokens") is not None:
        return False
    return all(_part(report, name) is None for name in _DETAILS)


def _cache(report: Any) -> CacheTokens:
    hour = 0
    short = 0
    for place in _LIVES:
        lives = _part(report, place)
        hour = hour or _count(lives, "ephemeral_1h_input_tokens") or 0
        short = short or _count(lives, "ephemeral_5m_input_tokens") or 0
    total = max((_count(report, name) or 0 for name in _CACHE_WRITE), default=0)
    return CacheTokens(_first(report, _CACHE_READ) or 0, max(short, total - hour), hour)


def _first(report: Any, names: Sequence[str]) -> int | None:
    return next(_counts(report, names), None)


def _sum(report: Any, names: Sequence[str]) -> int | None:
    """Return the sum of the counts that are there; None without any."""
    counts = list(_counts(report, names))
    return sum(counts) if counts else None


def _counts(report: Any, names: Sequence[str]) -> Iterator[int]:
    for name in names:
        count = _count(report, name)
        if count is not None:
            yield count


def _count(owner: Any, path: str) -> int | None:
    value = _part(owner, path)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return value


def _part(owner: Any, path: str) -> Any:
    """Return the part of a mapping or an object at a path, in snake or camel case."""
    for name in path.split("."):
        found = None
        for spelled in (name, to_camel(name)):
            if found is None and isinstance(owner, Mapping):
                found = owner.get(spelled)
            elif found is None:
                found = getattr(owner, spelled, None)
        owner = found
    return owner
