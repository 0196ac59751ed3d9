"""Who may call: bearer tokens from a file, or this machine alone."""

from __future__ import annotations

import hmac
import ipaddress
import os
from collections.abc import Mapping
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ecs_plugins.common import files
from ecs_plugins.errors import ConfigurationError

MIN_TOKEN = 16
"""Characters that a token must have: a shorter one can be guessed."""


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


def guarded(app: ASGIApp, tokens: Mapping[str, str] | None) -> ASGIApp:
    """The same application behind bearer tokens; ``/health`` needs none.

    Without tokens it answers this machine alone, and only by its own names, so that a web page
    cannot reach it by a name that it made point here.
    """
    if not tokens:
        return TrustedHostMiddleware(app, ["localhost", "127.0.0.1", "[::1]", "testserver"])

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != "/health":
            scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
            # Every token is compared, so that the time taken tells nothing.
            found = [
                name
                for token, name in tokens.items()
                if hmac.compare_digest(token.encode(), given.strip().encode())
            ]
            if scheme.lower() != "bearer" or not found:
                detail = {"detail": "a bearer token is needed, and this is none of this server's"}
                refused = JSONResponse(detail, 401, headers={"WWW-Authenticate": "Bearer"})
                return await refused(scope, receive, send)
            scope.setdefault("state", {})["client"] = found[0]
        return await app(scope, receive, send)

    return answer
