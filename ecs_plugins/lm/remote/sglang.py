"""SGLang's native ``/generate``.

``input_token_logprobs`` holds ``[log-probability, token id, text]`` from position
``logprob_start_len`` on. The first of them is empty: its logits belong to the position before,
which the prefix cache may have skipped. So one asks for one token more. What lies before
``logprob_start_len`` comes from the cache.
"""

from __future__ import annotations

from collections.abc import Sequence

from ecs_plugins.lm.base import Generation
from ecs_plugins.lm.generation import GenerationOptions
from ecs_plugins.lm.remote.dialect import Ask, Json, Scores, checked, window_of_models

_RESERVED = 8
"""Tokens of the context that SGLang keeps for itself, where it does not tell the limit."""


class SGLang:
    """The dialect of SGLang servers."""

    name = "sglang"
    shares_prefixes = True

    def score(self, model: str, ids: Sequence[int], start: int) -> Ask:
        """See `Dialect`; one server serves one model."""
        del model
        return _prefill({"input_ids": list(ids)}, start - 1)

    def scores(self, answer: Json, ids: Sequence[int], start: int) -> Scores:
        """See `Dialect`."""
        meta = answer["meta_info"]
        entries = [(int(e[1]), e[0]) for e in meta["input_token_logprobs"]]
        boundary = [(i, 0.0 if n == 0 else value) for n, (i, value) in enumerate(entries)]
        logprobs = checked(boundary, ids[start - 1 :])[1:]
        return Scores(logprobs, len(ids) - int(meta.get("cached_tokens") or 0))

    def generate(self, model: str, ids: Sequence[int], options: GenerationOptions) -> Ask:
        """See `Dialect`."""
        del model
        sampling: dict[str, object] = {
            "max_new_tokens": options.max_new_tokens,
            "temperature": options.temperature,
            "top_p": options.top_p,
            "stop": list(options.stop),
        }
        if options.temperature:
            sampling["sampling_seed"] = options.seed
        return Ask("/generate", {"input_ids": list(ids), "sampling_params": sampling})

    def generation(self, answer: Json) -> Generation:
        """See `Dialect`."""
        meta = answer["meta_info"]
        return Generation(
            text=str(answer["text"]),
            prompt_tokens=int(meta["prompt_tokens"]),
            completion_tokens=int(meta["completion_tokens"]),
            finish_reason="length" if meta["finish_reason"]["type"] == "length" else "stop",
        )

    def tokenize(self, model: str, text: str) -> Ask:
        """See `Dialect`; the ids come along with log-probabilities in every version."""
        del model
        return _prefill({"text": text}, 0)

    def tokenized(self, answer: Json) -> list[int]:
        """See `Dialect`."""
        return [int(entry[1]) for entry in answer["meta_info"]["input_token_logprobs"]]

    def window_asks(self) -> tuple[Ask, ...]:
        """See `Dialect`."""
        return Ask("/server_info"), Ask("/get_server_info"), Ask("/v1/models")

    def window(self, answer: Json, model: str) -> int | None:
        """See `Dialect`."""
        if limit := answer.get("max_req_input_len"):
            return int(limit) - 1
        total = window_of_models(answer, model) if "data" in answer else None
        return None if total is None else total - _RESERVED


def _prefill(prompt: dict[str, object], start: int) -> Ask:
    return Ask(
        "/generate",
        {
            **prompt,
            "sampling_params": {"max_new_tokens": 0, "temperature": 0},
            "return_logprob": True,
            "logprob_start_len": start,
        },
    )
