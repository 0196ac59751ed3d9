"""What rows hold: packed vectors, JSON, checksums.

Vectors are stored as little-endian float32 bytes. A CRC-32 beside each vector and each text tells
a flipped bit from a stored value, which neither SQLite nor FAISS would notice.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields

import numpy as np

from ecs_plugins.errors import StorageError
from ecs_plugins.memory.types import Evidence, Matrix, Vector

Metadata = Mapping[str, object]

_TYPE = np.dtype("<f4")


def pack(vector: Vector | Matrix) -> bytes:
    """The bytes of a vector."""
    return np.ascontiguousarray(vector, dtype=_TYPE).tobytes()


def unpack(data: bytes, checksum: int, dimension: int, what: str) -> Vector:
    """The vector behind bytes.

    Raises:
        StorageError: The bytes are not those that were written.
    """
    if len(data) != _TYPE.itemsize * dimension or zlib.crc32(data) != checksum:
        raise damaged(what, "vector", "reembed() computes it anew from the text")
    return np.frombuffer(data, dtype=_TYPE)


def checked_text(text: str, checksum: int, what: str) -> str:
    """A stored text.

    Raises:
        StorageError: It is not the one that was written.
    """
    if crc(text) != checksum:
        raise damaged(what, "text", "restore a backup, or delete it")
    return text


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


dump = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Compact JSON."""


_DEFAULTS = tuple((each.name, each.default) for each in fields(Evidence))


def dump_evidence(evidence: Evidence) -> str:
    """The JSON of evidence without what has its default, which most of it has."""
    return dump(
        {
            name: value
            for name, default in _DEFAULTS
            if (value := getattr(evidence, name)) != default or default is MISSING
        }
    )


def shared(left: Metadata, right: Metadata) -> dict[str, object]:
    """What two sets of metadata agree on: the metadata of an item that merges both."""
    return {key: value for key, value in left.items() if key in right and right[key] == value}


def earliest(*times: float | None) -> float | None:
    """The first of several expiries; None is never."""
    return min((time for time in times if time is not None), default=None)
