"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import uuid
from pathlib import Path

from ecs_plugins.errors import StorageError


def write_atomically(path: Path, content: str | bytes) -> Path:
    """Write beside ``path``, flush to disk, then replace it.

    Raises:
        StorageError: It cannot be written, for example because the disk is full.
    """
    # Not tempfile: it makes files that only their owner can read.
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}; free some space or name another "
            "place. What was there before is untouched"
        ) from error
    return path
