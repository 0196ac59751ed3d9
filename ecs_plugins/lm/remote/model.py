"""`RemoteLM`: a `LanguageModel` whose numbers come from SGLang or vLLM servers.

Text is encoded here, exactly as `LocalLM` does it, and only token ids are sent: the servers
never see where a passage ends, and untrusted text cannot become a control token. Every prompt
is one request; the server's own scheduler batches them, and its prefix cache shares what they
begin with (SGLang). So the longest prefix goes ahead alone, and the others follow in parallel.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import urlsplit

import numpy as np

from ecs_plugins.errors import (
    ConfigurationError,
    ModelError,
    ModelNotFoundError,
    ModelTimeoutError,
)
from ecs_plugins.lm.base import ChatLayout, Generation, ScoreRequest, ScoreResult, Segments
from ecs_plugins.lm.generation import GenerationOptions
from ecs_plugins.lm.prompts import chat_layout
from ecs_plugins.lm.remote.client import (
    LONG_PREFIX,
    Client,
    Patience,
    RemoteOptions,
    Replica,
    prompt_key,
)
from ecs_plugins.lm.remote.dialects import DIALECTS, Ask, SGLang
from ecs_plugins.lm.runtime import encode_prompts, encode_request, encoder_of, to_results
from ecs_plugins.lm.scoring.request import EngineResult, Ids, TokenRequest, path_of
from ecs_plugins.lm.tokenization import count

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

T = TypeVar("T")
_Prompt = tuple[Ids, int, bytes]
"""Ids, the first scored position, and what decides which server gets it."""

_PROBES = (
    "The 3 quick foxes paid $14.07 -- didn't they?\n\n\tdef f(x): return x**2",
    "Grüße aus Kraków, naïve café: 東京 и Москва ☕ 0x1F",
)
"""Two tokenizers that agree on these ids are taken for the same."""


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
        **options: Fields of `RemoteOptions`: deadlines, retries, parallelism.

    Raises:
        ConfigurationError: No usable address, an unknown kind of server or option.

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
        **options: Any,
    ) -> None:
        if server not in DIALECTS:
            raise ConfigurationError(f"server must be one of {sorted(DIALECTS)}, got {server!r}")
        self._urls = _addresses(urls)
        self._server = server
        self._tokenizer = tokenizer
        self._model = model
        self._api_key = api_key
        self._options = RemoteOptions(**options)
        self._lock = threading.Lock()
        self._session: _Session | None = None

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
        if any(request.divergence for request in requests):
            raise ConfigurationError(
                f"{self._server} servers return log-probabilities of single tokens and no whole "
                "distributions, so a divergence cannot be computed: use a LocalLM for this "
                "signal, or another signal"
            )
        session = self._connect()
        encoded = [encode_request(session.encoder, request) for request in requests]
        for request in encoded:
            request.require_room(session.window)
        return to_results(encoded, session.score(encoded, Patience(self._options.deadline_s)))

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

        SGLang honours the seed only in its deterministic mode.

        Raises:
            InvalidInputError: An option is out of range, or a prompt does not fit.
            ModelError: As by `score`.
        """
        options = GenerationOptions(max_new_tokens, temperature, top_p, seed, stop)
        session = self._connect()
        encoded = encode_prompts(session.encoder, prompts, max_new_tokens, session.window)
        return session.generate(encoded, options, Patience(self._options.deadline_s))

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, special tokens off; counted here."""
        return count(self._connect().encoder, texts)

    def warmup(self) -> RemoteLM:
        """Connect and check the tokenizer now instead of on first use."""
        self._connect()
        return self

    def close(self) -> None:
        """Close all connections; the next use opens new ones. Calls under way get an error."""
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            session.close()

    def _connect(self) -> _Session:
        with self._lock:
            # Sockets and threads of a parent process are not ours to use.
            if self._session is None or self._session.pid != os.getpid():
                dialect = DIALECTS[self._server]()
                dialect.model = self._model or ""
                client = Client(self._urls, self._api_key, self._options)
                self._session = _Session(dialect, _loaded(self._tokenizer), client, self._options)
            return self._session

    def __getstate__(self) -> dict[str, object]:
        return {k: v for k, v in vars(self).items() if k not in ("_lock", "_session")}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _lock=threading.Lock(), _session=None)

    def __repr__(self) -> str:
        key = ", api_key=..." if self._api_key else ""
        return f"RemoteLM({list(self._urls)}, server={self._server!r}, model={self._model!r}{key})"


class _Session:
    """Everything that exists only once a server has answered.

    Raises:
        ConfigurationError: A server does not fit.
        ModelError: No server answered.
    """

    def __init__(
        self,
        dialect: SGLang,
        tokenizer: PreTrainedTokenizerBase,
        client: Client,
        options: RemoteOptions,
    ) -> None:
        self.pid = os.getpid()
        self.layout = options.layout or chat_layout(tokenizer)
        self.encoder = encoder_of(tokenizer, self.layout)
        self.window = 0
        self._dialect = dialect
        self._options = options
        self._probes = [(text, list(tokenizer.encode(text))) for text in _PROBES]
        self._client = client
        client.check = self._check
        self._pool = ThreadPoolExecutor(options.max_parallel, thread_name_prefix="ecs-remote")
        try:
            # Any replica that is up will do; each is checked before its own first use.
            patience = Patience(options.deadline_s)
            client.send(Ask("/v1/models", lambda _: None), b"", patience)
        except BaseException:
            self.close()
            raise

    @property
    def model(self) -> str:
        """The name under which the model is served."""
        return self._dialect.model

    def close(self) -> None:
        """Calls under way find out by an error."""
        self._pool.shutdown(wait=False)
        self._client.close()

    def score(self, requests: Sequence[TokenRequest], patience: Patience) -> list[EngineResult]:
        """Scores of requests, each distinct prompt sent once."""
        results = [EngineResult({}, {}, 0) for _ in requests]
        prompts: dict[_Prompt, list[tuple[int, int, int]]] = {}
        leaders: dict[Ids, _Prompt] = {}
        for n, request in enumerate(requests):
            results[n].unscored.update(request.beyond(self.window))
            for k in results[n].fitting(request):
                for m, continuation in enumerate(request.continuations):
                    path = path_of(request.candidates[k], continuation)
                    key = prompt_key(request.prefix, request.candidates[k])
                    first = len(request.prefix) + path.scored[0]
                    prompt = (request.prefix + path.ids, first, key)
                    prompts.setdefault(prompt, []).append((n, k, m))
                    if len(request.prefix) >= LONG_PREFIX:
                        leaders.setdefault(request.prefix, prompt)
        ahead = set(leaders.values()) if self._dialect.shares_prefixes else set()
        for wave in (list(ahead), [prompt for prompt in prompts if prompt not in ahead]):
            asks = [(self._dialect.score(ids, start), key) for ids, start, key in wave]
            for prompt, scores in zip(wave, self._all(asks, patience), strict=True):
                flat, tokens = np.asarray(scores.logprobs, dtype=np.float32), scores.computed_tokens
                for n, k, m in prompts[prompt]:
                    scored = path_of(requests[n].candidates[k], requests[n].continuations[m]).scored
                    results[n].scores[k, m] = flat[[s - scored[0] for s in scored]]
                    results[n].computed_tokens += tokens
                    tokens = 0
        return results

    def generate(
        self, prompts: Sequence[Ids], options: GenerationOptions, patience: Patience
    ) -> list[Generation]:
        """Continue prompts."""
        asks = [(self._dialect.generate(ids, options), prompt_key(ids)) for ids in prompts]
        return self._all(asks, patience)

    def _all(self, asks: Sequence[tuple[Ask[T], bytes]], patience: Patience) -> list[T]:
        """Answers in the order of what is asked; the first error ends the others."""
        try:
            futures: list[Future[T]] = [
                self._pool.submit(self._client.send, ask, key, patience) for ask, key in asks
            ]
        except RuntimeError as error:
            raise ModelError("the RemoteLM was closed during a call; call again") from error
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
            failed = [f for f in futures if f.done() and f.exception() is not None]
            return [f.result() for f in (failed or futures)]
        except BaseException:
            patience.stop.set()
            for future in futures:
                future.cancel()
            raise

    def _check(self, replica: Replica, patience: Patience) -> None:
        """See that a replica serves the model, encodes as we do, and how much it takes."""
        server = f"the {type(self._dialect).__name__} server at {replica.url}"
        listed = Ask("/v1/models", lambda answer: [str(m["id"]) for m in answer["data"]])
        models = self._client.ask(replica, listed, patience)
        if not self.model:
            if len(models) != 1:
                raise ConfigurationError(f"{server} serves {models}; name one of them as model=")
            self._dialect.model = models[0]
        if self.model not in models:
            raise ConfigurationError(f"{server} does not serve {self.model!r} but {models}")
        for text, wanted in self._probes:
            got = self._client.ask(replica, self._dialect.tokenize(text), patience)
            if got != wanted:
                raise ConfigurationError(
                    f"{server} encodes {text!r} as {len(got)} tokens {got[:8]}... and the local "
                    f"tokenizer as {len(wanted)} tokens {wanted[:8]}...; give the tokenizer of "
                    "the served model"
                )
        window = self._window_of(replica, patience)
        self.window = self.window or window
        if window < self.window:
            raise ConfigurationError(
                f"{server} takes {window} tokens and other replicas {self.window}; serve all of "
                f"them alike, or give max_tokens={window}"
            )

    def _window_of(self, replica: Replica, patience: Patience) -> int:
        found: int | None = None
        for path in self._dialect.window_paths:
            try:
                found = self._client.ask(replica, Ask(path, self._dialect.window), patience)
            except ModelTimeoutError:
                raise
            except (ConfigurationError, ModelError):
                continue  # older and newer servers tell it in different places
            if found is not None:
                break
        wanted = self._options.max_tokens
        if found is None and wanted is None:
            raise ConfigurationError(
                f"{replica.url} does not tell its window; give it as max_tokens="
            )
        return min(n for n in (found, wanted) if n is not None)


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
