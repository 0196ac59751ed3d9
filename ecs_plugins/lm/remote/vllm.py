"""vLLM's ``/v1/completions`` with ``prompt_logprobs``.

The answer holds one entry per prompt token, empty for the first: token id (as text) ->
``{"logprob": ...}``, for the token itself and for as many likelier ones as were asked for. vLLM
ignores its prefix cache for such requests and answers for the whole prompt. One token is
generated because the endpoint wants at least one.
"""

from __future__ import annotations

from collections.abc import Sequence

from ecs_plugins.lm.base import Generation
from ecs_plugins.lm.generation import GenerationOptions
from ecs_plugins.lm.remote.dialect import Ask, Json, Scores, checked, window_of_models

_NO_CHANCE = -9999.0
"""What vLLM writes for minus infinity, which JSON does not know."""


class VLLM:
    """The dialect of vLLM servers."""

    name = "vllm"
    shares_prefixes = False

    def score(self, model: str, ids: Sequence[int], start: int) -> Ask:
        """See `Dialect`; the answer is about the whole prompt."""
        del start
        return Ask(
            "/v1/completions",
            {
                "model": model,
                "prompt": list(ids),
                "max_tokens": 1,
                "temperature": 0,
                "prompt_logprobs": 0,
            },
        )

    def scores(self, answer: Json, ids: Sequence[int], start: int) -> Scores:
        """See `Dialect`."""
        entries = answer["choices"][0]["prompt_logprobs"]
        values = []
        for n, entry in enumerate(entries[start:], start):
            wanted = str(ids[n]) if n < len(ids) else ""
            token = wanted if wanted in entry else next(iter(entry))
            values.append((int(token), entry[token]["logprob"]))
        logprobs = checked(values, ids[start:])
        usage = answer.get("usage") or {}
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        return Scores(
            tuple(float("-inf") if n <= _NO_CHANCE else n for n in logprobs), len(ids) - int(cached)
        )

    def generate(self, model: str, ids: Sequence[int], options: GenerationOptions) -> Ask:
        """See `Dialect`."""
        return Ask(
            "/v1/completions",
            {
                "model": model,
                "prompt": list(ids),
                "max_tokens": options.max_new_tokens,
                "temperature": options.temperature,
                "top_p": options.top_p,
                "seed": options.seed,
                "stop": list(options.stop),
            },
        )

    def generation(self, answer: Json) -> Generation:
        """See `Dialect`."""
        choice, usage = answer["choices"][0], answer["usage"]
        return Generation(
            text=str(choice["text"]),
            prompt_tokens=int(usage["prompt_tokens"]),
            completion_tokens=int(usage["completion_tokens"]),
            finish_reason="length" if choice["finish_reason"] == "length" else "stop",
        )

    def tokenize(self, model: str, text: str) -> Ask:
        """See `Dialect`."""
        return Ask("/tokenize", {"model": model, "prompt": text, "add_special_tokens": True})

    def tokenized(self, answer: Json) -> list[int]:
        """See `Dialect`."""
        return [int(token) for token in answer["tokens"]]

    def window_asks(self) -> tuple[Ask, ...]:
        """See `Dialect`."""
        return (Ask("/v1/models"),)

    def window(self, answer: Json, model: str) -> int | None:
        """See `Dialect`; one token of the context is for the generated one."""
        total = window_of_models(answer, model)
        return None if total is None else total - 1
