"""How many tokens a call took, as frameworks and providers report it.

Providers count the prompt in two ways. OpenAI, Gemini, DeepSeek, LangChain and LiteLLM report all
prompt tokens and say how many of them came from the cache. Anthropic reports only those that were
neither read from the cache nor written to it. Which one a report is follows from its own fields;
one that cannot be told is not counted at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic.alias_generators import to_camel


class CacheTokens(NamedTuple):
    """Of the prompt tokens, those read from a prompt cache, written for 5 minutes, for an hour."""

    read: int
    written: int
    written_1h: int

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self)

    def plus(self, other: CacheTokens) -> CacheTokens:
        """Those of two calls."""
        return CacheTokens(
            self.read + other.read,
            self.written + other.written,
            self.written_1h + other.written_1h,
        )


NO_CACHE = CacheTokens(0, 0, 0)


class ReportedUsage(NamedTuple):
    """Tokens of one call; None where nothing says it."""

    prompt: int | None = None
    written: int | None = None
    cache: CacheTokens = NO_CACHE


def reported_usage(reply: Any) -> ReportedUsage:
    """What the reply of a framework or a provider reports, by the first report in it."""
    for report in _reports(reply):
        usage = _read(report)
        if usage.prompt == 0:
            # No call reads nothing: a framework has filled in what it was not told.
            usage = usage._replace(prompt=None, written=usage.written or None)
        if usage.prompt is not None or usage.written is not None:
            return usage
    return ReportedUsage()


def _reports(reply: Any) -> Iterator[Any]:
    """Where frameworks and providers put their report of usage."""
    message = _part(reply, "message")
    raw = _part(reply, "raw")
    yield _part(reply, "usage_metadata")  # LangChain; Gemini's own replies
    yield _part(raw, "usage")  # LlamaIndex: the provider's own reply
    yield _part(raw, "usage_metadata")
    yield _part(raw, "usageMetadata")  # Gemini over REST
    yield _part(reply, "usage")  # a provider's own reply
    yield _part(reply, "additional_kwargs")  # LlamaIndex, in the names of OpenAI
    yield _part(message, "additional_kwargs")
    yield _part(_part(reply, "response_metadata"), "token_usage")  # older LangChain


def _read(report: Any) -> ReportedUsage:
    if report is None:
        return ReportedUsage()
    if _count(report, "prompt_token_count") is not None:
        return _gemini(report)
    if _count(report, "promptTokenCount") is not None:
        return _gemini({name: _part(report, to_camel(name)) for name in _OF_GEMINI})
    if _count(report, "prompt_tokens") is not None:
        return _openai(report)
    if _part(report, "input_token_details") is not None:
        return _langchain(report)
    if _part(report, "input_tokens_details") is not None:
        return _openai_responses(report)
    if _count(report, "cache_read_input_tokens") is not None:
        return _anthropic(report)
    if _count(report, "cache_creation_input_tokens") is not None:
        return _anthropic(report)
    return ReportedUsage(
        _count(report, "input_tokens"),
        _first(report, "output_tokens", "completion_tokens"),
    )


def _langchain(report: Any) -> ReportedUsage:
    """``usage_metadata``: ``input_tokens`` holds what was cached."""
    details = _part(report, "input_token_details")
    writes = _writes(details, _count(details, "cache_creation"))
    return ReportedUsage(
        _count(report, "input_tokens"),
        _count(report, "output_tokens"),
        writes._replace(read=_count(details, "cache_read") or 0),
    )


def _openai(report: Any) -> ReportedUsage:
    """Chat completions of OpenAI, DeepSeek and LiteLLM: ``prompt_tokens`` holds what was cached."""
    details = _part(report, "prompt_tokens_details")
    read = _count(details, "cached_tokens")
    if read is None:
        read = _first(report, "prompt_cache_hit_tokens", "cache_read_input_tokens")
    written = _anthropic_writes(report)
    return ReportedUsage(
        _count(report, "prompt_tokens"),
        _first(report, "completion_tokens", "output_tokens"),
        CacheTokens(read or 0, written.written, written.written_1h),
    )


def _openai_responses(report: Any) -> ReportedUsage:
    """The Responses interface of OpenAI: ``input_tokens`` holds what was cached."""
    details = _part(report, "input_tokens_details")
    return ReportedUsage(
        _count(report, "input_tokens"),
        _count(report, "output_tokens"),
        CacheTokens(_count(details, "cached_tokens") or 0, 0, 0),
    )


def _anthropic(report: Any) -> ReportedUsage:
    """Anthropic's own: ``input_tokens`` leaves out what its cache read and wrote."""
    fresh = _count(report, "input_tokens")
    read = _count(report, "cache_read_input_tokens") or 0
    cache = _anthropic_writes(report)._replace(read=read)
    prompt = None if fresh is None else fresh + cache.total
    return ReportedUsage(prompt, _count(report, "output_tokens"), cache)


def _anthropic_writes(report: Any) -> CacheTokens:
    """Tokens written to Anthropic's cache, apart by how long they live."""
    lives = _part(report, "cache_creation")
    return _writes(lives, _count(report, "cache_creation_input_tokens"))


def _writes(lives: Any, total: int | None) -> CacheTokens:
    """Tokens written to a cache: as they are told by how long they live, the others for short."""
    hour = _count(lives, "ephemeral_1h_input_tokens") or 0
    short = _count(lives, "ephemeral_5m_input_tokens") or 0
    untold = (total or 0) - hour
    return CacheTokens(0, max(short, untold), hour)


_OF_GEMINI = (
    "prompt_token_count",
    "candidates_token_count",
    "thoughts_token_count",
    "tool_use_prompt_token_count",
    "cached_content_token_count",
)
"""Gemini's names, which its REST interface writes in camel case."""


def _gemini(report: Any) -> ReportedUsage:
    """``usage_metadata`` of Gemini: ``prompt_token_count`` holds what was cached.

    What is zero is left out: a reply of thoughts alone has no candidates.
    """
    prompt = _sum(report, "prompt_token_count", "tool_use_prompt_token_count")
    written = _sum(report, "candidates_token_count", "thoughts_token_count")
    read = _count(report, "cached_content_token_count") or 0
    return ReportedUsage(prompt, written, CacheTokens(read, 0, 0))


def _sum(report: Any, *names: str) -> int | None:
    """The sum of those counts that are there; None where none is."""
    counts = [_count(report, name) for name in names]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _first(report: Any, *names: str) -> int | None:
    counts = (_count(report, name) for name in names)
    return next((count for count in counts if count is not None), None)


def _count(owner: Any, name: str) -> int | None:
    value = _part(owner, name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return value


def _part(owner: Any, name: str) -> Any:
    if owner is None:
        return None
    return owner.get(name) if isinstance(owner, Mapping) else getattr(owner, name, None)
