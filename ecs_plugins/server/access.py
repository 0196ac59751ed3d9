"""Who may call a server: bearer tokens, names of this machine, and origins of web pages."""

from __future__ import annotations

import hmac
import ipaddress
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from ecs_plugins.common import files
from ecs_plugins.errors import ConfigurationError

MIN_TOKEN = 16
"""Characters that a token must have: a shorter one can be guessed."""

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""Names by which a machine calls itself."""

LOCAL_CLIENT = "local"
"""Name of the one client of a server without tokens: whoever calls from this machine."""


def read_tokens(path: str | os.PathLike[str]) -> Mapping[str, str]:
    """The clients of a token file, by token: one ``name token`` in each line.

    Raises:
        ConfigurationError: A line is something else, a token is short or stands there twice, or
            there is none. No message repeats a token.
        StorageError: The file cannot be read.
    """
    clients: dict[str, str] = {}
    for number, line in enumerate(files.read_text(path).splitlines(), start=1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if len(words) != 2:
            raise ConfigurationError(f"{path}, line {number}: write a name, a space and a token")
        name, token = words
        if len(token) < MIN_TOKEN or not token.isascii():
            raise ConfigurationError(
                f"{path}, line {number}: the token of {name!r} has fewer than {MIN_TOKEN} ASCII "
                "characters; make one with: python -c 'import secrets; print(secrets.token_hex())'"
            )
        if token in clients:
            raise ConfigurationError(f"{path}, line {number}: the token of {name!r} is taken")
        clients[token] = name
    if not clients:
        raise ConfigurationError(f"{path} holds no token")
    return clients


def check_host(host: str, tokens: Mapping[str, str] | None) -> None:
    """Refuse to listen to other machines without tokens (`ConfigurationError`)."""
    with suppress(ValueError):
        host = "localhost" if ipaddress.ip_address(host).is_loopback else host
    if not tokens and host != "localhost":
        raise ConfigurationError(
            f"{host} can be reached from other machines: pass --tokens FILE, or listen to 127.0.0.1"
        )


@dataclass(frozen=True, slots=True)
class Callers:
    """Who is answered.

    Without tokens it is this machine alone, and only by its own names, so that a web page cannot
    reach it by a name that it made point here, nor by a form that it sends across sites.

    Attributes:
        tokens: Clients by bearer token; None answers this machine alone.
        hosts: Further names, without a port, by which the server is called.
        origins: Origins of web pages that may call it, such as ``https://example.org``.
        any_host: Whether a client with a token may use any name.
    """

    tokens: Mapping[str, str] | None = None
    hosts: Sequence[str] = ()
    origins: Sequence[str] = ()
    any_host: bool = False

    @property
    def known_hosts(self) -> list[str]:
        """The names by which the server is called."""
        return [*LOOPBACK, *self.hosts]

    def refusal(self, scope: Scope) -> Response | None:
        """Why a request is refused; None if it is not. The client stands in the scope's state."""
        headers = Headers(scope=scope)
        refused = self._strange_host(headers) or self._strange_origin(headers)
        if refused is not None:
            return refused
        client = LOCAL_CLIENT if not self.tokens else self._client(headers)
        if client is None:
            detail = "a bearer token is needed, and this is none of this server's"
            return JSONResponse({"detail": detail}, 401, headers={"WWW-Authenticate": "Bearer"})
        scope.setdefault("state", {})["client"] = client
        return None

    def _strange_host(self, headers: Headers) -> Response | None:
        if self.any_host and self.tokens and not self.hosts:
            return None
        host = _without_port(headers.get("host", ""))
        if host in self.known_hosts:
            return None
        detail = f"{host!r} is none of this server's names; start it with --allow-host {host}"
        return JSONResponse({"detail": detail}, 421)

    def _strange_origin(self, headers: Headers) -> Response | None:
        origin = headers.get("origin")
        if origin is None or origin in self.origins:
            return None
        if _without_port(urlsplit(origin).netloc) in LOOPBACK:
            return None
        detail = f"pages of {origin} may not call it; start it with --allow-origin {origin}"
        return JSONResponse({"detail": detail}, 403)

    def _client(self, headers: Headers) -> str | None:
        """The client whose token was sent."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        # Every token is compared, so that the time taken tells nothing.
        names = [
            name
            for token, name in (self.tokens or {}).items()
            if hmac.compare_digest(token.encode(), given.strip().encode())
        ]
        if scheme.lower() != "bearer" or not names:
            return None
        return names[0]


def _without_port(host: str) -> str:
    """The name in a ``Host`` header, lower case; an address of IPv6 keeps its brackets."""
    name, bracket, _ = host.lower().partition("]")
    return name + bracket if bracket else name.partition(":")[0]
