"""HTTP client of `RemoteLM`: deadlines and retries.

A request is tried again after a failed connection, silence, a torn answer, and the statuses 408,
425, 429 and 5xx: after the time that the server asks for (``Retry-After``, a minute at most), or
else after a random time that doubles with every try.
"""

from __future__ import annotations

import contextlib
import os
import random
import ssl
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TypeVar

import httpx
from pydantic import Field, SecretStr, ValidationError

from ecs_plugins.common.aio import abandoned
from ecs_plugins.common.config import Config
from ecs_plugins.errors import ConfigurationError, ModelError, ModelTimeoutError
from ecs_plugins.lm.remote.dialects import CANNOT_SCORE, NoScoresError, ServerRequest

T = TypeVar("T")

BACKOFF_S = 0.2
"""Longest pause after a first failure."""
MAX_ANSWER_BYTES = 1 << 26
"""Longest answer that is read, decompressed."""
_LONGEST_PAUSE_S = 10.0
_LONGEST_RETRY_AFTER_S = 60.0
_CONNECT_S = 5.0
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


class Deadline:
    """End of one call: a time, a caller that leaves, or the first error of a request."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + (seconds or threading.TIMEOUT_MAX)
        self._abandoned = abandoned() or threading.Event()
        self.stop = threading.Event()

    def left(self, needed: float = 0.0) -> float:
        """Return the seconds left; raise if no more than needed, or if nobody waits."""
        left = self._end - time.monotonic()
        if left <= needed or self._abandoned.is_set() or self.stop.is_set():
            raise ModelTimeoutError(
                f"the servers did not answer within {self._seconds} s; give the call more time "
                "(deadline_s), ask for less at once, or add servers"
            )
        return left


class PassingFault(Exception):
    """Failure that is worth another try, with the pause that the server asks for."""

    def __init__(self, fault: str, retry_after: str = "") -> None:
        super().__init__(fault)
        self.retry_after: float | None = None
        with contextlib.suppress(ValueError):  # a date counts as none
            self.retry_after = min(_LONGEST_RETRY_AFTER_S, max(0.0, float(retry_after)))

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after a number of failures in a row."""
        if self.retry_after is not None:
            return self.retry_after
        longest = min(_LONGEST_PAUSE_S, BACKOFF_S * 2 ** min(failures, 16))
        return random.uniform(longest / 2, longest)


class Client:
    """Sends requests to one server. Thread-safe.

    Args:
        url: Address of the server.
        api_key: Bearer token; empty for none.
        options: Deadlines, retries and parallelism.
    """

    def __init__(self, url: str, api_key: SecretStr, options: RemoteOptions) -> None:
        self.pid = os.getpid()
        self._url = url
        self._options = options
        headers = {}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key.get_secret_value()}"
        # No proxies or credentials from the environment and no redirects: texts go to the given
        # address and nowhere else.
        self._http = httpx.Client(
            headers=headers,
            limits=httpx.Limits(max_connections=options.max_parallel),
            verify=ssl.create_default_context(),  # SSL_CERT_FILE names those of a private authority
            trust_env=False,
        )
        self._pool = ThreadPoolExecutor(options.max_parallel, thread_name_prefix="ecs-remote")

    def close(self) -> None:
        """Close all connections; calls under way get an error."""
        self._http.close()
        self._pool.shutdown(wait=False)

    def send(self, requests: Sequence[ServerRequest[T]], deadline: Deadline) -> list[T]:
        """Return the answers in the order of the requests; the first error ends the others.

        Errors are those of `RemoteLM.score`.
        """
        futures: list[Future[T]] = []
        try:
            futures += [self._pool.submit(self.ask, request, deadline) for request in requests]
            done, waiting = wait(futures, deadline.left(), FIRST_EXCEPTION)
            failed = [future for future in done if future.exception()]
            if waiting and not failed:
                deadline.left(threading.TIMEOUT_MAX)
            return [future.result() for future in failed or futures]
        except BaseException as error:
            deadline.stop.set()
            for future in futures:
                future.cancel()
            if type(error) is RuntimeError and self._http.is_closed:
                raise ModelError("the RemoteLM was closed during a call; call again") from error
            raise

    def ask(self, request: ServerRequest[T], deadline: Deadline) -> T:
        """Send one request and return its parsed answer; retry after transient errors."""
        tries = self._options.max_retries + 1
        for failures in range(tries):
            try:
                return self._ask_once(request, deadline)
            except NoScoresError:
                if request.otherwise is None:
                    raise
                return self.ask(request.otherwise, deadline)
            except PassingFault as fault:
                last = fault
                if failures < tries - 1:
                    pause = fault.pause(failures)
                    deadline.left(pause)
                    deadline.stop.wait(pause)
        raise ModelError(
            f"{self._url} did not answer in {tries} tries ({last}); see that it runs and is "
            "reachable, or raise max_retries"
        )

    def _ask_once(self, request: ServerRequest[T], deadline: Deadline) -> T:
        response, content = self._fetch(request, deadline)
        self._raise_for_status(request.path, response, content)
        try:
            return request.read(request.form.model_validate_json(content))
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            beginning = content[:_SHOWN]
            if fault["type"] == "json_invalid":
                raise PassingFault(f"an answer that is not JSON: {beginning!r}") from error
            raise ModelError(
                f"an answer of {self._url} is not of the form of this kind of server "
                f"({fault['loc']}: {fault['msg']}): {beginning!r}; {CANNOT_SCORE}"
            ) from error

    def _fetch(self, request: ServerRequest[T], deadline: Deadline) -> tuple[httpx.Response, bytes]:
        """Return a response and its whole body, decompressed."""
        limit = min(deadline.left(), self._options.request_timeout_s)
        timeout = httpx.Timeout(limit, connect=min(limit, _CONNECT_S))
        method = "POST" if request.body else "GET"
        content = bytearray()
        try:
            with self._http.stream(
                method, self._url + request.path, json=request.body, timeout=timeout
            ) as response:
                for part in response.iter_bytes():
                    content += part
                    if len(content) > MAX_ANSWER_BYTES:
                        raise ModelError(
                            f"an answer of {self._url} is longer than {MAX_ANSWER_BYTES:,} bytes; "
                            "nothing of it was used"
                        )
                    deadline.left()
        except (httpx.TransportError, httpx.DecodingError) as error:
            deadline.left()
            raise PassingFault(f"{type(error).__name__}: {error}") from error
        return response, bytes(content)

    def _raise_for_status(self, path: str, response: httpx.Response, content: bytes) -> None:
        """Raise the error of a status other than success."""
        status = response.status_code
        if status in _PASSING:
            raise PassingFault(f"HTTP {status}", response.headers.get("Retry-After", ""))
        if status in (401, 403):
            raise ConfigurationError(f"{self._url} refuses the API key (HTTP {status})")
        if status == 404:
            raise ConfigurationError(
                f"{self._url}{path} does not exist; check the address, the kind of server and the "
                f"name of the model; {CANNOT_SCORE}"
            )
        if status >= 300:
            beginning = content[:_SHOWN]
            raise ModelError(f"{self._url} refuses a request: HTTP {status}, {beginning!r}")
