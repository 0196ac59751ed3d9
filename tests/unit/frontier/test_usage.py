"""The reports of usage that providers document, as they come back through the frameworks."""

from types import SimpleNamespace

import pytest

from ecs_plugins.frontier.usage import CacheTokens, ReportedUsage, reported_usage

LANGCHAIN = {
    "input_tokens": 2459,
    "output_tokens": 23,
    "total_tokens": 2482,
    "input_token_details": {"cache_read": 2400, "cache_creation": 50},
}
LANGCHAIN_ANTHROPIC = {
    "input_tokens": 2459,
    "output_tokens": 23,
    "total_tokens": 2482,
    "input_token_details": {
        "cache_read": 1000,
        "cache_creation": 0,
        "ephemeral_5m_input_tokens": 400,
        "ephemeral_1h_input_tokens": 56,
    },
}
OPENAI = {
    "prompt_tokens": 2459,
    "completion_tokens": 23,
    "total_tokens": 2482,
    "prompt_tokens_details": {"cached_tokens": 2432, "audio_tokens": 0},
}
OPENAI_RESPONSES = {
    "input_tokens": 2459,
    "input_tokens_details": {"cached_tokens": 2432},
    "output_tokens": 23,
}
ANTHROPIC = {
    "input_tokens": 4,
    "output_tokens": 23,
    "cache_read_input_tokens": 2000,
    "cache_creation_input_tokens": 455,
    "cache_creation": {"ephemeral_5m_input_tokens": 400, "ephemeral_1h_input_tokens": 55},
}
LITELLM = {
    "prompt_tokens": 2459,
    "completion_tokens": 23,
    "total_tokens": 2482,
    "cache_read_input_tokens": 2455,
    "cache_creation_input_tokens": 0,
    "prompt_tokens_details": {"cached_tokens": 2455},
}
DEEPSEEK = {
    "prompt_tokens": 100,
    "completion_tokens": 5,
    "prompt_cache_hit_tokens": 90,
    "prompt_cache_miss_tokens": 10,
}
GEMINI = {
    "prompt_token_count": 2459,
    "candidates_token_count": 20,
    "thoughts_token_count": 3,
    "cached_content_token_count": 2048,
    "total_token_count": 2482,
}
GEMINI_OVER_REST = {
    "promptTokenCount": 2400,
    "toolUsePromptTokenCount": 59,
    "thoughtsTokenCount": 23,
    "cachedContentTokenCount": 2048,
}
OPENROUTER = {"prompt_tokens": 1000, "completion_tokens": 5, "cache_write_tokens": 300}
BEDROCK = {
    "inputTokens": 100,
    "outputTokens": 5,
    "cacheReadInputTokens": 50,
    "cacheWriteInputTokens": 70,
}
RESPONSES_WRITE = {
    "input_tokens": 1000,
    "output_tokens": 5,
    "input_tokens_details": {"cached_tokens": 100, "cache_write_tokens": 200},
}
UNTOLD = {"cache_creation": 455, "ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}
NOTHING = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
NULLS = dict.fromkeys(["cache_read_input_tokens", "prompt_tokens_details", "cache_creation"])


@pytest.mark.parametrize(
    ("reply", "usage"),
    [
        ({"usage_metadata": LANGCHAIN}, ReportedUsage(2459, 23, CacheTokens(2400, 50, 0))),
        (
            {"usage_metadata": LANGCHAIN_ANTHROPIC},
            ReportedUsage(2459, 23, CacheTokens(1000, 400, 56)),
        ),
        ({"raw": {"usage": OPENAI}}, ReportedUsage(2459, 23, CacheTokens(2432, 0, 0))),
        ({"additional_kwargs": OPENAI}, ReportedUsage(2459, 23, CacheTokens(2432, 0, 0))),
        ({"raw": {"usage": OPENAI_RESPONSES}}, ReportedUsage(2459, 23, CacheTokens(2432, 0, 0))),
        ({"raw": {"usage": ANTHROPIC}}, ReportedUsage(2459, 23, CacheTokens(2000, 400, 55))),
        ({"raw": {"usage": LITELLM}}, ReportedUsage(2459, 23, CacheTokens(2455, 0, 0))),
        ({"raw": {"usage": DEEPSEEK}}, ReportedUsage(100, 5, CacheTokens(90, 0, 0))),
        ({"raw": {"usage_metadata": GEMINI}}, ReportedUsage(2459, 23, CacheTokens(2048, 0, 0))),
        (
            {"raw": {"usageMetadata": GEMINI_OVER_REST}},
            ReportedUsage(2459, 23, CacheTokens(2048, 0, 0)),
        ),
        ({"raw": {"usage": {**OPENAI, **NULLS}}}, ReportedUsage(2459, 23)),
        (
            {"raw": {"usage": {**ANTHROPIC, **NULLS}}},
            ReportedUsage(459, 23, CacheTokens(0, 455, 0)),
        ),
        (
            {"usage_metadata": {**LANGCHAIN_ANTHROPIC, "input_token_details": UNTOLD}},
            ReportedUsage(2459, 23, CacheTokens(0, 455, 0)),
        ),
        (
            {"usage_metadata": NOTHING, "response_metadata": {"token_usage": OPENAI}},
            ReportedUsage(2459, 23, CacheTokens(2432, 0, 0)),
        ),
        ({"usage": OPENROUTER}, ReportedUsage(1000, 5, CacheTokens(0, 300, 0))),
        ({"token_usage": BEDROCK}, ReportedUsage(220, 5, CacheTokens(50, 70, 0))),
        ({"usage": RESPONSES_WRITE}, ReportedUsage(1000, 5, CacheTokens(100, 200, 0))),
        ({"usage": {}}, ReportedUsage()),
        ({"additional_kwargs": {"prompt_tokens": 0, "completion_tokens": 0}}, ReportedUsage()),
        ({"usage_metadata": {**NOTHING, "output_tokens": 23}}, ReportedUsage(None, 23)),
        ({"raw": {"usage": {"prompt_tokens": True}}}, ReportedUsage()),
        ({"raw": {"usage": {"tokens": 7}}}, ReportedUsage()),
        ("plain text", ReportedUsage()),
    ],
)
@pytest.mark.parametrize("as_object", [False, True])
def test_every_form_is_read_by_its_own_fields(reply, usage, as_object):
    assert reported_usage(objects(reply) if as_object else reply) == usage


def objects(value):
    """Mappings as objects with attributes, as clients of providers give them."""
    if not isinstance(value, dict):
        return value
    return SimpleNamespace(**{name: objects(inner) for name, inner in value.items()})
