"""Text files in UTF-8: read with errors that say what to do, written whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import re
import uuid
import weakref
from collections.abc import Callable, Iterable
from importlib import resources
from pathlib import Path
from typing import Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from ecs_plugins.common.checks import shown
from ecs_plugins.errors import InvalidInputError, StorageError

T = TypeVar("T")


class OpenDatabase(Protocol):
    """A database that this process has open."""

    def owns(self, path: Path) -> bool:
        """Whether the file is one of its files."""
        ...


open_databases: weakref.WeakSet[OpenDatabase] = weakref.WeakSet()
"""Every database file of this process."""


def refuse_open_database(path: str | os.PathLike[str]) -> None:
    """Refuse to touch a file, or its log, that this process has open as a database.

    Closing any descriptor of such a file would drop the locks that the database holds on it.
    """
    if is_open_database(path):
        raise StorageError(
            f"{path} belongs to a database that is open; close it first, or name another file"
        )


def is_open_database(path: str | os.PathLike[str]) -> bool:
    """Whether this process has a file open as a database, or as the log of one."""
    file = Path(path)
    return any(database.owns(file) for database in list(open_databases))


def as_path(path: str | os.PathLike[str]) -> Path:
    """A path that can be one of a file.

    Raises:
        StorageError: It is none or empty, or holds NUL or lone surrogates.
    """
    try:
        file = Path(path)
        if not os.fspath(path):
            raise ValueError("it is empty")
        if b"\0" in os.fsencode(file):
            raise ValueError("it holds NUL")
    except (TypeError, ValueError) as error:
        raise StorageError(f"{shown(path, 80)} names no file: {error}; give a path") from error
    return file


def read_text(path: str | os.PathLike[str], what: str = "") -> str:
    """The text of a UTF-8 file, without a byte order mark; errors say ``what`` it is to the user.

    Raises:
        StorageError: It cannot be read, or is a database that this process has open.
    """
    file = as_path(path)
    refuse_open_database(file)
    name = f"{what} {path}".strip()
    try:
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        reason = error.strerror or error
        raise StorageError(f"cannot read {name}: {reason}; check the path") from error
    except UnicodeDecodeError as error:
        raise StorageError(f"cannot read {name}: it is not UTF-8; convert it first") from error


def statements(package: str, name: str) -> tuple[str, ...]:
    """The statements of an SQL file of a package, without comments."""
    script = resources.files(package).joinpath(name).read_text("utf-8")
    return tuple(each.strip() for each in re.sub("--.*", "", script).split(";")[:-1])


def read_versioned(
    kind: TypeAdapter[T],
    text: str,
    format: str,
    version: int,
    *,
    source: str,
    otherwise: str,
    again: str,
) -> T:
    """What JSON text of a format and version holds, every value checked.

    Errors name the ``source``; ``otherwise`` says what it is not, ``again`` what to do about it.

    Raises:
        InvalidInputError: It is not JSON, something else, of another version, or damaged.
    """
    strange: list[str] = []
    try:
        head = json.loads(text, parse_constant=strange.append)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"{source} is not valid JSON: {error}; was it cut short?"
        ) from error
    if not isinstance(head, dict) or head.get("format") != format:
        raise InvalidInputError(f"{source} {otherwise}")
    if head.get("version") != version:
        raise InvalidInputError(
            f"{source} has version {head.get('version')}, not the {version} that this package "
            f"reads; upgrade ecs-plugins, or {again}"
        )
    try:
        found = kind.validate_json(text, strict=True)
    except ValidationError as error:
        raise InvalidInputError(f"{source}: {first_fault(error)}; {again}") from error
    if strange:
        raise InvalidInputError(f"{source}: {strange[0]} is no number; {again}")
    return found


def read_records(path: str | os.PathLike[str], make: Callable[[str, int], T]) -> list[T]:
    """What ``make`` makes of each line of a file, blank ones aside, and of its number.

    Raises:
        StorageError: The file cannot be read.
        InvalidInputError: A line cannot be used; it is named.
    """
    records = []
    # Not splitlines: a JSON string may hold U+2028 as it is.
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        try:
            if line.strip():
                records.append(make(line, number))
        except ValidationError as error:
            raise InvalidInputError(f"{path}:{number}: {first_fault(error)}") from None
        except InvalidInputError as error:
            raise InvalidInputError(f"{path}:{number}: {error}") from error
    return records


def sampled(records: list[T], limit: int | None, seed: int) -> list[T]:
    """A sample of this many records, in their order; all of them without a ``limit``."""
    if limit is not None and limit < 1:
        raise InvalidInputError(f"limit must be at least 1, got {limit}")
    if limit is None or limit >= len(records):
        return records
    return [records[at] for at in sorted(random.Random(seed).sample(range(len(records)), limit))]


def digest(value: object) -> str:
    """SHA-256 of a value as JSON."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def first_fault(error: ValidationError) -> str:
    """The place of the first value that cannot be used, and why."""
    (first, *_) = error.errors(include_url=False)
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else first["msg"]


def private(path: str, flags: int) -> int:
    """The ``opener`` of a file that only its owner may read, because it holds what users say.

    So does one that is there already, with the mode of an earlier version.
    """
    descriptor = os.open(path, flags, 0o600)
    with contextlib.suppress(OSError):  # somebody else's
        os.chmod(path, 0o600)  # noqa: PTH101
    return descriptor


def beside(path: Path, name: str) -> Path:
    """A file of that name in the folder of another; refuses a path that names no file."""
    if not path.name:
        raise StorageError(f"{str(path)!r} names no file; name one")
    return path.with_name(name)


def write_atomically(
    target: str | os.PathLike[str], content: str | bytes | Iterable[bytes]
) -> Path:
    """Write all of a file, or its parts in order, beside ``target``, then replace it.

    It is flushed to disk before, and only its owner may read it.

    Raises:
        StorageError: It cannot be written, for example because the disk is full, or it is a
            database that this process has open.
    """
    path = as_path(target)
    refuse_open_database(path)
    temporary = beside(path, f".{path.name}.{uuid.uuid4().hex}.tmp")
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
