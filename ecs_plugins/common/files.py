"""UTF-8 text files: clear errors on reading, atomic writes."""

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
    """Database that this process has open."""

    def owns(self, path: Path) -> bool:
        """Return True if the file belongs to the database."""
        ...


open_databases: weakref.WeakSet[OpenDatabase] = weakref.WeakSet()
"""Open databases of this process."""


def refuse_open_database(path: str | os.PathLike[str]) -> None:
    """Raise `StorageError` if this process has the file, or its log, open as a database.

    Closing any descriptor of such a file would drop the database's locks.
    """
    if is_open_database(path):
        raise StorageError(
            f"{path} belongs to a database that is open; close it first, or name another file"
        )


def is_open_database(path: str | os.PathLike[str]) -> bool:
    """Return True if this process has the file open as a database or its log."""
    file = Path(path)
    return any(database.owns(file) for database in list(open_databases))


def as_path(path: str | os.PathLike[str]) -> Path:
    """Return a valid file path.

    Raises:
        StorageError: The path is no path, is empty, or has NUL or lone surrogates.
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
    """Return the text of a UTF-8 file without byte order mark. Errors name it by ``what``.

    Raises:
        StorageError: The file cannot be read, or this process has it open as a database.
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
    """Return the statements of a package's SQL file, without comments."""
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
    """Parse and check JSON text of a given format and version.

    Errors begin with ``source``. ``otherwise`` is the message for another format, ``again`` the
    advice.

    Raises:
        InvalidInputError: The text is no JSON, or has another format, another version or a fault.
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
    """Return ``make(line, number)`` for each line of a file that is not blank.

    Raises:
        StorageError: The file cannot be read.
        InvalidInputError: A line is invalid; the message has its number.
    """
    records = []
    # splitlines would also split at U+2028, which JSON strings may contain.
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
    """Return a random sample of ``limit`` records in their order; all if it is None."""
    if limit is not None and limit < 1:
        raise InvalidInputError(f"limit must be at least 1, got {limit}")
    if limit is None or limit >= len(records):
        return records
    return [records[at] for at in sorted(random.Random(seed).sample(range(len(records)), limit))]


def digest(value: object) -> str:
    """Return the SHA-256 of a value's JSON."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def tensors_digest(path: Path) -> str:
    """Return the SHA-256 of the tensors of a safetensors file: names, types, shapes and numbers.

    Files that different versions of a library write have the same digest.

    Raises:
        ValueError: It is no safetensors file.
        OSError: It cannot be read.
    """
    import numpy as np
    from safetensors import SafetensorError, safe_open

    total = hashlib.sha256()
    try:
        with safe_open(path, "numpy") as file:
            for name in sorted(file.keys()):
                part = file.get_slice(name)
                total.update(f"{name} {part.get_dtype()} {part.get_shape()}\n".encode())
                total.update(np.ascontiguousarray(file.get_tensor(name)).data)
    except SafetensorError as error:
        raise ValueError(f"{path} is no safetensors file: {error}") from error
    return total.hexdigest()


def first_fault(error: ValidationError) -> str:
    """Return the place of the first invalid value and the reason."""
    (first, *_) = error.errors(include_url=False)
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else first["msg"]


def private(path: str, flags: int) -> int:
    """Open a file; a new one may be read by its owner only. Used as ``opener`` of `open`."""
    return os.open(path, flags, 0o600)


def beside(path: Path, name: str) -> Path:
    """Return the path of a file in the same folder as ``path``.

    Raises:
        StorageError: ``path`` names no file.
    """
    if not path.name:
        raise StorageError(f"{str(path)!r} names no file; name one")
    return path.with_name(name)


def write_atomically(
    target: str | os.PathLike[str], content: str | bytes | Iterable[bytes]
) -> Path:
    """Write a file next to ``target``, flush it to disk, then replace the target.

    Only the owner may read the file. A link stays a link; devices and pipes are written to.

    Raises:
        StorageError: The file cannot be written, for example because the disk is full, or this
            process has it open as a database.
    """
    path = as_path(target)
    refuse_open_database(path)
    place = Path(os.path.realpath(path))
    temporary = beside(place, f".{place.name}.{uuid.uuid4().hex}.tmp")
    content = content.encode() if isinstance(content, str) else content
    parts = [content] if isinstance(content, bytes) else content
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            with path.open("wb") as stream:
                stream.writelines(parts)
            return path
        place.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "xb", opener=private) as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(place)
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}; free some space or name another "
            "place. What was there before is untouched"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return path
