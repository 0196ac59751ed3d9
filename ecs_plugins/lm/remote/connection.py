"""An open connection: replicas that were checked, and prompts on their way to them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ecs_plugins.errors import ConfigurationError, ModelError
from ecs_plugins.lm.base import ChatLayout
from ecs_plugins.lm.prompts import chat_layout
from ecs_plugins.lm.remote.client import Client, Patience, Replica, readable
from ecs_plugins.lm.remote.dialect import Ask, Dialect, Scores
from ecs_plugins.lm.remote.options import RemoteOptions
from ecs_plugins.lm.remote.ring import LONG_PREFIX, prompt_key
from ecs_plugins.lm.scoring.request import Logprobs, TokenRequest, path_of
from ecs_plugins.lm.tokenization import SegmentEncoder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

T = TypeVar("T")

_PROBES = (
    "The 3 quick foxes paid $14.07 -- didn't they?\n\n\tdef f(x): return x**2",
    "Grüße aus Kraków, naïve café: 東京 и Москва ☕ 0x1F",
)
"""Two tokenizers that agree on these ids are taken for the same."""


class Connection:
    """Everything that exists only once a server has answered."""

    def __init__(
        self,
        urls: tuple[str, ...],
        dialect: Dialect,
        tokenizer: PreTrainedTokenizerBase,
        model: str | None,
        api_key: str | None,
        layout: ChatLayout | None,
        max_tokens: int | None,
        options: RemoteOptions,
    ) -> None:
        self.pid = os.getpid()
        self.dialect = dialect
        self.tokenizer = tokenizer
        self.layout = layout or chat_layout(tokenizer)
        template = getattr(tokenizer, "chat_template", None)
        self.encoder = SegmentEncoder(
            tokenizer, f"{self.layout.head}{self.layout.tail}{template or ''}"
        )
        self._probes = [(text, list(tokenizer.encode(text))) for text in _PROBES]
        self._max_tokens = max_tokens
        self.model = model or ""
        self.window = 0
        self.client = Client(urls, api_key, options, self._check)
        self._pool = ThreadPoolExecutor(options.max_parallel, thread_name_prefix="ecs-remote")
        try:
            # Any replica that is up will do; each is checked before its own first use.
            patience = Patience(options.deadline_s)
            self.client.send(Ask("/v1/models"), b"", lambda _: None, patience)
        except BaseException:
            self.close()
            raise

    def all(self, calls: Sequence[Callable[[], T]], patience: Patience) -> list[T]:
        """Results of all calls, in their order; the first error ends the others."""
        if self.pid != os.getpid():
            raise ModelError("the connection belongs to a parent process; use the RemoteLM again")
        try:
            futures: list[Future[T]] = [self._pool.submit(call) for call in calls]
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

    def close(self) -> None:
        """Calls under way find out by an error."""
        self._pool.shutdown(wait=False)
        self.client.close()

    def _check(self, client: Client, replica: Replica, patience: Patience) -> None:
        """See that a replica serves the model, encodes as we do, and how much it takes."""
        server = f"{self.dialect.name} at {replica.url}"
        models = readable(server, lambda a: [str(entry["id"]) for entry in a["data"]])(
            client.ask(replica, Ask("/v1/models"), patience)
        )
        if not self.model:
            if len(models) != 1:
                raise ConfigurationError(f"{server} serves {models}; name one of them as model=")
            self.model = models[0]
        if self.model not in models:
            raise ConfigurationError(f"{server} does not serve {self.model!r} but {models}")
        for text, wanted in self._probes:
            ask = self.dialect.tokenize(self.model, text)
            got = readable(server, self.dialect.tokenized)(client.ask(replica, ask, patience))
            if got != wanted:
                raise ConfigurationError(
                    f"{server} encodes {text!r} as {len(got)} tokens {got[:8]}... and the local "
                    f"tokenizer as {len(wanted)} tokens {wanted[:8]}...; give the tokenizer of "
                    "the served model"
                )
        window = self._window_of(client, replica, patience, server)
        if not self.window:
            self.window = window
        elif window < self.window:
            raise ConfigurationError(
                f"{server} takes {window} tokens and other replicas {self.window}; serve all of "
                f"them alike, or give max_tokens={window}"
            )

    def _window_of(self, client: Client, replica: Replica, patience: Patience, server: str) -> int:
        found: int | None = None
        for ask in self.dialect.window_asks():
            try:
                answer = client.ask(replica, ask, patience)
            except (ConfigurationError, ModelError):
                continue  # older and newer servers tell it in different places
            found = readable(server, lambda a: self.dialect.window(a, self.model))(answer)
            if found is not None:
                break
        if found is None and self._max_tokens is None:
            raise ConfigurationError(f"{server} does not tell its window; give it as max_tokens=")
        return min(n for n in (found, self._max_tokens) if n is not None)


class PromptBatch:
    """The distinct prompts of one call."""

    def __init__(self, connection: Connection, patience: Patience) -> None:
        self._connection = connection
        self._patience = patience
        self._prompts: dict[tuple[tuple[int, ...], int], list[tuple[int, int, int]]] = {}
        self._keys: dict[tuple[tuple[int, ...], int], bytes] = {}
        self._leaders: dict[tuple[int, ...], tuple[tuple[int, ...], int]] = {}
        self._offsets: dict[tuple[int, int, int], list[int]] = {}

    def add(self, request: TokenRequest, n: int, k: int, m: int) -> None:
        """One candidate with one continuation; equal prompts are sent once."""
        path = path_of(request.candidates[k], request.continuations[m])
        ids, first = request.prefix + path.ids, len(request.prefix) + path.scored[0]
        prompt = (ids, first)
        self._prompts.setdefault(prompt, []).append((n, k, m))
        self._keys.setdefault(prompt, prompt_key(request.prefix, request.candidates[k]))
        self._offsets[n, k, m] = [s - path.scored[0] for s in path.scored]
        if self._connection.dialect.shares_prefixes and len(request.prefix) >= LONG_PREFIX:
            self._leaders.setdefault(request.prefix, prompt)

    def run(self, parallel: int) -> dict[tuple[int, int, int], tuple[Logprobs, int]]:
        """Log-probabilities of the scored tokens and tokens computed, by (n, k, m)."""
        leaders = set(self._leaders.values())
        # With one prompt per prefix there is nobody to go ahead of.
        waves = [list(leaders), [p for p in self._prompts if p not in leaders]]
        if parallel == 1 or len(leaders) == len(self._prompts):
            waves = [list(self._prompts)]
        out: dict[tuple[int, int, int], tuple[Logprobs, int]] = {}
        for wave in waves:
            calls = [partial(self._one, *prompt) for prompt in wave]
            patience = self._patience
            for prompt, scores in zip(wave, self._connection.all(calls, patience), strict=True):
                flat = np.asarray(scores.logprobs, dtype=np.float32)
                tokens = scores.computed_tokens
                for where in self._prompts[prompt]:
                    out[where] = (flat[self._offsets[where]], tokens)
                    tokens = 0
        return out

    def _one(self, ids: tuple[int, ...], start: int) -> Scores:
        connection = self._connection
        dialect = connection.dialect
        return connection.client.send(
            dialect.score(connection.model, ids, start),
            self._keys[ids, start],
            readable(dialect.name, lambda answer: dialect.scores(answer, ids, start)),
            self._patience,
        )
