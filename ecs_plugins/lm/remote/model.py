"""`RemoteLM`: a `LanguageModel` whose numbers come from SGLang or vLLM servers.

Text is encoded here, exactly as `LocalLM` does it, and only token ids are sent: the servers
never see where a passage ends, and untrusted text cannot become a control token. Every prompt
is one request; the server's own scheduler batches them, and its prefix cache shares what they
begin with (SGLang). So the longest prefix goes ahead alone, and the others follow in parallel.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike, fspath
from typing import TYPE_CHECKING, Literal, TypeVar
from urllib.parse import urlsplit

from ecs_plugins.common.aio import abandoned
from ecs_plugins.errors import ConfigurationError, InvalidInputError, ModelNotFoundError
from ecs_plugins.lm.base import ChatLayout, Generation, ScoreRequest, ScoreResult, Segments
from ecs_plugins.lm.generation import GenerationOptions
from ecs_plugins.lm.prompts import render_chat
from ecs_plugins.lm.remote.client import Client, Patience, readable
from ecs_plugins.lm.remote.connection import Connection, PromptBatch
from ecs_plugins.lm.remote.dialect import Dialect
from ecs_plugins.lm.remote.options import RemoteOptions
from ecs_plugins.lm.remote.ring import prompt_key
from ecs_plugins.lm.remote.sglang import SGLang
from ecs_plugins.lm.remote.vllm import VLLM
from ecs_plugins.lm.runtime import encode_prompt, encode_request, to_result
from ecs_plugins.lm.scoring.planner import EngineResult
from ecs_plugins.lm.scoring.request import Logprobs, TokenRequest
from ecs_plugins.lm.tokenization import count

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

T = TypeVar("T")

_DIALECTS: dict[str, Callable[[], Dialect]] = {"sglang": SGLang, "vllm": VLLM}


class RemoteLM:
    """A language model served by SGLang or vLLM; a `LanguageModel`. Thread-safe.

    Args:
        urls: Base address of the server, or of several replicas of the same model
            (``"http://10.0.0.5:30000"``). Nothing is sent anywhere else.
        server: ``"sglang"`` or ``"vllm"``.
        tokenizer: The served model's tokenizer: a directory, a name on the hub, or loaded. Its
            agreement with every server is checked before first use.
        model: The name under which the model is served; asked for if there is only one.
        api_key: Sent as a bearer token. It is part of the pickled configuration.
        layout: The chat layout; from the tokenizer's chat template by default.
        max_tokens: A window shorter than the server's; needed if the server does not tell.
        options: Parallelism, deadlines, retries.

    Raises:
        ConfigurationError: No usable address or an unknown kind of server.

    Example:
        >>> model = RemoteLM(  # doctest: +SKIP
        ...     ["http://gpu-1:30000", "http://gpu-2:30000"], tokenizer="path/to/model"
        ... )
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        tokenizer: str | PathLike[str] | PreTrainedTokenizerBase,
        server: Literal["sglang", "vllm"] = "sglang",
        model: str | None = None,
        api_key: str | None = None,
        layout: ChatLayout | None = None,
        max_tokens: int | None = None,
        options: RemoteOptions | None = None,
    ) -> None:
        if server not in _DIALECTS:
            raise ConfigurationError(f"server must be one of {sorted(_DIALECTS)}, got {server!r}")
        if max_tokens is not None and max_tokens < 1:
            raise ConfigurationError(f"max_tokens must be positive, got {max_tokens}")
        self._urls = _addresses(urls)
        self._server = server
        self._tokenizer = tokenizer
        self._model = model
        self._api_key = api_key
        self._layout = layout
        self._max_tokens = max_tokens
        self._options = options or RemoteOptions()
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    @property
    def name(self) -> str:
        """The served model's name."""
        return self._model or self._connect().model

    @property
    def layout(self) -> ChatLayout:
        """The layout of one user turn and its reply."""
        return self._connect().layout

    @property
    def max_tokens(self) -> int:
        """The window in tokens."""
        return self._connect().window

    def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """Token log-probabilities of every scored segment, in nats.

        Raises:
            InvalidInputError: A scored segment has no tokens, or a prefix fills the window.
            ScoringError: The servers' numbers cannot be used.
            ModelTimeoutError: The deadline passed.
            ConfigurationError: Wrong address, API key or tokenizer, or a request wants a
                divergence, which servers do not give.
            ModelError: No server answered.
        """
        if any(request.divergence is not None for request in requests):
            raise ConfigurationError(
                f"{self._server} servers return log-probabilities of single tokens and no whole "
                "distributions, so a divergence cannot be computed: use a LocalLM for this "
                "signal, or another signal"
            )
        connection = self._connect()
        encoded = [encode_request(connection.encoder, request) for request in requests]
        for request in encoded:
            request.require_room(connection.window)
        patience = Patience(self._options.deadline_s, abandoned())
        work = PromptBatch(connection, patience)
        for n, request in enumerate(encoded):
            for k in range(len(request.candidates)):
                if request.length(k) <= connection.window:
                    for m in range(len(request.continuations)):
                        work.add(request, n, k, m)
        scored = work.run(self._options.max_parallel)
        return [
            to_result(request, _result(request, n, connection.window, scored))
            for n, request in enumerate(encoded)
        ]

    def generate(
        self,
        prompts: Sequence[Segments],
        *,
        max_new_tokens: int = 64,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 42,
        stop: Sequence[str] = (),
    ) -> list[Generation]:
        """Continue each prompt; greedy at temperature 0, else sampling with a seed.

        Whether a server honours the seed is its own affair (SGLang does so only in its
        deterministic mode).

        Raises:
            InvalidInputError: An option is out of range, or a prompt with its new tokens is
                longer than the window.
            ModelTimeoutError: The deadline passed.
            ConfigurationError: Wrong address, API key or tokenizer.
            ModelError: No server answered.
        """
        if isinstance(stop, str):
            raise InvalidInputError(f"stop is a list of texts; write [{stop!r}]")
        options = GenerationOptions(max_new_tokens, temperature, top_p, seed, tuple(stop))
        connection = self._connect()
        encoded = [encode_prompt(connection.encoder, prompt) for prompt in prompts]
        for n, ids in enumerate(encoded):
            if len(ids) + max_new_tokens > connection.window:
                raise InvalidInputError(
                    f"prompt {n} has {len(ids)} tokens; with {max_new_tokens} new ones that is "
                    f"more than the server's window of {connection.window}: shorten it or ask "
                    "for fewer"
                )
        patience = Patience(self._options.deadline_s, abandoned())
        read = readable(connection.dialect.name, connection.dialect.generation)

        def one(ids: tuple[int, ...]) -> Generation:
            ask = connection.dialect.generate(connection.model, ids, options)
            return connection.client.send(ask, prompt_key(ids, ()), read, patience)

        return connection.all([partial(one, ids) for ids in encoded], patience)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, special tokens off; counted here."""
        return count(self._connect().encoder, texts)

    def render_chat(self, messages: Sequence[Mapping[str, str]]) -> Segments:
        """Several turns as one prompt for the assistant's next turn; contents are untrusted.

        Args:
            messages: ``{"role": ..., "content": ...}`` in order.

        Raises:
            ConfigurationError: The model's chat template refuses these messages.
        """
        return render_chat(self._connect().tokenizer, messages)

    def warmup(self) -> RemoteLM:
        """Connect and check the tokenizer now instead of on first use."""
        self._connect()
        return self

    def health(self, timeout_s: float = 5.0) -> dict[str, bool]:
        """Which servers say that they are well, by address."""
        client = Client(self._urls, self._api_key, self._options, lambda *_: None)
        try:
            return {r.url: client.healthy(r, timeout_s) for r in client.replicas}
        finally:
            client.close()

    def close(self) -> None:
        """Close all connections; the next use opens new ones. Calls under way get an error."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connect(self) -> Connection:
        connection = self._connection
        if connection is not None and connection.pid == os.getpid():
            return connection
        with self._lock:
            connection = self._connection
            if connection is None or connection.pid != os.getpid():
                # Sockets and threads of a parent process are not ours to use.
                connection = Connection(
                    self._urls,
                    _DIALECTS[self._server](),
                    _loaded(self._tokenizer),
                    self._model,
                    self._api_key,
                    self._layout,
                    self._max_tokens,
                    self._options,
                )
                self._connection = connection
            return connection

    def __getstate__(self) -> dict[str, object]:
        return {k: v for k, v in vars(self).items() if k not in ("_lock", "_connection")}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _lock=threading.Lock(), _connection=None)

    def __repr__(self) -> str:
        key = ", api_key=..." if self._api_key else ""
        return f"RemoteLM({list(self._urls)}, server={self._server!r}, model={self._model!r}{key})"


def _result(
    request: TokenRequest,
    n: int,
    window: int,
    scored: Mapping[tuple[int, int, int], tuple[Logprobs, int]],
) -> EngineResult:
    result = EngineResult({}, {}, 0)
    for k in range(len(request.candidates)):
        if request.length(k) > window:
            result.unscored[k] = (
                f"{request.length(k)} tokens exceed the server's window of {window}"
            )
            continue
        for m in range(len(request.continuations)):
            result.scores[k, m], tokens = scored[n, k, m]
            result.computed_tokens += tokens
    return result


def _addresses(urls: str | Sequence[str]) -> tuple[str, ...]:
    given = [urls] if isinstance(urls, str) else list(urls)
    cleaned = [url.strip().rstrip("/").removesuffix("/v1") for url in given]
    for url in cleaned:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError(f"a server's address looks like http://host:port, got {url!r}")
    if not cleaned or len(set(cleaned)) < len(cleaned):
        raise ConfigurationError(f"give at least one address, and none twice; got {given}")
    return tuple(cleaned)


def _loaded(tokenizer: str | PathLike[str] | PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    if not isinstance(tokenizer, (str, PathLike)):
        return tokenizer
    from transformers import AutoTokenizer

    name = fspath(tokenizer)
    try:
        loaded: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            name, trust_remote_code=False
        )
    except Exception as error:  # transformers, tokenizers and json each raise their own
        raise ModelNotFoundError(
            f"no tokenizer could be loaded from {name!r} ({error}); give the directory or the "
            "hub name of the served model"
        ) from error
    return loaded
