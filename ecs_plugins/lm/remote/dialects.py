"""Requests and answers of SGLang and vLLM."""

from __future__ import annotations

import io
import math
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import numpy as np
from pydantic import AliasPath, BaseModel, BeforeValidator, Field, RootModel

from ecs_plugins.errors import ScoringError
from ecs_plugins.lm.base import Generation, GenerationOptions

T = TypeVar("T")

CANNOT_SCORE = (
    "llama.cpp's server, Ollama and LM Studio return no log-probabilities of a prompt's tokens, so "
    "serve the model with SGLang or vLLM, or load its files with LocalLM.from_pretrained"
)
"""Advice for a server that does not answer as SGLang or vLLM do."""

_ROUNDED = 1e-3  # rounding may put a log-probability this far above 0

Ids = Sequence[int]
Scores = tuple[list[float], int]
"""Log-probabilities of the tokens from the first scored one on, and tokens computed."""
Prompts = Sequence[tuple[Ids, int]]
"""Ids of each prompt, and the index of its first scored token, at least 1."""


class NoScoresError(ScoringError):
    """An answer without log-probabilities."""


class ServerRequest(NamedTuple, Generic[T]):
    """One HTTP request, the format of its answer, and the parser; GET without a body.

    ``otherwise`` is the request to send instead after a `NoScoresError`.
    """

    path: str
    form: type[BaseModel]
    read: Callable[[Any], T]
    body: Mapping[str, Any] | None = None
    otherwise: ServerRequest[T] | None = None


def _at(*path: str | int, **default: Any) -> Any:
    return Field(validation_alias=AliasPath(*path), **default)  # type: ignore[arg-type]


class _ServedModel(BaseModel):
    id: str
    max_model_len: int | None = None


class ServerInfo(BaseModel):
    """Models of a server."""

    data: list[_ServedModel] = []

    def window(self, model: str) -> int:
        """Return the context length of a model; 0 if the server does not tell it."""
        return max([0, *(each.max_model_len or 0 for each in self.data if each.id == model)])


SERVER_INFO: ServerRequest[ServerInfo] = ServerRequest("/v1/models", ServerInfo, lambda info: info)
"""Question of a server about its models."""


class _Answer(BaseModel):
    """Fields that the answers of both servers have, at different places."""

    text: str = ""
    prompt_tokens: int
    completion_tokens: int
    cached: int | None = None
    reason: str | None = None

    def generation(self) -> Generation:
        """Return the text that the server wrote."""
        reason = "length" if self.reason == "length" else "stop"
        return Generation(self.text, self.prompt_tokens, self.completion_tokens, reason)


class _SGLangAnswer(_Answer):
    prompt_tokens: int = _at("meta_info", "prompt_tokens")
    completion_tokens: int = _at("meta_info", "completion_tokens")
    cached: int | None = _at("meta_info", "cached_tokens", default=None)
    reason: str | None = _at("meta_info", "finish_reason", "type", default=None)
    entries: list[tuple[float | None, int, object]] = _at(
        "meta_info", "input_token_logprobs", default=[]
    )


_SGLangAnswers = RootModel[list[_SGLangAnswer]]


class SGLang:
    """SGLang's native ``/generate``.

    ``input_token_logprobs`` holds ``[log-probability, token id, text]`` from position
    ``logprob_start_len`` on; the tokens before it come from the cache. Its first entry has no
    number, because its logits belong to the position before. So a request starts one token early.

    Attributes:
        model: Name under which the model is served, once it is known.
        together: Prompts in one request, at most.
        shares_prefixes: True if prompt log-probabilities use the server's prefix cache.
        reserved: Tokens of the context length that no prompt may fill.
    """

    model = ""
    together = 32
    shares_prefixes = True
    reserved = 8

    def score(self, prompts: Prompts) -> ServerRequest[list[Scores]]:
        """Ask for the log-probabilities of each prompt from its first scored token on."""

        def read(answers: _SGLangAnswers) -> list[Scores]:
            if len(answers.root) != len(prompts):
                raise ScoringError(
                    f"the server returned {len(answers.root)} answers to {len(prompts)} prompts; "
                    "check that no proxy changes or truncates requests"
                )
            scores = []
            for answer, (ids, start) in zip(answers.root, prompts, strict=True):
                rows = [{token: logprob} for logprob, token, _ in answer.entries]
                logprobs = _checked(rows[1:], ids[start:])
                scores.append((logprobs, len(ids) - (answer.cached or 0)))
            return scores

        inputs = [list(ids) for ids, _ in prompts]
        starts = [start - 1 for _, start in prompts]
        return self._logprobs({"input_ids": inputs}, starts, _SGLangAnswers, read)

    def generate(self, ids: Ids, options: GenerationOptions) -> ServerRequest[Generation]:
        """Ask for a continuation."""
        sampling = options.to_json()
        seed = sampling.pop("seed")
        if options.temperature:
            sampling["sampling_seed"] = seed  # unknown to older versions
        body = {"input_ids": list(ids), "sampling_params": sampling}
        return ServerRequest("/generate", _SGLangAnswer, _SGLangAnswer.generation, body)

    def tokenize(self, text: str) -> ServerRequest[list[int]]:
        """Ask for the ids of a text, which every version returns with log-probabilities."""

        def read(answer: _SGLangAnswer) -> list[int]:
            return [token for _, token, _ in answer.entries]

        return self._logprobs({"text": text}, 0, _SGLangAnswer, read)

    def _logprobs(
        self,
        prompt: dict[str, Any],
        start: int | list[int],
        form: type[BaseModel],
        read: Callable[[Any], T],
    ) -> ServerRequest[T]:
        wanted = {
            "sampling_params": {"max_new_tokens": 0, "temperature": 0},
            "return_logprob": True,
            "logprob_start_len": start,
        }
        return ServerRequest("/generate", form, read, prompt | wanted)


class _VLLMToken(BaseModel):
    logprob: float | None


class _VLLMAnswer(_Answer):
    text: str = _at("choices", 0, "text")
    prompt_tokens: int = _at("usage", "prompt_tokens")
    completion_tokens: int = _at("usage", "completion_tokens")
    cached: int | None = _at("usage", "prompt_tokens_details", "cached_tokens", default=None)
    reason: str | None = _at("choices", 0, "finish_reason", default=None)
    entries: list[dict[int, _VLLMToken] | None] | None = _at(
        "choices", 0, "prompt_logprobs", default=None
    )


class _VLLMTokens(BaseModel):
    tokens: list[int]


def _row_scores(encoded: object) -> object:
    if not isinstance(encoded, str):
        return encoded
    try:
        rows = np.load(io.BytesIO(b64decode(encoded)), allow_pickle=False)
        return rows[:, 0].tolist()
    except Exception as error:  # NumPy raises many kinds
        raise ValueError(f"not NumPy's format: {error}") from error


class _VLLMRows(BaseModel):
    scores: Annotated[list[float] | None, BeforeValidator(_row_scores)] = _at(
        "prompt_token_id_logprobs", default=None
    )
    cached: int | None = _at("usage", "prompt_tokens_details", "cached_tokens", default=None)


class VLLM:
    """vLLM's ``/inference/v1/generate``, else ``/v1/completions``; attributes as of `SGLang`.

    The first path (0.32, ``--enable-scale-out``) scores the given tokens from the position after
    ``prompt_logprob_start`` on. It reads the prefix cache, and has no numbers where the cache holds
    scored tokens. The second path answers for the whole prompt and ignores the cache; its entries
    are ``{token id: {"logprob": ...}}``. Both generate one token because vLLM wants at least one.

    Attributes:
        by_position: True if the servers know the first path.
    """

    model = ""
    together = 1
    shares_prefixes = False
    by_position = False
    reserved = 1
    no_chance = -9999.0
    """Stands for minus infinity, which JSON does not have."""

    def score(self, prompts: Prompts) -> ServerRequest[list[Scores]]:
        """Ask for the scores of one prompt, as `SGLang.score` does."""
        ((ids, start),) = prompts
        if self.by_position:
            return self.rows(ids, start)
        return self._whole_prompt(ids, start)

    def rows(self, ids: Ids, start: int) -> ServerRequest[list[Scores]]:
        """Ask the first path for the scores of one prompt."""
        wanted = ids[start:]

        def read(answer: _VLLMRows) -> list[Scores]:
            if answer.scores is None:
                raise NoScoresError("the server returned no log-probabilities")
            _require_as_many(answer.scores, wanted)
            rows = [{token: score} for token, score in zip(wanted, answer.scores, strict=True)]
            return [(_checked(rows, wanted), len(ids) - (answer.cached or 0))]

        sampling = {
            "max_tokens": 1,
            "temperature": 0,
            "prompt_logprob_token_ids": [[token] for token in wanted],
            "prompt_logprob_start": start - 1,
            "skip_reading_prefix_cache": False,
        }
        body = {"model": self.model, "token_ids": list(ids), "sampling_params": sampling}
        otherwise = self._whole_prompt(ids, start)
        return ServerRequest("/inference/v1/generate", _VLLMRows, read, body, otherwise)

    def _whole_prompt(self, ids: Ids, start: int) -> ServerRequest[list[Scores]]:
        def read(answer: _VLLMAnswer) -> list[Scores]:
            entries = (answer.entries or [])[start:]
            rows = [{token: told.logprob for token, told in (e or {}).items()} for e in entries]
            logprobs = [
                -math.inf if logprob <= self.no_chance else logprob
                for logprob in _checked(rows, ids[start:])
            ]
            return [(logprobs, len(ids) - (answer.cached or 0))]

        body = {
            "model": self.model,
            "prompt": list(ids),
            "max_tokens": 1,
            "temperature": 0,
            "prompt_logprobs": 0,
        }
        return ServerRequest("/v1/completions", _VLLMAnswer, read, body)

    def generate(self, ids: Ids, options: GenerationOptions) -> ServerRequest[Generation]:
        """Ask for a continuation."""
        body = options.to_json()
        body["max_tokens"] = body.pop("max_new_tokens")
        body["model"] = self.model
        body["prompt"] = list(ids)
        return ServerRequest("/v1/completions", _VLLMAnswer, _VLLMAnswer.generation, body)

    def tokenize(self, text: str) -> ServerRequest[list[int]]:
        """Ask for the ids of a text, with the tokens that the tokenizer adds."""
        body = {"model": self.model, "prompt": text, "add_special_tokens": True}
        return ServerRequest("/tokenize", _VLLMTokens, lambda answer: answer.tokens, body)


DIALECTS: dict[str, type[SGLang | VLLM]] = {"sglang": SGLang, "vllm": VLLM}


def _checked(rows: Sequence[Mapping[int, float | None]], ids: Ids) -> list[float]:
    """Return the log-probability of each id from the server's row at its place."""
    _require_as_many(rows, ids)
    logprobs = []
    for row, token in zip(rows, ids, strict=True):
        if token not in row:
            raise ScoringError(
                f"the server scored token {list(row)} where {token} was sent; it changes prompts "
                "and its scores cannot be used"
            )
        logprob = row[token]
        if logprob is None or not logprob <= _ROUNDED:
            raise ScoringError(
                f"the server returned {logprob} as a log-probability (NaN, or more than certain); "
                "its model is broken or overflows: serve it in bfloat16 or float32"
            )
        logprobs.append(logprob)
    return logprobs


def _require_as_many(scores: Sequence[object], ids: Ids) -> None:
    if len(scores) != len(ids):
        raise ScoringError(
            f"the server returned {len(scores)} log-probabilities for {len(ids)} tokens; "
            "check that no proxy changes or truncates requests"
        )
