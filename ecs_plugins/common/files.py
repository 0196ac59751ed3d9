"""Text files in UTF-8: read with errors that say what to do, written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable
from pathlib import Path

from ecs_plugins.common.sqlite import refuse_open_database
from ecs_plugins.errors import StorageError


def read_text(path: str | os.PathLike[str], what: str = "") -> str:
    """The text of a UTF-8 file, without a byte order mark; errors say ``what`` it is to the user.

    Raises:
        StorageError: It cannot be read, or is a database that this process has open.
    """
    refuse_open_database(path)
    name = f"{what} {path}".strip()
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        reason = error.strerror or error
        raise StorageError(f"cannot read {name}: {reason}; check the path") from error
    except UnicodeDecodeError as error:
        raise StorageError(f"cannot read {name}: it is not UTF-8; convert it first") from error


def private(path: str, flags: int) -> int:
    """The ``opener`` of a file that only its owner may read, because it holds what users say.

    So does one that is there already, with the mode of an earlier version.
    """
    descriptor = os.open(path, flags, 0o600)
    with contextlib.suppress(OSError):  # somebody else's
        os.chmod(path, 0o600)  # noqa: PTH101
    return descriptor


def write_atomically(path: Path, content: str | bytes | Iterable[bytes]) -> Path:
    """Write all of a file, or its parts in order, beside ``path``, then replace it.

    It is flushed to disk before, and only its owner may read it.

    Raises:
        StorageError: It cannot be written, for example because the disk is full, or it is a
            database that this process has open.
    """
    refuse_open_database(path)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    content = content.encode() if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "xb", opener=private) as file:
            file.writelines([content] if isinstance(content, bytes) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}; free some space or name another "
            "place. What was there before is untouched"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return path
