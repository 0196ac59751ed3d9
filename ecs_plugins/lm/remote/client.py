"""The way to the servers: a connection pool, deadlines, retries, replicas, checks.

What a fault means:

* No connection, silence, a torn or damaged answer, 408, 429 or 5xx: the replica rests, for as
  long as it asks for (``Retry-After``) or for a random time that doubles with every failure in a
  row, and the request goes to the next one. Only when all of them rest does a request wait.
* 401, 403 and 404 are configuration errors; any other 4xx is the request's own fault.
* A replica is used only after its tokenizer agreed with the local one.
"""

from __future__ import annotations

import email.utils
import json
import random
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import httpx

from ecs_plugins.errors import (
    ConfigurationError,
    EcsPluginsError,
    ModelError,
    ModelTimeoutError,
)
from ecs_plugins.lm.remote.dialect import Ask, Json
from ecs_plugins.lm.remote.options import RemoteOptions
from ecs_plugins.lm.remote.ring import Ring

T = TypeVar("T")

_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
_MALFORMED = (KeyError, TypeError, ValueError, IndexError, AttributeError)


class Patience:
    """How long one call may go on: its deadline, and whether somebody still waits for it."""

    def __init__(self, deadline_s: float | None, abandoned: threading.Event | None = None) -> None:
        self._end = None if deadline_s is None else time.monotonic() + deadline_s
        self._limit = deadline_s
        self._abandoned = abandoned
        self.stop = threading.Event()

    def left(self, most: float) -> float:
        """Seconds left, at most ``most``.

        Raises:
            ModelTimeoutError: None are, or nobody waits any more.
        """
        gone = self._abandoned is not None and self._abandoned.is_set()
        left = most if self._end is None else min(most, self._end - time.monotonic())
        if left <= 0 or gone or self.stop.is_set():
            raise self.late()
        return left

    def sleep(self, seconds: float) -> None:
        """Wait, or raise at once if the deadline comes first."""
        if self._end is not None and time.monotonic() + seconds >= self._end:
            raise self.late()
        self.stop.wait(seconds)

    def late(self) -> ModelTimeoutError:
        """The error of a call that took too long."""
        return ModelTimeoutError(
            f"the servers did not answer within {self._limit} s; give the call more time "
            "(RemoteOptions.deadline_s), ask for less at once, or add servers"
        )


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

    def failed(self, fault: _PassingFault, began: float, options: RemoteOptions) -> None:
        """Let it rest; requests that were under way together count as one failure."""
        rest = fault.retry_after
        if began >= self._failed_at:
            ceiling = min(options.max_backoff_s, options.backoff_s * 2 ** min(self.failures, 16))
            rest = random.uniform(ceiling / 2, ceiling) if rest is None else rest
            self.failures, self._failed_at = self.failures + 1, time.monotonic()
        self.last_fault = str(fault)
        self.rests_until = max(self.rests_until, time.monotonic() + (rest or 0.0))

    def answered(self) -> None:
        """All is well again."""
        self.failures, self.rests_until = 0, 0.0


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
        check: Called once per replica before its first use; raises to refuse it.
    """

    def __init__(
        self,
        urls: Sequence[str],
        api_key: str | None,
        options: RemoteOptions,
        check: Callable[[Client, Replica, Patience], None],
    ) -> None:
        self.replicas = [Replica(url) for url in urls]
        self._options = options
        self._check = check
        self._ring = Ring(urls)
        # No proxies or credentials from the environment, no redirects: data goes to the
        # addresses given and nowhere else.
        self._http = httpx.Client(
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            limits=httpx.Limits(
                max_connections=options.max_parallel,
                max_keepalive_connections=options.max_parallel,
            ),
            verify=ssl.create_default_context(cafile=options.ca_file) if options.ca_file else True,
            trust_env=False,
            follow_redirects=False,
        )

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def send(self, ask: Ask, key: bytes, read: Callable[[Json], T], patience: Patience) -> T:
        """Ask the replicas in the order of the ring until one gives a usable answer.

        Raises:
            ModelTimeoutError: The deadline passed.
            ScoringError: The answer's numbers cannot be used.
            ConfigurationError: Wrong address, key or tokenizer.
            ModelError: Every try failed.
        """
        order = [self.replicas[n] for n in self._ring.order(key)]
        last: _PassingFault | None = None
        for _ in range(self._options.max_retries + 1):
            replica, began = self._awake(order, patience), time.monotonic()
            try:
                self._admit(replica, patience)
                answer = read(self.ask(replica, ask, patience))
            except _PassingFault as fault:
                replica.failed(fault, began, self._options)
                last = fault
                continue
            replica.answered()
            return answer
        faults = "; ".join(f"{r.url}: {r.last_fault}" for r in order if r.failures)
        raise ModelError(
            f"no server answered in {self._options.max_retries + 1} tries ({faults}); see that "
            "they run and are reachable, or raise max_retries"
        ) from last

    def ask(self, replica: Replica, ask: Ask, patience: Patience) -> Json:
        """One request to one replica, without another try.

        Raises:
            ConfigurationError: Wrong address or key.
            ModelError: The server refuses the request.
        """
        status, headers, body = self._exchange(replica, ask, patience)
        if status in _PASSING:
            raise _PassingFault(f"HTTP {status}", _retry_after(headers))
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
        if not isinstance(answer, dict):
            raise ModelError(
                f"{replica.url} answers with {_excerpt(body)}; is it the right server?"
            )
        return answer

    def healthy(self, replica: Replica, timeout_s: float) -> bool:
        """Whether a replica says that it is well."""
        try:
            return self._exchange(replica, Ask("/health"), Patience(timeout_s))[0] == 200
        except (_PassingFault, ModelTimeoutError):
            return False

    def _awake(self, order: Sequence[Replica], patience: Patience) -> Replica:
        """The first replica that does not rest; waits if all of them do."""
        while True:
            now = time.monotonic()
            for replica in order:
                if replica.rests_until <= now:
                    patience.left(1.0)
                    return replica
            patience.sleep(min(replica.rests_until for replica in order) - now)

    def _admit(self, replica: Replica, patience: Patience) -> None:
        if not replica.checked:
            with replica.checking:
                if not replica.checked:
                    self._check(self, replica, patience)
                    replica.checked = True

    def _exchange(
        self, replica: Replica, ask: Ask, patience: Patience
    ) -> tuple[int, httpx.Headers, bytes]:
        silence = patience.left(self._options.request_timeout_s)
        timeout = httpx.Timeout(silence, connect=min(silence, self._options.connect_timeout_s))
        method, content, headers = "GET", None, {}
        if ask.body is not None:
            method, content = "POST", json.dumps(ask.body).encode()
            headers = {"Content-Type": "application/json"}
        end = time.monotonic() + silence
        try:
            with self._http.stream(
                method, replica.url + ask.path, content=content, headers=headers, timeout=timeout
            ) as response:
                pieces = []
                for piece in response.iter_bytes():
                    pieces.append(piece)
                    if time.monotonic() > end:
                        raise _PassingFault(f"no whole answer within {silence:.1f} s")
                return response.status_code, response.headers, b"".join(pieces)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise ConfigurationError(f"{replica.url} is no usable address: {error}") from error
        except (httpx.TransportError, httpx.DecodingError) as error:
            patience.left(1.0)
            raise _PassingFault(f"{type(error).__name__}: {error}") from error
        except RuntimeError as error:
            if not self._http.is_closed:
                raise
            raise ModelError("the RemoteLM was closed during a call; call again") from error


def readable(server: str, read: Callable[[Json], T]) -> Callable[[Json], T]:
    """``read``, with an error that says so for an answer of unknown form."""

    def guarded(answer: Json) -> T:
        try:
            return read(answer)
        except EcsPluginsError:
            raise
        except _MALFORMED as error:
            raise ModelError(
                f"an answer is not of the form that {server} is known for "
                f"({type(error).__name__}: {error}): {_excerpt(json.dumps(answer).encode())}; "
                "check the kind of server and its version"
            ) from error

    return guarded


def _retry_after(headers: httpx.Headers) -> float | None:
    value = headers.get("Retry-After", "").strip()
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError):
        return None


def _excerpt(body: bytes) -> str:
    text = body[:200].decode("utf-8", "replace")
    return repr(text + ("..." if len(body) > 200 else ""))
