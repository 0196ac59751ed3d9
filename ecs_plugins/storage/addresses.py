"""Addresses of PostgreSQL databases: how they are recognised, read and shown."""

from __future__ import annotations

import os
import re
from typing import TypeGuard
from urllib.parse import parse_qsl, quote, urlencode

from ecs_plugins.errors import ConfigurationError

SCHEMA = "ecs_plugins"
"""The schema of the tables unless the address names one."""

_CONNECTIONS = 16
"""Most connections of a process, unless the address says otherwise."""

_LEAST_CONNECTIONS = 2
"""A process that holds a claim needs another connection to work."""

_SCHEMES = ("postgresql", "postgres", "postgresql+psycopg")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_SHORTENED = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_MISTYPED = re.compile(
    r"[^/\\]*://|\s*(?:[a-z][a-z0-9+.-]+:/|postgres\w*//|[a-z][a-z0-9+.-]*:[^/\\]*@)",
    re.IGNORECASE,
)
"""Beginning of a text that is meant as an address: a path would hold its password."""
_HOST = r"(?:\[[0-9A-Fa-f:.%]+\]|[\w.%-]*)(?::\d+)?"
_PLACE = re.compile(rf"{_HOST}(?:,{_HOST})*(?:/[^/?#@:]*)?")
"""Hosts, each with a port, and the database."""

_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SAFE = ":%!$&'()*+,;=~"
"""Characters of credentials that libpq takes as they are, beside letters and digits."""

_OWN = ("schema", "pool_size")
_SHOWN = ("schema", "pool_size", "host", "hostaddr", "port", "dbname", "user", "sslmode")
"""Options that are shown in messages; others may be secret."""


def is_address(path: object) -> TypeGuard[str]:
    """Return True for the address of a PostgreSQL database, False for the path of a file.

    Raises:
        ConfigurationError: It is an address of another kind.
    """
    if isinstance(path, os.PathLike):
        if _SHORTENED.match(os.fspath(path)):
            raise ConfigurationError("an address is given as a string, not as a Path")
        return False
    scheme = _SCHEME.match(path) if isinstance(path, str) else None
    if scheme is None:
        if isinstance(path, str) and _MISTYPED.match(path):
            raise ConfigurationError(
                "a text with :// or a password is no path of a file; an address begins with "
                "postgresql://, followed by user:password@host/database"
            )
        return False
    if scheme[1].lower() not in _SCHEMES:
        raise ConfigurationError(
            f"{scheme[1]}:// is not supported; give the path of a file, or an address that begins "
            "with postgresql:// or postgresql+psycopg://"
        )
    return True


def _split(address: str) -> tuple[str, str, dict[str, str]]:
    """Return the credentials, the servers with the database, and the options of an address.

    A password may hold any character: the credentials end at the last ``@`` before the options.
    """
    _, _, rest = address.partition("://")
    options = re.search(r"\?(?:\w+=[^@]*)?$|(?<=/)\w*\?\w+=", rest)
    ends = len(rest)
    if options is not None:
        ends = rest.index("?", options.start())
    credentials, _, place = rest[:ends].rpartition("@")
    return credentials, place, dict(parse_qsl(rest[ends + 1 :]))


def without_password(address: str) -> str:
    """Return an address as messages may show it: without password and unknown options."""
    credentials, place, options = _split(address)
    user = re.split("[:@/?# ]", credentials, maxsplit=1)[0]
    shown = {key: value for key, value in options.items() if key in _SHOWN}
    query = f"?{urlencode(shown, safe='/')}" if shown else ""
    if not _PLACE.fullmatch(place):
        return "the address postgresql://..."
    return f"postgresql://{user}{'@' if user else ''}{place}{query}"


def parsed(address: str) -> tuple[str, str]:
    """Return the address as libpq reads it, and the schema.

    Raises:
        ConfigurationError: The schema is no plain name, or the address cannot be read.
    """
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    credentials, place, options = _split(address)
    schema = options.get("schema", SCHEMA)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}", schema):
        raise ConfigurationError(f"the schema of an address is a plain name, got {schema!r:.80}")
    query = urlencode({k: v for k, v in options.items() if k not in _OWN}, quote_via=quote)
    encoded = quote(_STRAY_PERCENT.sub("%25", credentials), safe=_SAFE)
    server = f"postgresql://{encoded}{'@' if encoded else ''}{place}{'?' if query else ''}{query}"
    try:
        if not _PLACE.fullmatch(place):
            raise ProgrammingError
        conninfo_to_dict(server)
    except (ProgrammingError, UnicodeError):  # their messages quote the password
        raise ConfigurationError(
            f"{without_password(address)} cannot be read: an option is unknown, or special "
            "characters of the user name or the password are not percent-encoded (%40 for @)"
        ) from None
    return server, schema


def pool_size(address: str) -> int:
    """Return the most connections that a process opens: ``pool_size`` of the address."""
    _, _, options = _split(address)
    size = options.get("pool_size", str(_CONNECTIONS))
    if not size.isdecimal() or int(size) < _LEAST_CONNECTIONS:
        raise ConfigurationError(
            f"the pool_size of an address is a number of at least {_LEAST_CONNECTIONS}, "
            f"got {size!r:.80}"
        )
    return int(size)
