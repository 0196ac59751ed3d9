"""What differs between servers: paths, payloads, and how an answer is read.

A dialect raises `ScoringError` for an answer whose numbers cannot be used, and
`KeyError`, `TypeError`, `ValueError` or `IndexError` for one that is not of the known form; the
client turns those into an error that says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from ecs_plugins.errors import ScoringError
from ecs_plugins.lm.base import Generation
from ecs_plugins.lm.generation import GenerationOptions

Json = Mapping[str, Any]
T = TypeVar("T")


class Ask(NamedTuple, Generic[T]):
    """One HTTP request, GET without a body and POST with one, and how its answer is read."""

    path: str
    read: Callable[[Json], T]
    body: Json | None = None


class ServerScores(NamedTuple):
    """Log-probabilities of the tokens from the first scored one on, and tokens computed."""

    logprobs: tuple[float, ...]
    computed_tokens: int


class SGLang:
    """SGLang's native ``/generate``.

    ``input_token_logprobs`` holds ``[log-probability, token id, text]`` from position
    ``logprob_start_len`` on; what lies before it comes from the cache. The first of them is empty:
    its logits belong to the position before, which the cache may have skipped. So one asks for one
    token more.

    Attributes:
        model: The name under which the model is served, once it is known.
        shares_prefixes: Whether prompt log-probabilities profit from the server's prefix cache.
        window_paths: Where to ask for the longest prompt, in order of preference.
        reserved: Tokens of the context that the server keeps, where it does not tell the limit.
    """

    model = ""
    shares_prefixes = True
    window_paths: tuple[str, ...] = ("/server_info", "/get_server_info", "/v1/models")
    reserved = 8

    def score(self, ids: Sequence[int], start: int) -> Ask[ServerScores]:
        """Ask for the log-probabilities of ``ids[start:]``; ``start`` is at least 1."""

        def read(answer: Json) -> ServerScores:
            meta = answer["meta_info"]
            (_, boundary), *entries = [(e[0], int(e[1])) for e in meta["input_token_logprobs"]]
            values = [(boundary, 0.0), *((token, value) for value, token in entries)]
            logprobs = checked(values, ids[start - 1 :])[1:]
            return ServerScores(logprobs, len(ids) - int(meta.get("cached_tokens") or 0))

        return _prefill({"input_ids": list(ids)}, start - 1, read)

    def generate(self, ids: Sequence[int], options: GenerationOptions) -> Ask[Generation]:
        """Ask for a continuation."""

        def read(answer: Json) -> Generation:
            meta = answer["meta_info"]
            return _generation(answer["text"], meta, meta["finish_reason"]["type"])

        sampling: dict[str, object] = {
            "max_new_tokens": options.max_new_tokens,
            "temperature": options.temperature,
            "top_p": options.top_p,
            "stop": list(options.stop),
        }
        if options.temperature:
            sampling["sampling_seed"] = options.seed
        body = {"input_ids": list(ids), "sampling_params": sampling}
        return Ask("/generate", read, body)

    def tokenize(self, text: str) -> Ask[list[int]]:
        """Ask for the ids of a text; they come along with log-probabilities in every version."""
        return _prefill(
            {"text": text},
            0,
            lambda answer: [int(e[1]) for e in answer["meta_info"]["input_token_logprobs"]],
        )

    def window(self, answer: Json) -> int | None:
        """The longest prompt in tokens, if the answer holds it."""
        if limit := answer.get("max_req_input_len"):
            return int(limit) - 1
        for entry in answer.get("data", ()):
            if entry["id"] == self.model and entry.get("max_model_len"):
                return int(entry["max_model_len"]) - self.reserved
        return None


def _prefill(prompt: dict[str, object], start: int, read: Callable[[Json], T]) -> Ask[T]:
    asked = {
        "sampling_params": {"max_new_tokens": 0, "temperature": 0},
        "return_logprob": True,
        "logprob_start_len": start,
    }
    return Ask("/generate", read, prompt | asked)


class VLLM(SGLang):
    """vLLM's ``/v1/completions`` with ``prompt_logprobs``.

    The answer holds one entry per prompt token, empty for the first: token id (as text) ->
    ``{"logprob": ...}``, for the token itself and for as many likelier ones as were asked for. vLLM
    ignores its prefix cache for such requests and answers for the whole prompt. One token is
    generated because the endpoint wants at least one.
    """

    shares_prefixes = False
    window_paths = ("/v1/models",)
    reserved = 1
    no_chance = -9999.0
    """What vLLM writes for minus infinity, which JSON does not know."""

    def score(self, ids: Sequence[int], start: int) -> Ask[ServerScores]:
        """Ask for the log-probabilities of the whole prompt, and read those from ``start`` on."""

        def read(answer: Json) -> ServerScores:
            values = []
            for n, entry in enumerate(answer["choices"][0]["prompt_logprobs"][start:], start):
                wanted = str(ids[n]) if n < len(ids) else ""
                token = wanted if wanted in entry else next(iter(entry))
                values.append((int(token), entry[token]["logprob"]))
            logprobs = checked(values, ids[start:])
            usage = answer.get("usage") or {}
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
            return ServerScores(
                tuple(-math.inf if n <= self.no_chance else n for n in logprobs),
                len(ids) - int(cached),
            )

        return self._complete(ids, read, max_tokens=1, temperature=0, prompt_logprobs=0)

    def generate(self, ids: Sequence[int], options: GenerationOptions) -> Ask[Generation]:
        """Ask for a continuation."""

        def read(answer: Json) -> Generation:
            choice = answer["choices"][0]
            return _generation(choice["text"], answer["usage"], choice["finish_reason"])

        return self._complete(
            ids,
            read,
            max_tokens=options.max_new_tokens,
            temperature=options.temperature,
            top_p=options.top_p,
            seed=options.seed,
            stop=list(options.stop),
        )

    def tokenize(self, text: str) -> Ask[list[int]]:
        """Ask for the ids of a text, with the tokens that the tokenizer adds."""
        body = {"model": self.model, "prompt": text, "add_special_tokens": True}
        return Ask("/tokenize", lambda answer: [int(token) for token in answer["tokens"]], body)

    def _complete(self, ids: Sequence[int], read: Callable[[Json], T], **asked: object) -> Ask[T]:
        return Ask("/v1/completions", read, {"model": self.model, "prompt": list(ids), **asked})


DIALECTS = {"sglang": SGLang, "vllm": VLLM}


def checked(values: Sequence[tuple[int, float | None]], ids: Sequence[int]) -> tuple[float, ...]:
    """Log-probabilities of exactly these ids.

    Raises:
        ScoringError: Other tokens, too few, or no numbers.
    """
    if len(values) != len(ids):
        raise ScoringError(
            f"the server returned {len(values)} log-probabilities for {len(ids)} tokens; check "
            "that nothing between here and the server changes or truncates requests"
        )
    for (got, _), wanted in zip(values, ids, strict=True):
        if got != wanted:
            raise ScoringError(
                f"the server scored token {got} where {wanted} was sent; it changes prompts and "
                "its scores cannot be used"
            )
    numbers = tuple(math.nan if value is None else float(value) for _, value in values)
    if any(math.isnan(n) or n == math.inf for n in numbers):
        raise ScoringError(
            "the server returned NaN log-probabilities; its model is broken or overflows: serve "
            "it in bfloat16 or float32"
        )
    return numbers


def _generation(text: object, usage: Json, reason: str) -> Generation:
    return Generation(
        text=str(text),
        prompt_tokens=int(usage["prompt_tokens"]),
        completion_tokens=int(usage["completion_tokens"]),
        finish_reason="length" if reason == "length" else "stop",
    )
