"""The way to the servers: a connection pool, deadlines, retries, replicas.

What a fault means:

* No connection, silence, a torn or damaged answer, 408, 429 or 5xx: the replica rests, for as
  long as it asks for (``Retry-After``) or for a random time that doubles with every failure in a
  row, and the request goes to the next one. Only when all of them rest does a request wait.
* 401, 403 and 404 are configuration errors; any other 4xx is the request's own fault.
* A replica is used only after it was checked.

Which replica a prompt goes to is decided by hashing its prefix together with each address
(rendezvous hashing), so that server caches hit: when a replica leaves, only its prompts move.
"""

from __future__ import annotations

import contextlib
import json
import random
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import TypeVar

import httpx
from pydantic import Field

from ecs_plugins.common.aio import abandoned
from ecs_plugins.common.config import Config
from ecs_plugins.errors import (
    ConfigurationError,
    EcsPluginsError,
    ModelError,
    ModelTimeoutError,
)
from ecs_plugins.lm.base import ChatLayout
from ecs_plugins.lm.remote.dialects import Ask

T = TypeVar("T")

LONG_PREFIX = 64
"""Tokens from which on a prefix decides alone; shorter ones are shared by too many prompts."""

_HASHED = 512  # so that a conversation stays where it began
_LONGEST_REST_S = 10.0
_CONNECT_S = 5.0
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


class RemoteOptions(Config):
    """Settings of a `RemoteLM`."""

    layout: ChatLayout | None = Field(
        None, description="The chat layout; from the tokenizer's chat template by default."
    )
    max_tokens: int | None = Field(
        None,
        ge=1,
        description="A window shorter than the server's; needed if the server does not tell.",
    )
    max_parallel: int = Field(
        16, ge=1, description="Requests on the wire at once, over all calls and servers."
    )
    deadline_s: float | None = Field(
        300.0, gt=0, description="How long a call may take altogether; without end if None."
    )
    request_timeout_s: float = Field(
        60.0, gt=0, description="How long a server may be silent before it counts as hanging."
    )
    max_retries: int = Field(
        4, ge=0, description="How often a request is sent again after a passing fault."
    )
    backoff_s: float = Field(
        0.2,
        ge=0,
        description="A server that failed rests for up to this long, twice as long after each "
        "further failure in a row, and never longer than ten seconds.",
    )
    ca_file: str | None = Field(
        None, description="Certificates of a private authority (PEM), for https addresses."
    )


class Patience:
    """How long one call may go on: its deadline, and whether somebody still waits for it."""

    def __init__(self, deadline_s: float | None) -> None:
        self._limit = deadline_s
        self._end = time.monotonic() + (float("inf") if deadline_s is None else deadline_s)
        self._abandoned = abandoned()
        self.stop = threading.Event()

    def left(self, most: float) -> float:
        """Seconds left, at most ``most``.

        Raises:
            ModelTimeoutError: None are, or nobody waits any more.
        """
        left = min(most, self._end - time.monotonic())
        gone = self._abandoned is not None and self._abandoned.is_set()
        if left <= 0 or gone or self.stop.is_set():
            raise ModelTimeoutError(
                f"the servers did not answer within {self._limit} s; give the call more time "
                "(deadline_s), ask for less at once, or add servers"
            )
        return left

    def sleep(self, seconds: float) -> None:
        """Wait, or raise at once if the deadline comes first."""
        if self.left(seconds) < seconds:
            self._end = 0.0
        else:
            self.stop.wait(seconds)
        self.left(seconds)


class Replica:
    """One server: its address, and how it has been doing."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.rests_until = 0.0
        self.failures = 0
        self.checked = False
        self.checking = threading.Lock()
        self.last_fault = "not asked yet"
        self._failed_at = 0.0

    def failed(self, fault: _PassingFault, began: float, backoff_s: float) -> None:
        """Let it rest; requests that were under way together count as one failure."""
        rest = fault.retry_after
        if began >= self._failed_at:
            ceiling = min(_LONGEST_REST_S, backoff_s * 2 ** min(self.failures, 16))
            rest = random.uniform(ceiling / 2, ceiling) if rest is None else rest
            self.failures, self._failed_at = self.failures + 1, time.monotonic()
        self.last_fault = str(fault)
        self.rests_until = max(self.rests_until, time.monotonic() + (rest or 0.0))


class _PassingFault(Exception):
    """Worth another try."""

    def __init__(self, fault: str, retry_after: float | None = None) -> None:
        super().__init__(fault)
        self.retry_after = retry_after


class Client:
    """Sends requests to replicas. Thread-safe.

    Args:
        urls: Base addresses.
        api_key: Sent as a bearer token, if there is one.
        options: Limits.

    Attributes:
        check: Called once per replica before its first use; raises to refuse it.

    Raises:
        ConfigurationError: The certificates cannot be read.
    """

    def __init__(self, urls: Sequence[str], api_key: str | None, options: RemoteOptions) -> None:
        self.replicas = [Replica(url) for url in urls]
        self._options = options
        self.check: Callable[[Replica, Patience], None] = lambda _replica, _patience: None
        try:
            verify = ssl.create_default_context(cafile=options.ca_file) if options.ca_file else True
        except OSError as error:
            raise ConfigurationError(
                f"the certificates in ca_file={options.ca_file!r} cannot be read: {error}"
            ) from error
        # No proxies or credentials from the environment, no redirects: data goes to the
        # addresses given and nowhere else.
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            limits=httpx.Limits(
                max_connections=options.max_parallel,
                max_keepalive_connections=options.max_parallel,
            ),
            verify=verify,
            trust_env=False,
            follow_redirects=False,
        )

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def send(self, ask: Ask[T], key: bytes, patience: Patience) -> T:
        """Ask the replicas, in an order decided by the key, until one gives a usable answer.

        Raises:
            ModelTimeoutError: The deadline passed.
            ScoringError: The answer's numbers cannot be used.
            ConfigurationError: Wrong address, key or tokenizer.
            ModelError: Every try failed.
        """
        order = sorted(self.replicas, key=lambda replica: weight_of(replica.url, key))
        last: _PassingFault | None = None
        for _ in range(self._options.max_retries + 1):
            replica, began = self._awake(order, patience), time.monotonic()
            try:
                with replica.checking:
                    if not replica.checked:
                        self.check(replica, patience)
                        replica.checked = True
                answer = self.ask(replica, ask, patience)
            except _PassingFault as fault:
                replica.failed(fault, began, self._options.backoff_s)
                last = fault
                continue
            replica.failures, replica.rests_until = 0, 0.0
            return answer
        faults = "; ".join(f"{r.url}: {r.last_fault}" for r in order if r.failures)
        raise ModelError(
            f"no server answered in {self._options.max_retries + 1} tries ({faults}); see that "
            "they run and are reachable, or raise max_retries"
        ) from last

    def ask(self, replica: Replica, ask: Ask[T], patience: Patience) -> T:
        """One request to one replica, without another try.

        Raises:
            ConfigurationError: Wrong address or key.
            ModelError: The server refuses the request, or its answer has another form.
        """
        status, retry_after, body = self._exchange(replica, ask, patience)
        if status in _PASSING:
            raise _PassingFault(f"HTTP {status}", retry_after)
        if status in (401, 403):
            raise ConfigurationError(f"{replica.url} refuses the API key (HTTP {status})")
        if status == 404:
            raise ConfigurationError(
                f"{replica.url}{ask.path} does not exist; check the address, the kind of server "
                "and the name of the model"
            )
        if status >= 300:
            raise ModelError(f"{replica.url} refuses a request: HTTP {status}, {_excerpt(body)}")
        try:
            answer = json.loads(body)
        except ValueError as error:
            raise _PassingFault(f"an answer that is not JSON: {_excerpt(body)}") from error
        try:
            return ask.read(answer)
        except EcsPluginsError:
            raise
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise ModelError(
                f"an answer of {replica.url} is not of the form that this kind of server is known "
                f"for ({type(error).__name__}: {error}): {_excerpt(body)}; check the kind of "
                "server and its version"
            ) from error

    def _awake(self, order: Sequence[Replica], patience: Patience) -> Replica:
        """The first replica that does not rest; waits if all of them do."""
        while True:
            now = time.monotonic()
            for replica in order:
                if replica.rests_until <= now:
                    return replica
            patience.sleep(min(replica.rests_until for replica in order) - now)

    def _exchange(
        self, replica: Replica, ask: Ask[T], patience: Patience
    ) -> tuple[int, float | None, bytes]:
        silence = patience.left(self._options.request_timeout_s)
        timeout = httpx.Timeout(silence, connect=min(silence, _CONNECT_S))
        method = "GET" if ask.body is None else "POST"
        end = time.monotonic() + silence
        try:
            with self._http.stream(
                method, replica.url + ask.path, json=ask.body, timeout=timeout
            ) as response:
                pieces = []
                for piece in response.iter_bytes():
                    pieces.append(piece)
                    if time.monotonic() > end:
                        raise _PassingFault(f"no whole answer within {silence:.1f} s")
            return response.status_code, _retry_after(response.headers), b"".join(pieces)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise ConfigurationError(f"{replica.url} is no usable address: {error}") from error
        except (httpx.TransportError, httpx.DecodingError) as error:
            patience.left(1.0)
            raise _PassingFault(f"{type(error).__name__}: {error}") from error
        except RuntimeError as error:
            if not self._http.is_closed:
                raise
            raise ModelError("the RemoteLM was closed during a call; call again") from error


def weight_of(url: str, key: bytes) -> bytes:
    """What the replicas of a prompt are sorted by; the least is asked first."""
    return blake2b(url.encode() + b"\0" + key, digest_size=8).digest()


def prompt_key(prefix: Sequence[int], candidate: Sequence[int] = ()) -> bytes:
    """What decides where a prompt goes: its prefix, and its candidate too if that is short."""
    ids = prefix if len(prefix) >= LONG_PREFIX else (*prefix, *candidate)
    return b",".join(b"%d" % i for i in ids[:_HASHED])


def _retry_after(headers: httpx.Headers) -> float | None:
    with contextlib.suppress(ValueError):
        return max(0.0, float(headers.get("Retry-After", "")))
    return None


def _excerpt(body: bytes) -> str:
    text = body[:200].decode("utf-8", "replace")
    return repr(text + ("..." if len(body) > 200 else ""))
