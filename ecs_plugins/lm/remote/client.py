"""The way to the servers: connections, deadlines, retries, replicas.

* No connection, silence, a torn answer, 408, 429 or 5xx: the replica rests, for as long as it asks
  for (``Retry-After``, a minute at most) or for a random time that doubles with every failure in a
  row, and the request goes to the next one. Only when all of them rest does a request wait.
* 401, 403 and 404 are configuration errors; any other 4xx is the request's own fault.

Which replica a prompt goes to is decided by hashing its prefix together with each address
(rendezvous hashing), so that server caches hit: when a replica leaves, only its prompts move.
"""

from __future__ import annotations

import contextlib
import os
import random
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TypeVar

import httpx
from pydantic import Field, SecretStr, ValidationError
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt

from ecs_plugins.common.aio import abandoned
from ecs_plugins.common.config import Config
from ecs_plugins.errors import ConfigurationError, ModelError, ModelTimeoutError
from ecs_plugins.lm.remote.dialects import NoScoresError, ServerRequest

T = TypeVar("T")

BACKOFF_S = 0.2
"""The longest rest after a first failure."""
_LONGEST_REST_S = 10.0
_LONGEST_RETRY_AFTER_S = 60.0
_CONNECT_S = 5.0
_HASHED = 512  # ids, so that a conversation stays where it began
_SHOWN = 200  # bytes of an answer in an error
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


class RemoteOptions(Config):
    """Settings of a `RemoteLM`."""

    max_tokens: int | None = Field(
        None, ge=1, description="A shorter window than the servers'; needed if they tell none."
    )
    max_parallel: int = Field(16, ge=1, description="Requests on the wire at once, over all calls.")
    deadline_s: float | None = Field(300.0, gt=0, description="Bounds a call altogether.")
    request_timeout_s: float = Field(60.0, gt=0, description="How long a server may be silent.")
    max_retries: int = Field(4, ge=0, description="Further tries after a passing fault.")
    max_answer_bytes: int = Field(
        1 << 26, ge=1, description="The longest answer that is read, decompressed."
    )
    ca_file: str | None = Field(None, description="Certificates of a private authority (PEM).")


class Deadline:
    """How long one call may go on: its end, and whether somebody still waits for it."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + (seconds or threading.TIMEOUT_MAX)
        self._abandoned = abandoned() or threading.Event()
        self.stop = threading.Event()

    def left(self, needed: float = 0.0) -> float:
        """Seconds left; `ModelTimeoutError` if no more than needed, or if nobody waits."""
        left = self._end - time.monotonic()
        if left <= needed or self._abandoned.is_set() or self.stop.is_set():
            raise ModelTimeoutError(
                f"the servers did not answer within {self._seconds} s; give the call more time "
                "(deadline_s), ask for less at once, or add servers"
            )
        return left


class PassingFault(Exception):
    """Worth another try; says how long the server wants to rest, if it does."""

    def __init__(self, fault: str, retry_after: str = "") -> None:
        super().__init__(fault)
        self.rest: float | None = None
        with contextlib.suppress(ValueError):  # a date counts as none
            self.rest = min(_LONGEST_RETRY_AFTER_S, max(0.0, float(retry_after)))


@dataclass(eq=False)
class Replica:
    """One server: its address, how it has been doing, and a path that it does not know."""

    url: str
    rests_until: float = 0.0
    failures: int = 0
    fault: str = ""
    checked: bool = False
    lacks: str = ""
    checking: threading.Lock = field(default_factory=threading.Lock)

    def failed(self, fault: PassingFault) -> None:
        """Let it rest; requests that were under way together count as one failure."""
        now = time.monotonic()
        rest = fault.rest
        if now >= self.rests_until:
            if rest is None:
                longest = min(_LONGEST_REST_S, BACKOFF_S * 2 ** min(self.failures, 16))
                rest = random.uniform(longest / 2, longest)
            self.failures += 1
        self.fault = str(fault)
        self.rests_until = max(self.rests_until, now + (rest or 0.0))


class Client:
    """Sends requests to replicas of one model, each checked before its first use. Thread-safe.

    ``check`` raises to refuse a replica.

    Raises:
        ConfigurationError: The certificates cannot be read.
    """

    def __init__(
        self,
        urls: Sequence[str],
        api_key: SecretStr,
        options: RemoteOptions,
        check: Callable[[Client, Replica, Deadline], None],
    ) -> None:
        self.pid = os.getpid()
        self._replicas = [Replica(url) for url in urls]
        self._options = options
        self._check = check
        headers = {}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key.get_secret_value()}"
        # No proxies or credentials from the environment, no redirects: data goes to the
        # addresses given and nowhere else.
        self._http = httpx.Client(
            headers=headers,
            limits=httpx.Limits(max_connections=options.max_parallel),
            verify=_certificates(options.ca_file),
            trust_env=False,
        )
        self._pool = ThreadPoolExecutor(options.max_parallel, thread_name_prefix="ecs-remote")

    def close(self) -> None:
        """Close all connections; calls under way find out by an error."""
        self._http.close()
        self._pool.shutdown(wait=False)

    def send(
        self, requests: Sequence[tuple[ServerRequest[T], bytes]], deadline: Deadline
    ) -> list[T]:
        """Answers in the order of the requests, each of which comes with its `prompt_key`.

        Errors are those of `RemoteLM.score`.
        """
        futures = []
        try:
            for request, key in requests:
                future = self._pool.submit(self._try, request, key, deadline)
                futures.append(future)
            done, waiting = wait(futures, deadline.left(), FIRST_EXCEPTION)
            failed = [future for future in done if future.exception()]
            if waiting and not failed:
                deadline.left(threading.TIMEOUT_MAX)
            return [future.result() for future in failed or futures]
        except BaseException as error:  # the first one ends the others
            deadline.stop.set()
            for future in futures:
                future.cancel()
            if type(error) is RuntimeError and self._http.is_closed:
                raise ModelError("the RemoteLM was closed during a call; call again") from error
            raise

    def _try(self, request: ServerRequest[T], key: bytes, deadline: Deadline) -> T:
        order = sorted(self._replicas, key=lambda replica: weight_of(replica.url, key))
        tries = Retrying(
            stop=stop_after_attempt(self._options.max_retries + 1),
            retry=retry_if_exception_type(PassingFault),
        )
        try:
            answer: T = tries(self._try_once, order, request, deadline)
        except RetryError as error:
            faults = "; ".join(f"{r.url}: {r.fault}" for r in order if r.failures)
            raise ModelError(
                f"no server answered in {self._options.max_retries + 1} tries ({faults}); see that "
                "they run and are reachable, or raise max_retries"
            ) from error
        return answer

    def _try_once(
        self, order: Sequence[Replica], request: ServerRequest[T], deadline: Deadline
    ) -> T:
        now = time.monotonic()
        replica = min(order, key=lambda replica: max(now, replica.rests_until))
        rest = max(0.0, replica.rests_until - now)
        deadline.left(rest)
        deadline.stop.wait(rest)
        try:
            with replica.checking:
                if not replica.checked:
                    self._check(self, replica, deadline)
                    replica.checked = True
            answer = self._ask_either(replica, request, deadline)
        except PassingFault as fault:
            replica.failed(fault)
            raise
        replica.failures, replica.rests_until = 0, 0.0
        return answer

    def _ask_either(self, replica: Replica, request: ServerRequest[T], deadline: Deadline) -> T:
        if request.otherwise is None:
            return self.ask(replica, request, deadline)
        if replica.lacks != request.path:
            with contextlib.suppress(NoScoresError):
                return self.ask(replica, request, deadline)
        return self.ask(replica, request.otherwise, deadline)

    def ask(self, replica: Replica, request: ServerRequest[T], deadline: Deadline) -> T:
        """One request to one replica, without another try."""
        response, content = self._fetch(replica.url, request, deadline)
        _raise_for_status(replica.url, request.path, response, content)
        try:
            return request.read(request.form.model_validate_json(content))
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            beginning = content[:_SHOWN]
            if fault["type"] == "json_invalid":
                raise PassingFault(f"an answer that is not JSON: {beginning!r}") from error
            raise ModelError(
                f"an answer of {replica.url} is not of the form that this kind of server is known "
                f"for ({fault['loc']}: {fault['msg']}): {beginning!r}; check its kind and its "
                "version"
            ) from error

    def _fetch(
        self, url: str, request: ServerRequest[T], deadline: Deadline
    ) -> tuple[httpx.Response, bytes]:
        """An answer and all of its body, decompressed."""
        limit = min(deadline.left(), self._options.request_timeout_s)
        content = bytearray()
        try:
            with self._http.stream(
                "POST" if request.body else "GET",
                url + request.path,
                json=request.body,
                timeout=httpx.Timeout(limit, connect=min(limit, _CONNECT_S)),
            ) as response:
                for part in response.iter_bytes():
                    content += part
                    if len(content) > self._options.max_answer_bytes:
                        raise ModelError(
                            f"an answer of {url} is longer than max_answer_bytes, "
                            f"{self._options.max_answer_bytes:,} bytes; nothing of it was used"
                        )
                    deadline.left()
        except (httpx.TransportError, httpx.DecodingError) as error:
            deadline.left()
            raise PassingFault(f"{type(error).__name__}: {error}") from error
        return response, bytes(content)


def _certificates(ca_file: str | None) -> ssl.SSLContext | bool:
    """What servers are verified by; True for what the system trusts."""
    if not ca_file:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ConfigurationError(
            f"the certificates in ca_file={ca_file!r} cannot be read: {error}"
        ) from error


def _raise_for_status(url: str, path: str, response: httpx.Response, content: bytes) -> None:
    """Raise what a status other than success means."""
    status = response.status_code
    if status in _PASSING:
        raise PassingFault(f"HTTP {status}", response.headers.get("Retry-After", ""))
    if status in (401, 403):
        raise ConfigurationError(f"{url} refuses the API key (HTTP {status})")
    if status == 404:
        raise ConfigurationError(
            f"{url}{path} does not exist; check the address, the kind of server and the name of "
            "the model"
        )
    if status >= 300:
        beginning = content[:_SHOWN]
        raise ModelError(f"{url} refuses a request: HTTP {status}, {beginning!r}")


def prompt_key(ids: Sequence[int]) -> bytes:
    """What decides where a prompt goes: ids that it shares with the prompts to go there too."""
    return b",".join(b"%d" % i for i in ids[:_HASHED])


def weight_of(url: str, key: bytes) -> bytes:
    """What the replicas of a prompt are sorted by; the least is asked first."""
    return blake2b(url.encode() + b"\0" + key, digest_size=8).digest()
