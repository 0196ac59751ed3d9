"""Values as they are stored: JSON, vectors as bytes, checksums of both.

Vectors are little-endian float32. Those in the log, which no search reads, are float16: the
length of the bytes tells. In a file, a CRC-32 of each vector, each text and its metadata reveals a
flipped bit, which neither SQLite nor FAISS would notice. A PostgreSQL server has its own checksums.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import numpy as np

from ecs_plugins.errors import StorageError
from ecs_plugins.memory.types import Matrix, Vector

dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Compact JSON."""

_TYPE = np.dtype("<f4")
_HALF = np.dtype("<f2")

UNCHECKED = -1
"""The checksum of rows on a server, which checks its own pages."""

NO_VECTOR: Vector = np.empty(0, dtype=np.float32)


def pack(vector: Vector | Matrix) -> bytes:
    """Return the bytes of a vector."""
    stored = np.ascontiguousarray(vector, dtype=_TYPE)
    return stored.tobytes()


def packed(vector: Vector) -> tuple[bytes, int]:
    """Return the bytes of a vector, and their checksum."""
    data = pack(vector)
    checksum = zlib.crc32(data)
    return data, checksum


def packed_half(vector: Vector) -> tuple[bytes, int]:
    """Return the bytes of a vector as float16, which moves a cosine by less than .001."""
    data = np.asarray(vector, dtype=_HALF).tobytes()
    checksum = zlib.crc32(data)
    return data, checksum


def has_length(data: bytes, dimension: int) -> bool:
    """Return True if bytes are as long as a vector in float32 or float16."""
    sizes = (_TYPE.itemsize * dimension, _HALF.itemsize * dimension)
    return len(data) in sizes


def vector_in(data: bytes, dimension: int) -> Vector:
    """Return the vector in bytes of either length."""
    if len(data) == _TYPE.itemsize * dimension:
        return np.frombuffer(data, dtype=_TYPE)
    halved = np.frombuffer(data, dtype=_HALF)
    vector = halved.astype(np.float32)
    length = np.linalg.norm(vector)
    whole: Vector = vector / length if length else vector
    return whole


def unpack(data: bytes, checksum: int, dimension: int, what: str) -> Vector:
    """Return the vector in bytes that match their checksum; else raise `StorageError`."""
    is_whole = checksum in (UNCHECKED, zlib.crc32(data))
    if not has_length(data, dimension) or not is_whole:
        raise damaged(what, "vector", "reembed() computes it anew from the text")
    return vector_in(data, dimension)


def check(what: str, part: str, checksum: int, values: Iterable[object]) -> None:
    """Compare the values of several columns with their checksum.

    Raises:
        StorageError: They are not.
    """
    if checksum not in (UNCHECKED, crc_of(values)):
        raise damaged(what, part, "restore a backup, or delete it")


def parsed(stored: str, what: str, part: str) -> Any:
    """Return stored JSON, parsed; raise `StorageError` if it is damaged."""
    try:
        return json.loads(stored)
    except ValueError:
        raise damaged(what, part, "restore a backup, or delete it") from None


def damaged(what: str, part: str, remedy: str) -> StorageError:
    """Return the error for stored content that does not match its checksum."""
    problem = f"the stored {part} of {what} does not match its checksum"
    return StorageError(f"{problem}; {remedy}")


def crc(content: bytes | str) -> int:
    """Return the CRC-32 of bytes, or of a text's UTF-8."""
    data = content.encode() if isinstance(content, str) else content
    return zlib.crc32(data)


def crc_of(values: Iterable[object]) -> int:
    """Return the CRC-32 of the values of several columns."""
    written = map(str, values)
    return crc("\0".join(written))


def digest(*parts: str) -> int:
    """Return a number of 64 bits for texts, from which they cannot be read."""
    content = "\0".join(parts).encode()
    hashed = blake2b(content, digest_size=8)
    return int.from_bytes(hashed.digest(), signed=True)
