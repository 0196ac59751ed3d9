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
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain, product
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal

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
from ecs_plugins.lm.remote.dialects import DIALECTS, server_info
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
        # As it comes from a file or a variable: with a line break behind it.
        key = api_key() if callable(api_key) else api_key
        key = (key.get_secret_value() if isinstance(key, SecretStr) else key or "").strip()
        if not (key.isascii() and key.isprintable()):
            raise ConfigurationError("api_key must be one line of printable ASCII characters")
        again = api_key if callable(api_key) else None
        given: dict[str, Any]
        given = {"tokenizer": tokenizer, "server": server, "model": model, "api_key": again}
        self._again = partial(type(self), urls, **given, **options)
        self._urls = _addresses(urls)
        self._given = tokenizer
        self._model = model
        self._api_key = SecretStr(key)
        self._options = RemoteOptions(**options)
        self._dialect = DIALECTS[server]()
        self._window = 0
        self._asked = False
        self._client: Client | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The served model's name; the server's address where none has ever answered."""
        if not self._model and not self._asked:
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
        results = [EngineResult({}, request.beyond(self._window), 0) for request in encoded]
        prompts = _prompts_of(encoded, results)
        for ahead in (True, False):
            wave = [p for p in prompts if (p.leads and self._dialect.shares_prefixes) is ahead]
            groups = self._grouped(wave)
            asked = [(self._dialect.score([(p.ids, p.start) for p in g]), g[0].key) for g in groups]
            answers = client.send(asked, deadline)
            for prompt, (logprobs, tokens) in zip(chain(*groups), chain(*answers), strict=True):
                prompt.places[0][0].computed_tokens += tokens
                for result, k, m, scored in prompt.places:
                    flat = [logprobs[at - scored[0]] for at in scored]
                    result.scores[k, m] = np.array(flat, dtype=np.float32)
        return list(map(to_result, encoded, results))

    def _grouped(self, prompts: list[_Prompt]) -> list[list[_Prompt]]:
        """What is asked in one request: prompts that go to one replica."""
        groups: dict[tuple[str, int], list[_Prompt]] = {}
        for number, prompt in enumerate(prompts):
            home = min(self._urls, key=partial(weight_of, key=prompt.key))
            groups.setdefault((home, number // self._dialect.together), []).append(prompt)
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
        asked = [(self._dialect.generate(ids, given), prompt_key(ids)) for ids in encoded]
        return client.send(asked, deadline)

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
        self._asked = True
        with self._lock:
            # Sockets and threads of a parent process are not ours to use.
            if self._client is None or self._client.pid != os.getpid():
                self._dialect.model, self._window = self._model or "", 0
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
        dialect, url = self._dialect, replica.url
        info = client.ask(replica, server_info("/v1/models"), deadline)
        served = [each.id for each in info.data]
        if not dialect.model and len(served) == 1:
            dialect.model = served[0]
        if dialect.model not in served:
            raise ConfigurationError(
                f"{url} does not serve {dialect.model!r} but {served}; name one of them as model="
            )
        for text in _PROBES:
            wanted = list(self._tokenizer.encode(text))
            got = client.ask(replica, dialect.tokenize(text), deadline)
            if got != wanted:
                raise ConfigurationError(
                    f"{url} encodes {text!r} as {len(got)} tokens {got[:8]}... and the local "
                    f"tokenizer as {len(wanted)} tokens {wanted[:8]}...; give the tokenizer of "
                    "the served model"
                )
        if (scoring := dialect.score([(wanted[:2], 1)])).otherwise:  # two tokens are in no cache
            replica.lacks = scoring.path
            with contextlib.suppress(ConfigurationError, ModelError):  # too old, or not allowed to
                client.ask(replica, scoring, deadline)
                replica.lacks, dialect.shares_prefixes = "", True
            deadline.left()
        told = info.window(dialect.model, dialect.reserved)
        for path in dialect.info_paths:
            with contextlib.suppress(ConfigurationError, ModelError):  # not in every version
                info = client.ask(replica, server_info(path), deadline)
                told = info.window(dialect.model, 0) or told
                break
        window = min(told or sys.maxsize, self._options.max_tokens or sys.maxsize)
        self._window = self._window or window
        if window == sys.maxsize or window < self._window:
            raise ConfigurationError(
                f"{url} tells no window, or a shorter one than other replicas ({told} tokens); "
                "give it as max_tokens="
            )


@dataclass(eq=False)
class _Prompt:
    """What is sent once, and the places of all scores that its answer holds."""

    ids: Ids
    start: int
    key: bytes
    leads: bool = False
    places: list[tuple[EngineResult, int, int, tuple[int, ...]]] = field(default_factory=list)


def _prompts_of(requests: list[TokenRequest], results: list[EngineResult]) -> list[_Prompt]:
    prompts: dict[tuple[Ids, int], _Prompt] = {}
    begun: set[Ids] = set()
    for request, result in zip(requests, results, strict=True):
        prefix, is_long = request.prefix, len(request.prefix) >= _LONG_PREFIX
        for k, m in product(result.fitting(request), range(len(request.continuations))):
            candidate = request.candidates[k]
            path = path_of(candidate, request.continuations[m])
            ids, start = prefix + path.ids, len(prefix) + path.scored[0]
            if (ids, start) not in prompts:
                key = prompt_key(prefix if is_long else prefix + candidate)
                prompts[ids, start] = _Prompt(ids, start, key, is_long and prefix not in begun)
                begun.add(prefix)
            prompts[ids, start].places.append((result, k, m, path.scored))
    return list(prompts.values())


def _addresses(urls: str | Sequence[str]) -> list[str]:
    given = [urls] if isinstance(urls, str) else urls
    cleaned = [url.strip().rstrip("/").removesuffix("/v1") for url in given]
    if not cleaned or len(set(cleaned)) < len(cleaned) or not all(map(_ADDRESS.fullmatch, cleaned)):
        raise ConfigurationError(
            "give one or more addresses that look like http://host:port, none of them twice; a key "
            "or password belongs into api_key"
        )
    return cleaned
