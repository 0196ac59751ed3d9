"""Access to a server: bearer tokens, host names, and origins of web pages."""

from __future__ import annotations

import hmac
import ipaddress
import logging
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

_log = logging.getLogger(__name__)

MIN_TOKEN = 16
"""Least characters of a token; a shorter one can be guessed."""

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""Host names of this machine."""

LOCAL_CLIENT = "local"
"""Name of the only client of a server without tokens."""


def read_tokens(path: str | os.PathLike[str]) -> Mapping[str, str]:
    """Return the clients of a token file, by token; each line is ``name token``.

    Raises:
        ConfigurationError: A line has another form, a token is short or repeated, or there is
            none. No message repeats a token.
        StorageError: The file cannot be read.
    """
    mode = files.as_path(path).stat().st_mode if files.as_path(path).is_file() else 0
    if mode & 0o077 and os.name == "posix":
        _log.warning("%s can be read by other users of this machine; run: chmod 600 %s", path, path)
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
    """Rules that say which callers are answered.

    Without tokens only this machine may call, and only by its own host names. So a web page cannot
    call by a name that it points here, nor with a form that it sends across sites.

    Attributes:
        tokens: Clients by bearer token; None answers this machine alone.
        hosts: Further host names of the server, without a port.
        any_host: True if a client with a token may use any host name.
    """

    tokens: Mapping[str, str] | None = None
    hosts: Sequence[str] = ()
    any_host: bool = False

    def refusal(self, scope: Scope) -> Response | None:
        """Return a refusal, or None; then the client's name is in the scope's state."""
        headers = Headers(scope=scope)
        refused = self._refused_host(headers) or self._refused_origin(headers)
        if refused is not None:
            return refused
        client = LOCAL_CLIENT if not self.tokens else self._client(headers)
        if client is None:
            detail = "a bearer token of this server is needed"
            return JSONResponse({"detail": detail}, 401, headers={"WWW-Authenticate": "Bearer"})
        scope.setdefault("state", {})["client"] = client
        return None

    def _refused_host(self, headers: Headers) -> Response | None:
        if self.any_host and self.tokens and not self.hosts:
            return None
        host = _without_port(headers.get("host", ""))
        if host in (*LOOPBACK, *self.hosts):
            return None
        detail = f"{host!r} is no host name of this server; start it with --allow-host {host}"
        return JSONResponse({"detail": detail}, 421)

    def _refused_origin(self, headers: Headers) -> Response | None:
        origin = headers.get("origin")
        if origin is None or _without_port(urlsplit(origin).netloc) in LOOPBACK:
            return None
        return JSONResponse({"detail": f"pages of {origin} may not call this server"}, 403)

    def _client(self, headers: Headers) -> str | None:
        """Return the client whose token was sent."""
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
    """Return the name in a ``Host`` header in lower case; IPv6 keeps its brackets."""
    name, bracket, _ = host.lower().partition("]")
    return name + bracket if bracket else name.partition(":")[0]
