"""What the address of a PostgreSQL database says, beside what libpq understands."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from ecs_plugins.errors import ConfigurationError

SCHEMA = "ecs_plugins"
"""Where the tables are unless the address says otherwise."""

_CONNECTIONS = 16
"""Of a process, unless the address says otherwise."""

_LEAST_CONNECTIONS = 2
"""Who holds a claim needs another connection to work."""


def parsed(address: str) -> tuple[str, str]:
    """The address without what only this package understands, and the schema."""
    parts = urlsplit(address)
    options = dict(parse_qsl(parts.query))
    options.pop("pool_size", None)
    schema = options.pop("schema", SCHEMA)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}", schema):
        raise ConfigurationError(f"the schema of an address is a plain name, got {schema!r:.80}")
    return parts._replace(query=urlencode(options, quote_via=quote)).geturl(), schema


def pool_size(address: str) -> int:
    """How many connections a process opens at most: ``pool_size`` of the address."""
    options = dict(parse_qsl(urlsplit(address).query))
    size = options.get("pool_size", str(_CONNECTIONS))
    if not size.isdecimal() or int(size) < _LEAST_CONNECTIONS:
        raise ConfigurationError(
            f"the pool_size of an address is a number of at least {_LEAST_CONNECTIONS}, "
            f"got {size!r:.80}"
        )
    return int(size)
