"""Where installed models live, and what counts as installed.

A model is a directory with a manifest that names every file, its size and its SHA-256. The
directory is built beside its final place, written through to the disk, and appears there by one
rename; so a directory under its final name is complete, whatever was interrupted and when.
What an interrupted run leaves behind has another name and is cleared by the next one.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import platformdirs
from filelock import FileLock
from pydantic import BaseModel

from ecs_plugins.errors import EcsPluginsError, ModelError, StorageError

CACHE_VARIABLE = "ECS_PLUGINS_CACHE"
MANIFEST = "manifest.json"

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def cache_dir() -> Path:
    """The cache directory: ``$ECS_PLUGINS_CACHE``, else the platform's place for one user."""
    override = os.environ.get(CACHE_VARIABLE)
    if override:
        return Path(override).expanduser().absolute()
    return platformdirs.user_cache_path("ecs-plugins", appauthor=False)


class StoredFile(BaseModel):
    """One file of an installed model."""

    size: int
    sha256: str


class Manifest(BaseModel):
    """What was installed.

    Attributes:
        format: Raised when what an installation holds changes; older ones are installed anew.
        name: The model's name.
        source: Where it came from; ``"package"`` is the package index.
        files: Name -> size and SHA-256 of every file but the manifest itself.
        details: What the source and the conversion recorded (versions, digests, scores).
    """

    format: Literal[1] = 1
    name: str
    source: str
    files: dict[str, StoredFile]
    details: dict[str, Any] = {}

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.files.values())

    @classmethod
    def read(cls, directory: Path) -> Manifest:
        """Read the manifest of an installed model.

        Raises:
            ModelError: It is missing, unreadable, or of another format.
        """
        try:
            return cls.model_validate_json((directory / MANIFEST).read_bytes())
        except (OSError, ValueError) as error:
            raise ModelError(f"{MANIFEST} is missing, unreadable or of another format") from error


def find_damage(directory: Path, manifest: Manifest, *, hashes: bool) -> str | None:
    """The first thing wrong with the files of an installed model, or None.

    Args:
        directory: The model's directory.
        manifest: Its manifest.
        hashes: Whether to read every file (about a second per GB) rather than compare sizes.
    """
    for name, expected in manifest.files.items():
        path = directory / name
        try:
            size = path.stat().st_size
            if size != expected.size:
                return f"{name} has {size} bytes instead of {expected.size}"
            if hashes and sha256_of(path) != expected.sha256:
                return f"the SHA-256 of {name} is not the recorded one"
        except OSError as error:
            return f"{name}: {error.strerror}"
    return None


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def workplace(target: Path, needed: int) -> Iterator[Path]:
    """A new directory beside ``target``, deleted at the end, for the one who may change it.

    A second process waits for the first. What interrupted runs left is deleted.

    Raises:
        StorageError: The place cannot be written, or ``needed`` bytes are not free. The message
            says what to do.
    """
    with _storage_errors(target.parent, needed):
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.parent / f".{target.name}.lock"):
            for path in target.parent.glob(f".{target.name}.*.part"):
                shutil.rmtree(path, ignore_errors=True)
            _require_space(target.parent, needed)
            work = target.parent / f".{target.name}.{uuid.uuid4().hex}.part"
            work.mkdir()
            try:
                yield work
            finally:
                shutil.rmtree(work, ignore_errors=True)


def publish(work: Path, target: Path, source: str, details: Mapping[str, object]) -> None:
    """Make ``work/model`` the installed model ``target``; ``work`` is its `workplace`."""
    built = work / "model"
    files = {
        path.relative_to(built).as_posix(): StoredFile(
            size=path.stat().st_size, sha256=sha256_of(path)
        )
        for path in sorted(built.rglob("*"))
        if path.is_file()
    }
    manifest = Manifest(name=target.name, source=source, files=files, details=dict(details))
    (built / MANIFEST).write_text(manifest.model_dump_json(indent=1), encoding="utf-8")
    readable = built.stat().st_mode & 0o666  # some writers make private files; follow the umask
    for path in built.rglob("*"):
        if path.is_file():
            path.chmod(readable)
        _flush(path)
    _flush(built)
    discard(work, target)
    built.rename(target)
    _flush(target.parent)


def discard(work: Path, target: Path) -> None:
    """Move ``target`` into its `workplace`: no half of it is ever seen under its name."""
    if target.exists():
        target.rename(work / "old")


def _flush(path: Path) -> None:
    if os.name == "nt" and path.is_dir():  # Windows opens no directories
        return
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _require_space(directory: Path, needed: int) -> None:
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise StorageError(
            f"{megabytes(needed)} are needed in {directory}, but only {megabytes(free)} are free. "
            f"Free some space, or set {CACHE_VARIABLE} to a directory on another disk"
        )


@contextmanager
def _storage_errors(directory: Path, needed: int) -> Iterator[None]:
    """Turn what the operating system refuses into a `StorageError` that says what to do."""
    try:
        yield
    except EcsPluginsError:
        raise
    except Exception as error:
        if is_disk_full(error):
            raise StorageError(
                f"the disk of {directory} is full: {megabytes(needed)} are needed there. Nothing "
                f"was installed. Free some space, or set {CACHE_VARIABLE} to another disk"
            ) from error
        if isinstance(error, OSError):
            raise StorageError(
                f"cannot use {directory}: {error.strerror or error}. "
                f"Set {CACHE_VARIABLE} to a directory that you can write to"
            ) from error
        raise


def is_disk_full(error: BaseException) -> bool:
    """Whether an error, or one that it came from, means that no byte more could be written."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in _FULL:
            return True
        # Native writers (safetensors) and subprocesses (pip) report it as text only.
        if any(os.strerror(code) in str(seen) for code in _FULL):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def megabytes(count: int) -> str:
    """A byte count for people."""
    return f"{count / 1e6:.0f} MB"
