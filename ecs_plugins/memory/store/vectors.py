"""Vectors and texts on disk: packed, with checksums.

Vectors are stored as little-endian float32 bytes. A CRC-32 beside each vector and each text
tells a flipped bit from a stored value, which neither SQLite nor FAISS would notice.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from ecs_plugins.errors import StorageError
from ecs_plugins.memory.types import Matrix, Vector

_TYPE = np.dtype("<f4")


def pack(vector: Vector | Matrix) -> bytes:
    """The bytes of a vector, or of the rows of a matrix one after the other."""
    return np.ascontiguousarray(vector, dtype=_TYPE).tobytes()


def pack_all(vectors: Matrix) -> list[memoryview]:
    """The bytes of each row, not copied."""
    if not vectors.size:
        return []
    rows = np.ascontiguousarray(vectors, dtype=_TYPE)
    width, content = rows.strides[0], rows.data.cast("B")
    return [content[start : start + width] for start in range(0, len(content), width)]


def unpack(data: bytes, checksum: int, dimension: int, what: str) -> Vector:
    """The vector behind bytes.

    Raises:
        StorageError: The bytes are not those that were written.
    """
    if len(data) != _TYPE.itemsize * dimension or zlib.crc32(data) != checksum:
        raise damaged(what, "vector", "reembed() computes it anew from the text")
    return np.frombuffer(data, dtype=_TYPE)


def damaged(what: str, part: str, remedy: str) -> StorageError:
    """The error for stored content that does not match its checksum."""
    return StorageError(f"the stored {part} of {what} does not match its checksum; {remedy}")


def crc(content: bytes | str) -> int:
    """CRC-32 of bytes, or of a text's UTF-8."""
    return zlib.crc32(content.encode() if isinstance(content, str) else content)


def mean_direction(vectors: Sequence[Vector]) -> Vector:
    """The direction of the mean; of the first vector, should the mean vanish."""
    mean = np.mean(np.stack(vectors), axis=0, dtype=np.float64)
    length = float(np.linalg.norm(mean))
    if length < 1e-12:
        return vectors[0]
    return np.asarray(mean / length, dtype=np.float32)
