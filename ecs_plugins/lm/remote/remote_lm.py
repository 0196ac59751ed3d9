"""`RemoteLM`: a `LanguageModel` whose scores come from SGLang or vLLM servers.

Text is encoded here, exactly as `LocalLM` does it, and only token ids are sent: the servers
never see where a passage ends, and untrusted text cannot become a control token. One prompt of each
long prefix goes ahead, so that the others find it in the server's prefix cache.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import product
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from pydantic import SecretStr

from ecs_plugins.errors import ConfigurationError, ModelError, ModelNotFoundError
from ecs_plugins.lm.base import (
    ChatLayout,
    Generation,
    GenerationOptions,
    ScoreRequest,
    ScoreResult,
    Segments,
)
from ecs_plugins.lm.encoding import encode_prompts, encode_request, encoder_of, to_result
from ecs_plugins.lm.prompts import chat_layout
from ecs_plugins.lm.remote.client import Client, Deadline, RemoteOptions
from ecs_plugins.lm.remote.dialects import CANNOT_SCORE, DIALECTS, SERVER_INFO, VLLM, ServerInfo
from ecs_plugins.lm.scoring.request import EngineResult, Ids, TokenRequest, path_of
from ecs_plugins.lm.tokenization import SegmentEncoder, count

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_PROBES = (
    "The 3 quick foxes paid $14.07 -- didn't they?\n\n\tdef f(x): return x**2",
    "Grüße aus Kraków, naïve café: 東京 и Москва ☕ 0x1F",
)
"""Tokenizers that agree on the ids of these texts count as equal."""
_ADDRESS = re.compile(r"https?://(\[[\da-fA-F:.]+\]|[^\s/@:?#\[\]]+)(:\d+)?(/[^\s@?#]*)?")
_Ask = Callable[..., Any]
"""Sends a request to the server and returns the answer."""
_LONG_PREFIX = 64  # tokens; shorter ones are not worth a request ahead


class RemoteLM:
    """A language model served by SGLang or vLLM; a `LanguageModel`. Thread-safe.

    Args:
        url: Base address of the server (``"http://10.0.0.5:30000"``), or of a router in front of
            several. Nothing is sent anywhere else.
        server: ``"sglang"`` or ``"vllm"``.
        tokenizer: The served model's tokenizer: a directory, a name on the hub, or loaded. Its
            agreement with the server is checked before first use.
        model: The name under which the model is served; asked for if there is only one.
        api_key: Sent as a bearer token, or a function that returns it. A pickle holds the function
            and never a key, so a copy of a model with a key given as text has none.
        **options: Fields of `RemoteOptions`: deadlines, retries, parallelism.

    Raises:
        ConfigurationError: No usable address or key, an unknown kind of server or option.
    """

    def __init__(
        self,
        url: str,
        *,
        tokenizer: str | PathLike[str] | PreTrainedTokenizerBase,
        server: Literal["sglang", "vllm"] = "sglang",
        model: str | None = None,
        api_key: str | SecretStr | Callable[[], str] | None = None,
        **options: Any,
    ) -> None:
        if server not in DIALECTS:
            raise ConfigurationError(f"server must be one of {sorted(DIALECTS)}, got {server!r}")
        key_function = api_key if callable(api_key) else None
        self._again = partial(
            type(self),
            url,
            tokenizer=tokenizer,
            server=server,
            model=model,
            api_key=key_function,
            **options,
        )
        self._url = _checked_address(url)
        self._given = tokenizer
        self._model = model
        self._api_key = _one_line(api_key() if callable(api_key) else api_key)
        self._options = RemoteOptions(**options)
        self._dialect = DIALECTS[server]()
        self._window = 0
        self._has_connected = False
        self._client: Client | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """Name of the served model; the server's address if none has answered yet."""
        if not self._model and not self._has_connected:
            with contextlib.suppress(ModelError):
                self.warmup()
        return self._model or self._dialect.model or self._url

    @cached_property
    def layout(self) -> ChatLayout:
        """Layout of one user turn and its reply, by the tokenizer's chat template."""
        return chat_layout(self._tokenizer)

    @property
    def max_tokens(self) -> int:
        """Longest prompt in tokens."""
        return self.warmup()._window

    def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """Return the token log-probabilities of every scored segment, in nats.

        Raises:
            InvalidInputError: A scored segment has no tokens, or a prefix fills the window.
            ScoringError: The servers' numbers cannot be used.
            ModelTimeoutError: The deadline passed.
            ConfigurationError: Wrong address, API key or tokenizer, or a request wants a
                divergence, which servers do not give.
            ModelError: No server answered, or one refused a request.
        """
        if any(request.divergence for request in requests):
            raise ConfigurationError(
                "SGLang and vLLM servers return log-probabilities of single tokens and no whole "
                "distributions, so a divergence cannot be computed: use a LocalLM for this "
                "signal, or another signal"
            )
        client, deadline = self._connect()
        encoded = [encode_request(self._encoder, request) for request in requests]
        for request in encoded:
            request.require_room(self._window)
        results = [EngineResult({}, request.beyond(self._window), 0) for request in encoded]
        prompts = _prompts_of(encoded, results)
        if self._dialect.shares_prefixes:
            self._ask(client, [prompt for prompt in prompts if prompt.leads], deadline)
            prompts = [prompt for prompt in prompts if not prompt.leads]
        self._ask(client, prompts, deadline)
        return list(map(to_result, encoded, results))

    def _ask(self, client: Client, prompts: Sequence[_Prompt], deadline: Deadline) -> None:
        """Request the scores of prompts and book them."""
        size = self._dialect.together
        portions = [prompts[i : i + size] for i in range(0, len(prompts), size)]
        requests = []
        for portion in portions:
            sent = [(prompt.ids, prompt.start) for prompt in portion]
            requests.append(self._dialect.score(sent))
        answers = client.send(requests, deadline)
        for portion, scores in zip(portions, answers, strict=True):
            for prompt, (logprobs, tokens) in zip(portion, scores, strict=True):
                prompt.book(logprobs, tokens)

    def generate(self, prompts: Sequence[Segments], **options: Any) -> list[Generation]:
        """Continue each prompt, with the options of `LocalLM.generate`.

        SGLang honours the seed only in its deterministic mode.

        Raises:
            ConfigurationError: An option is unknown or out of range.
            InvalidInputError: A prompt does not fit.
            ModelError: As by `score`.
        """
        given = GenerationOptions(**options)
        client, deadline = self._connect()
        encoded = encode_prompts(self._encoder, prompts, given.max_new_tokens, self._window)
        requests = [self._dialect.generate(ids, given) for ids in encoded]
        return client.send(requests, deadline)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of each text here, without special tokens."""
        return count(self._encoder, texts)

    def warmup(self) -> RemoteLM:
        """Connect and check the tokenizer now instead of on first use."""
        self._connect()
        return self

    def close(self) -> None:
        """Close all connections; the next use opens new ones. Calls under way get an error."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def __reduce__(self) -> tuple[partial[RemoteLM], tuple[()]]:
        return self._again, ()

    def __repr__(self) -> str:
        kind = type(self._dialect).__name__
        return f"RemoteLM({self._url!r}, {kind}, model={self._dialect.model!r})"

    @cached_property
    def _tokenizer(self) -> PreTrainedTokenizerBase:
        if not isinstance(self._given, (str, PathLike)):
            return self._given
        from transformers import AutoTokenizer

        try:
            return AutoTokenizer.from_pretrained(fspath(self._given))
        except Exception as error:  # transformers, tokenizers and json each raise their own
            raise ModelNotFoundError(
                f"no tokenizer could be loaded from {self._given!r} ({error}); give the directory "
                "or the hub name of the served model"
            ) from error

    @cached_property
    def _encoder(self) -> SegmentEncoder:
        return encoder_of(self._tokenizer, self.layout)

    def _connect(self) -> tuple[Client, Deadline]:
        """Return an open client, and the deadline of a call that begins now."""
        deadline = Deadline(self._options.deadline_s)
        self._has_connected = True
        with self._lock:
            # Sockets and threads of a parent process are not ours to use.
            if self._client is None or self._client.pid != os.getpid():
                client = Client(self._url, self._api_key, self._options)
                try:
                    self._check(partial(client.ask, deadline=deadline))
                except BaseException:
                    client.close()
                    raise
                self._client = client
            return self._client, deadline

    def _check(self, ask: _Ask) -> None:
        """Check the server's model, tokenizer and window."""
        self._dialect.model = self._model or ""
        info: ServerInfo = ask(SERVER_INFO)
        self._check_model(info)
        self._check_tokenizer(ask)
        self._try_newest_scoring(ask)
        told = info.window(self._dialect.model) - self._dialect.reserved
        limits = [limit for limit in (told, self._options.max_tokens or 0) if limit > 0]
        self._window = min(limits, default=0)
        if not limits:
            raise ConfigurationError(f"{self._url} tells no window; give it as max_tokens=")

    def _check_model(self, info: ServerInfo) -> None:
        dialect = self._dialect
        served = [model.id for model in info.data]
        if not dialect.model and len(served) == 1:
            dialect.model = served[0]
        if dialect.model not in served:
            raise ConfigurationError(
                f"{self._url} does not serve {dialect.model!r} but {served}; name one of them as "
                "model="
            )

    def _check_tokenizer(self, ask: _Ask) -> None:
        for text in _PROBES:
            wanted = list(self._tokenizer.encode(text))
            ids = ask(self._dialect.tokenize(text))
            if not ids:
                raise ConfigurationError(f"{self._url} encodes no text; {CANNOT_SCORE}")
            if ids != wanted:
                raise ConfigurationError(
                    f"{self._url} encodes {text!r} as {len(ids)} tokens {ids[:8]}... and the local "
                    f"tokenizer as {len(wanted)} tokens {wanted[:8]}...; give the tokenizer of "
                    "the served model"
                )

    def _try_newest_scoring(self, ask: _Ask) -> None:
        """Find out if a vLLM server knows the path that reads the prefix cache."""
        dialect = self._dialect
        if not isinstance(dialect, VLLM):
            return
        two_tokens = self._tokenizer.encode(_PROBES[0])[:2]  # no cache holds so few
        try:
            ask(dialect.rows(two_tokens, 1))
            dialect.by_position = True
        except (ConfigurationError, ModelError):  # too old, or not allowed to
            dialect.by_position = False
        dialect.shares_prefixes = dialect.by_position


class _Prompt(NamedTuple):
    """Prompt, and the place of its scores.

    Attributes:
        ids: Its tokens.
        start: Index of the first scored token.
        leads: True for the first prompt of a long prefix.
        result: Result that the scores are a part of.
        key: Numbers of candidate and continuation.
        scored: Depths of the scored tokens after the prefix.
    """

    ids: Ids
    start: int
    leads: bool
    result: EngineResult
    key: tuple[int, int]
    scored: tuple[int, ...]

    def book(self, logprobs: Sequence[float], computed_tokens: int) -> None:
        """Store an answer: log-probabilities from the first scored token on."""
        self.result.computed_tokens += computed_tokens
        scores = [logprobs[depth - self.scored[0]] for depth in self.scored]
        self.result.scores[self.key] = np.array(scores, dtype=np.float32)


def _prompts_of(requests: Sequence[TokenRequest], results: Sequence[EngineResult]) -> list[_Prompt]:
    prompts: list[_Prompt] = []
    begun: set[Ids] = set()
    for request, result in zip(requests, results, strict=True):
        prefix = request.prefix
        numbers = range(len(request.continuations))
        for k, m in product(result.fitting(request), numbers):
            path = path_of(request.candidates[k], request.continuations[m])
            leads = len(prefix) >= _LONG_PREFIX and prefix not in begun
            begun.add(prefix)
            start = len(prefix) + path.scored[0]
            prompts.append(_Prompt(prefix + path.ids, start, leads, result, (k, m), path.scored))
    return prompts


def _one_line(api_key: str | SecretStr | None) -> SecretStr:
    """Return a key without the line break at its end that files and variables have."""
    if isinstance(api_key, SecretStr):
        api_key = api_key.get_secret_value()
    key = (api_key or "").strip()
    if not key.isascii() or not key.isprintable():
        raise ConfigurationError("api_key must be one line of printable ASCII characters")
    return SecretStr(key)


def _checked_address(url: str) -> str:
    address = url.strip().rstrip("/").removesuffix("/v1") if isinstance(url, str) else ""
    if not _ADDRESS.fullmatch(address):
        raise ConfigurationError(
            "give one address that looks like http://host:port (several servers go behind a "
            "router); a key or password belongs into api_key"
        )
    return address
