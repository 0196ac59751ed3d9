"""`RemoteLM`: a `LanguageModel` whose numbers come from SGLang or vLLM servers.

Text is encoded here, exactly as `LocalLM` does it, and only token ids are sent: the servers
never see where a passage ends, and untrusted text cannot become a control token. The server's own
scheduler batches the prompts, of which SGLang takes many in one request, and its prefix cache
shares what they begin with. So one prompt of a long prefix goes ahead, and the others follow.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
from ecs_plugins.lm.remote.client import (
    Client,
    Deadline,
    RemoteOptions,
    Replica,
    prompt_key,
    weight_of,
)
from ecs_plugins.lm.remote.dialects import DIALECTS, ServerInfo, server_info
from ecs_plugins.lm.remote.foreign import refuse_foreign
from ecs_plugins.lm.scoring.request import EngineResult, Ids, TokenRequest, path_of
from ecs_plugins.lm.tokenization import SegmentEncoder, count

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_PROBES = (
    "The 3 quick foxes paid $14.07 -- didn't they?\n\n\tdef f(x): return x**2",
    "Grüße aus Kraków, naïve café: 東京 и Москва ☕ 0x1F",
)
"""Two tokenizers that agree on these ids are taken for the same."""
_ADDRESS = re.compile(r"https?://(\[[\da-fA-F:.]+\]|[^\s/@:?#\[\]]+)(:\d+)?(/[^\s@?#]*)?")
_LONG_PREFIX = 64
"""Tokens from which on a prefix decides alone; shorter ones are shared by too many prompts."""


class RemoteLM:
    """A language model served by SGLang or vLLM; a `LanguageModel`. Thread-safe.

    Args:
        urls: Base address of the server, or of several replicas of the same model
            (``"http://10.0.0.5:30000"``). Nothing is sent anywhere else.
        server: ``"sglang"`` or ``"vllm"``.
        tokenizer: The served model's tokenizer: a directory, a name on the hub, or loaded. Its
            agreement with every server is checked before first use.
        model: The name under which the model is served; asked for if there is only one.
        api_key: Sent as a bearer token, or a function that returns it. A pickle holds the function
            and never a key, so a copy of a model with a key given as text has none.
        **options: Fields of `RemoteOptions`: deadlines, retries, parallelism.

    Raises:
        ConfigurationError: No usable address or key, an unknown kind of server or option.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
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
        given: dict[str, Any] = {
            "tokenizer": tokenizer,
            "server": server,
            "model": model,
            "api_key": key_function,
        }
        self._again = partial(type(self), urls, **given, **options)
        self._urls = _addresses(urls)
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
        """The served model's name; the server's address where none has ever answered."""
        if not self._model and not self._has_connected:
            with contextlib.suppress(ModelError):
                self.warmup()
        return self._model or self._dialect.model or self._urls[0]

    @cached_property
    def layout(self) -> ChatLayout:
        """The layout of one user turn and its reply, by the tokenizer's chat template."""
        return chat_layout(self._tokenizer)

    @property
    def max_tokens(self) -> int:
        """The window in tokens."""
        return self.warmup()._window

    def score(self, requests: Sequence[ScoreRequest]) -> list[ScoreResult]:
        """Token log-probabilities of every scored segment, in nats.

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
        results = []
        for request in encoded:
            unscored = request.beyond(self._window)
            results.append(EngineResult({}, unscored, 0))
        prompts = _prompts_of(encoded, results)
        if self._dialect.shares_prefixes:
            leading = [prompt for prompt in prompts if prompt.leads]
            self._ask(client, leading, deadline)
            prompts = [prompt for prompt in prompts if not prompt.leads]
        self._ask(client, prompts, deadline)
        return list(map(to_result, encoded, results))

    def _ask(
        self,
        client: Client,
        prompts: Sequence[_Prompt],
        deadline: Deadline,
    ) -> None:
        """Ask for the scores of prompts and book them."""
        groups = self._grouped(prompts)
        requests = []
        for group in groups:
            sent = [(prompt.ids, prompt.start) for prompt in group]
            request = self._dialect.score(sent)
            requests.append((request, group[0].key))
        answers = client.send(requests, deadline)
        for group, scores in zip(groups, answers, strict=True):
            for prompt, (logprobs, tokens) in zip(group, scores, strict=True):
                prompt.book(logprobs, tokens)

    def _grouped(self, prompts: Sequence[_Prompt]) -> list[list[_Prompt]]:
        """What is asked in one request: prompts that go to one replica."""
        groups: dict[tuple[str, int], list[_Prompt]] = {}
        for number, prompt in enumerate(prompts):
            weight = partial(weight_of, key=prompt.key)
            home = min(self._urls, key=weight)
            portion = number // self._dialect.together
            groups.setdefault((home, portion), []).append(prompt)
        return list(groups.values())

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
        requests = []
        for ids in encoded:
            request = self._dialect.generate(ids, given)
            requests.append((request, prompt_key(ids)))
        return client.send(requests, deadline)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, special tokens off; counted here."""
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
        return f"RemoteLM({list(self._urls)}, {kind}, model={self._dialect.model!r})"

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
        """An open client, and the deadline of a call that begins now."""
        deadline = Deadline(self._options.deadline_s)
        self._has_connected = True
        with self._lock:
            # Sockets and threads of a parent process are not ours to use.
            if self._client is None or self._client.pid != os.getpid():
                self._dialect.model = self._model or ""
                self._window = 0
                client = Client(self._urls, self._api_key, self._options, self._check)
                try:  # any replica that is up will do
                    client.send([(server_info("/v1/models"), b"")], deadline)
                except BaseException:
                    client.close()
                    raise
                self._client = client
            return self._client, deadline

    def _check(self, client: Client, replica: Replica, deadline: Deadline) -> None:
        """See that a replica serves the model, encodes as we do, and how much it takes."""
        asking = partial(client.ask, replica, deadline=deadline)
        info = asking(server_info("/v1/models"))
        refuse_foreign(replica.url, info, asking)
        deadline.left()
        self._check_model(replica.url, info)
        self._check_tokenizer(replica.url, asking)
        self._try_newest_scoring(replica, asking)
        deadline.left()
        self._check_window(replica.url, self._window_of(info, asking))

    def _check_model(self, url: str, info: ServerInfo) -> None:
        dialect = self._dialect
        served = [model.id for model in info.data]
        if not dialect.model and len(served) == 1:
            dialect.model = served[0]
        if dialect.model not in served:
            raise ConfigurationError(
                f"{url} does not serve {dialect.model!r} but {served}; name one of them as model="
            )

    def _check_tokenizer(self, url: str, asking: Callable[..., Any]) -> None:
        for text in _PROBES:
            wanted = list(self._tokenizer.encode(text))
            ids = asking(self._dialect.tokenize(text))
            if ids != wanted:
                raise ConfigurationError(
                    f"{url} encodes {text!r} as {len(ids)} tokens {ids[:8]}... and the local "
                    f"tokenizer as {len(wanted)} tokens {wanted[:8]}...; give the tokenizer of "
                    "the served model"
                )

    def _try_newest_scoring(self, replica: Replica, asking: Callable[..., Any]) -> None:
        """See whether the replica knows the better of two ways to score."""
        two_tokens = self._tokenizer.encode(_PROBES[0])[:2]  # so few are in no cache
        scoring = self._dialect.score([(two_tokens, 1)])
        if scoring.otherwise is None:
            return
        replica.lacks = scoring.path
        with contextlib.suppress(ConfigurationError, ModelError):  # too old, or not allowed to
            asking(scoring)
            replica.lacks = ""
            self._dialect.shares_prefixes = True

    def _window_of(self, info: ServerInfo, asking: Callable[..., Any]) -> int:
        """The longest prompt that a replica tells of; 0 if it tells none."""
        dialect = self._dialect
        listed = info.window(dialect.model, dialect.reserved)
        for path in dialect.info_paths:
            with contextlib.suppress(ConfigurationError, ModelError):  # not in every version
                better: ServerInfo = asking(server_info(path))
                return better.window(dialect.model, 0) or listed
        return listed

    def _check_window(self, url: str, told: int) -> None:
        """Take over the window of the first replica; no other may have a shorter one."""
        limits = [limit for limit in (told, self._options.max_tokens) if limit]
        window = min(limits, default=0)
        if not self._window:
            self._window = window
        if not window or window < self._window:
            raise ConfigurationError(
                f"{url} tells no window, or a shorter one than other replicas ({told} tokens); "
                "give it as max_tokens="
            )


class _ScoredPlace(NamedTuple):
    """Where scores of an answer belong.

    Attributes:
        result: What they are a part of.
        key: Numbers of candidate and continuation.
        scored: Depths of the scored tokens behind the prefix.
    """

    result: EngineResult
    key: tuple[int, int]
    scored: tuple[int, ...]


@dataclass(eq=False)
class _Prompt:
    """What is sent once, and the places of all scores that its answer holds.

    Attributes:
        ids: Its tokens.
        start: Index of the first scored one.
        key: What decides which replica it goes to.
        leads: Whether it is the first one of a long prefix.
        places: Where its scores belong.
    """

    ids: Ids
    start: int
    key: bytes
    leads: bool = False
    places: list[_ScoredPlace] = field(default_factory=list)

    def book(self, logprobs: Sequence[float], computed_tokens: int) -> None:
        """Take over an answer: log-probabilities from the first scored token on."""
        self.places[0].result.computed_tokens += computed_tokens
        for place in self.places:
            first = place.scored[0]
            scores = [logprobs[depth - first] for depth in place.scored]
            place.result.scores[place.key] = np.array(scores, dtype=np.float32)


def _prompts_of(
    requests: Sequence[TokenRequest],
    results: Sequence[EngineResult],
) -> list[_Prompt]:
    prompts: dict[tuple[Ids, int], _Prompt] = {}
    begun: set[Ids] = set()
    for request, result in zip(requests, results, strict=True):
        prefix = request.prefix
        is_long = len(prefix) >= _LONG_PREFIX
        numbers = range(len(request.continuations))
        for k, m in product(result.fitting(request), numbers):
            candidate = request.candidates[k]
            path = path_of(candidate, request.continuations[m])
            ids = prefix + path.ids
            start = len(prefix) + path.scored[0]
            if (ids, start) not in prompts:
                key = prompt_key(prefix if is_long else prefix + candidate)
                leads = is_long and prefix not in begun
                prompts[ids, start] = _Prompt(ids, start, key, leads)
                begun.add(prefix)
            place = _ScoredPlace(result, (k, m), path.scored)
            prompts[ids, start].places.append(place)
    return list(prompts.values())


def _one_line(api_key: str | SecretStr | None) -> SecretStr:
    """A key as it comes from a file or a variable: with a line break behind it."""
    if isinstance(api_key, SecretStr):
        api_key = api_key.get_secret_value()
    key = (api_key or "").strip()
    if not key.isascii() or not key.isprintable():
        raise ConfigurationError("api_key must be one line of printable ASCII characters")
    return SecretStr(key)


def _addresses(urls: str | Sequence[str]) -> list[str]:
    given = [urls] if isinstance(urls, str) else urls
    cleaned = []
    for url in given:
        address = url.strip().rstrip("/")
        cleaned.append(address.removesuffix("/v1"))
    is_repeated = len(set(cleaned)) < len(cleaned)
    if not cleaned or is_repeated or not all(map(_ADDRESS.fullmatch, cleaned)):
        raise ConfigurationError(
            "give one or more addresses that look like http://host:port, none of them twice; a key "
            "or password belongs into api_key"
        )
    return cleaned
