"""What differs between servers: paths, payloads, and how an answer is read."""

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
_ROUNDED = 1e-3  # what rounding may add to the logarithm of 1
_TO_CHECK = "check that nothing between here and the server changes or truncates requests"
Scores = tuple[list[float], int]
"""Log-probabilities of the tokens from the first scored one on, and tokens computed."""
Prompts = Sequence[tuple[Sequence[int], int]]
"""Ids of each prompt, and where its scored tokens begin: 1 at least."""


class NoScoresError(ScoringError):
    """An answer without log-probabilities."""


class ServerRequest(NamedTuple, Generic[T]):
    """One HTTP request, the form of its answer, and what is taken from it; GET without a body.

    ``otherwise`` is for a server that does not know the path, and for a `NoScoresError`.
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
    owned_by: str = ""
    max_model_len: int | None = None


class ServerInfo(BaseModel):
    """What a server tells of itself, each time a part: its models, or how much it takes."""

    data: list[_ServedModel] = []
    max_req_input_len: int | None = None

    def window(self, model: str, reserved: int) -> int:
        """The longest prompt: a model's context length less what is reserved; 0 if not told."""
        named = [served.max_model_len or 0 for served in self.data if served.id == model]
        lengths = [length - reserved for length in named]
        if self.max_req_input_len:
            lengths.append(self.max_req_input_len - 1)
        return max([0, *lengths])


def server_info(path: str) -> ServerRequest[ServerInfo]:
    """Ask what a server tells of itself at a path."""
    return ServerRequest(path, ServerInfo, lambda info: info)


class _SGLangAnswer(BaseModel):
    text: str = ""
    prompt_tokens: int = _at("meta_info", "prompt_tokens")
    completion_tokens: int = _at("meta_info", "completion_tokens")
    cached: int | None = _at("meta_info", "cached_tokens", default=None)
    reason: str | None = _at("meta_info", "finish_reason", "type", default=None)
    entries: list[tuple[float | None, int, object]] = _at(
        "meta_info", "input_token_logprobs", default=[]
    )


_SGLangAnswers = RootModel[list[_SGLangAnswer]]

Row = dict[int, float | None]
"""What a server tells at one place: log-probabilities by token id."""


class SGLang:
    """SGLang's native ``/generate``.

    ``input_token_logprobs`` holds ``[log-probability, token id, text]`` from position
    ``logprob_start_len`` on; what lies before it comes from the cache. The first of them is empty:
    its logits belong to the position before, which the cache may have skipped. So one asks for one
    token more. A list of prompts is answered by a list.

    Attributes:
        model: The name under which the model is served, once it is known.
        together: How many prompts one request scores at most.
        shares_prefixes: Whether prompt log-probabilities profit from the server's prefix cache.
        info_paths: Where versions tell the longest prompt better than by the list of models.
        reserved: Tokens of the context length that no prompt may fill.
    """

    model = ""
    together = 32
    shares_prefixes = True
    info_paths: tuple[str, ...] = ("/server_info", "/get_server_info")
    reserved = 8

    def score(self, prompts: Prompts) -> ServerRequest[list[Scores]]:
        """Ask for the log-probabilities of each prompt from its first scored token on."""

        def read(answers: _SGLangAnswers) -> list[Scores]:
            if len(answers.root) != len(prompts):
                raise ScoringError(
                    f"the server returned {len(answers.root)} answers to {len(prompts)} prompts; "
                    f"{_TO_CHECK}"
                )
            scores = []
            for number, answer in enumerate(answers.root):
                ids, start = prompts[number]
                scores.append(self._scores(answer, ids, start))
            return scores

        inputs = []
        starts = []
        for ids, start in prompts:
            inputs.append(list(ids))
            starts.append(start - 1)
        return self._logprobs(
            {"input_ids": inputs},
            starts,
            _SGLangAnswers,
            read,
        )

    @staticmethod
    def _scores(
        answer: _SGLangAnswer,
        ids: Sequence[int],
        start: int,
    ) -> Scores:
        """What an answer says of a prompt; its first entry has no number."""
        rows: list[Row] = []
        for logprob, token, _ in answer.entries:
            told = logprob if rows else 0.0
            rows.append({token: told})
        before = start - 1
        _, *logprobs = _checked(rows, ids[before:])
        return logprobs, _computed(ids, answer.cached)

    def generate(
        self,
        ids: Sequence[int],
        options: GenerationOptions,
    ) -> ServerRequest[Generation]:
        """Ask for a continuation."""
        sampling = options.to_json()
        seed = sampling.pop("seed")
        if options.temperature:
            sampling["sampling_seed"] = seed  # unknown to older versions
        body = {"input_ids": list(ids), "sampling_params": sampling}
        return ServerRequest("/generate", _SGLangAnswer, _generation, body)

    def tokenize(self, text: str) -> ServerRequest[list[int]]:
        """Ask for the ids of a text; they come along with log-probabilities in every version."""

        def read(answer: _SGLangAnswer) -> list[int]:
            return [token for _, token, _ in answer.entries]

        return self._logprobs(
            {"text": text},
            0,
            _SGLangAnswer,
            read,
        )

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


class _VLLMAnswer(BaseModel):
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
        content = io.BytesIO(b64decode(encoded))
        rows = np.load(content, allow_pickle=False)
        return rows[:, 0].tolist()
    except Exception as error:  # whatever the bytes lead NumPy to
        raise ValueError(f"not NumPy's format: {error}") from error


class _VLLMRows(BaseModel):
    scores: Annotated[list[float] | None, BeforeValidator(_row_scores)] = _at(
        "prompt_token_id_logprobs", default=None
    )
    cached: int | None = _at("usage", "prompt_tokens_details", "cached_tokens", default=None)


class VLLM:
    """vLLM's ``/inference/v1/generate``, else ``/v1/completions``; attributes as of `SGLang`.

    The first one (0.32, ``--enable-scale-out``) scores the given tokens from the position after
    ``prompt_logprob_start`` on. It may read the prefix cache, and has no numbers where that holds
    more than what lies before.

    The second one answers for the whole prompt and ignores the cache. There is one entry per token,
    empty for the first: token id (as text) -> ``{"logprob": ...}``, for the token itself and for as
    many likelier ones as were asked for. One token is generated because both want at least one.
    """

    model = ""
    together = 1
    shares_prefixes = False
    info_paths: tuple[str, ...] = ()
    reserved = 1
    no_chance = -9999.0
    """What vLLM writes for minus infinity, which JSON does not know."""

    def score(self, prompts: Prompts) -> ServerRequest[list[Scores]]:
        """As `SGLang.score`, for one prompt."""
        ((ids, start),) = prompts
        wanted = ids[start:]

        def read(answer: _VLLMRows) -> list[Scores]:
            if answer.scores is None:
                raise NoScoresError("the server returned no log-probabilities")
            _require_as_many(answer.scores, wanted)
            rows: list[Row] = []
            for token, logprob in zip(wanted, answer.scores, strict=True):
                rows.append({token: logprob})
            logprobs = _checked(rows, wanted)
            return [(logprobs, _computed(ids, answer.cached))]

        sampling = {
            "max_tokens": 1,
            "temperature": 0,
            "prompt_logprob_token_ids": [[token] for token in wanted],
            "prompt_logprob_start": start - 1,
            "skip_reading_prefix_cache": False,
        }
        body = {
            "model": self.model,
            "token_ids": list(ids),
            "sampling_params": sampling,
        }
        return ServerRequest(
            "/inference/v1/generate",
            _VLLMRows,
            read,
            body,
            otherwise=self._whole_prompt(ids, start),
        )

    def _whole_prompt(
        self,
        ids: Sequence[int],
        start: int,
    ) -> ServerRequest[list[Scores]]:
        def read(answer: _VLLMAnswer) -> list[Scores]:
            entries = answer.entries or []
            rows = [_by_token(entry) for entry in entries[start:]]
            logprobs = _checked(rows, ids[start:])
            for place, logprob in enumerate(logprobs):
                if logprob <= self.no_chance:
                    logprobs[place] = -math.inf
            return [(logprobs, _computed(ids, answer.cached))]

        body = {
            "model": self.model,
            "prompt": list(ids),
            "max_tokens": 1,
            "temperature": 0,
            "prompt_logprobs": 0,
        }
        return ServerRequest("/v1/completions", _VLLMAnswer, read, body)

    def generate(
        self,
        ids: Sequence[int],
        options: GenerationOptions,
    ) -> ServerRequest[Generation]:
        """Ask for a continuation."""
        body = options.to_json()
        body["max_tokens"] = body.pop("max_new_tokens")
        body["model"] = self.model
        body["prompt"] = list(ids)
        return ServerRequest("/v1/completions", _VLLMAnswer, _generation, body)

    def tokenize(self, text: str) -> ServerRequest[list[int]]:
        """Ask for the ids of a text, with the tokens that the tokenizer adds."""
        body = {
            "model": self.model,
            "prompt": text,
            "add_special_tokens": True,
        }
        return ServerRequest("/tokenize", _VLLMTokens, lambda answer: answer.tokens, body)


def _by_token(entry: Mapping[int, _VLLMToken] | None) -> Row:
    """Log-probabilities at one place, by token id."""
    row: Row = {}
    if entry is not None:
        for token, told in entry.items():
            row[token] = told.logprob
    return row


DIALECTS: dict[str, type[SGLang | VLLM]] = {
    "sglang": SGLang,
    "vllm": VLLM,
}


def _computed(ids: Sequence[int], cached: int | None) -> int:
    """Tokens that passed through the model."""
    return len(ids) - (cached or 0)


def _checked(rows: Sequence[Row], ids: Sequence[int]) -> list[float]:
    """Log-probabilities of exactly these ids, from what the server told at each by token id."""
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


def _require_as_many(scores: Sequence[object], ids: Sequence[int]) -> None:
    if len(scores) != len(ids):
        raise ScoringError(
            f"the server returned {len(scores)} log-probabilities for {len(ids)} tokens; "
            f"{_TO_CHECK}"
        )


def _generation(answer: _SGLangAnswer | _VLLMAnswer) -> Generation:
    reason = "length" if answer.reason == "length" else "stop"
    return Generation(answer.text, answer.prompt_tokens, answer.completion_tokens, reason)
