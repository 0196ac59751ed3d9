"""From a name to a loaded model and tokenizer: devices, dtypes, safety, and typed errors.

Nothing is trusted that need not be: safetensors only, no remote code, and nothing downloaded
for a path. A checkpoint that lacks weights is refused; transformers would fill them with random
numbers and only log a warning.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ecs_plugins.errors import ConfigurationError, ModelError, ModelNotFoundError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_DTYPES = ("auto", "float32", "float16", "bfloat16")
_NOT_CAUSAL = (
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMultipleChoice",
)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Everything that says which model is loaded, and how. Hashable and picklable.

    Attributes:
        name_or_path: A directory, or a name on the hub.
        device: ``"auto"`` (CUDA, else MPS, else CPU) or a torch device such as ``"cuda:1"``.
        dtype: ``"auto"`` (float32 on CPU, bfloat16 or float16 on a GPU), ``"float32"``,
            ``"float16"`` or ``"bfloat16"``.
        revision: A branch, tag or commit on the hub.
        trust_remote_code: Run code that the checkpoint brings along.
        allow_pickle: Accept weights that are not safetensors; unpickling can run code.
        local_files_only: Never download, even what is named on the hub.
        attn_implementation: Passed to transformers; its own choice if None.

    Raises:
        ConfigurationError: An empty name or an unknown dtype.
    """

    name_or_path: str
    device: str = "auto"
    dtype: str = "auto"
    revision: str | None = None
    trust_remote_code: bool = False
    allow_pickle: bool = False
    local_files_only: bool = False
    attn_implementation: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "name_or_path", os.fspath(self.name_or_path))
        if not self.name_or_path.strip():
            raise ConfigurationError("a model needs a name or a directory, got an empty text")
        _require_known(self.dtype)

    @property
    def directory(self) -> Path | None:
        """The directory meant, or None if the name is one on the hub."""
        path = Path(self.name_or_path).expanduser()
        looks_like_path = (
            path.is_absolute()
            or self.name_or_path.startswith((".", "~"))
            or self.name_or_path.count("/") > 1
            or (os.sep != "/" and os.sep in self.name_or_path)
        )
        return path if looks_like_path or path.is_dir() else None

    def require_directory(self) -> None:
        """Refuse a path that leads to no model directory.

        Raises:
            ModelNotFoundError: The path is not a directory with a ``config.json``.
        """
        directory = self.directory
        if directory is None:
            return
        if not directory.is_dir():
            raise ModelNotFoundError(
                f"there is no model directory at {directory}; check the path, or give a name on "
                'the hub such as "organisation/model"'
            )
        if not (directory / "config.json").is_file():
            raise ModelNotFoundError(
                f"{directory} holds no config.json, so it is not a transformers model directory"
            )


def load(spec: ModelSpec) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a model in evaluation mode and its tokenizer.

    Raises:
        ModelNotFoundError: It is not on this machine and cannot be had.
        ModelError: It is damaged, incomplete, or not a causal language model.
        ConfigurationError: The device does not exist here.
    """
    spec.require_directory()
    device = resolve_device(spec.device)
    dtype = resolve_dtype(spec.dtype, device)
    if spec.directory is not None:
        return _load(spec, device, dtype, str(spec.directory), local=True)
    try:
        # What is on this machine is used as it is; the hub is asked only for what is missing.
        return _load(spec, device, dtype, spec.name_or_path, local=True)
    except ModelNotFoundError:
        if spec.local_files_only:
            raise
        return _load(spec, device, dtype, spec.name_or_path, local=False)


def _load(
    spec: ModelSpec, device: torch.device, dtype: torch.dtype, source: str, *, local: bool
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    common: dict[str, Any] = {
        "revision": spec.revision,
        "trust_remote_code": spec.trust_remote_code,
        "local_files_only": local,
    }
    common = {key: value for key, value in common.items() if value is not None}
    try:
        config = AutoConfig.from_pretrained(source, **common)
        _require_causal(source, config)
        tokenizer = AutoTokenizer.from_pretrained(source, **common)
        optional = {"attn_implementation": spec.attn_implementation}
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            source,
            config=config,
            dtype=dtype,
            use_safetensors=None if spec.allow_pickle else True,
            output_loading_info=True,
            **{key: value for key, value in optional.items() if value is not None},
            **common,
        )
    except ModelError:
        raise
    except Exception as error:  # transformers, safetensors and json each raise their own
        raise _typed(spec, source, error) from error
    model, report = loaded
    if missing := sorted(report["missing_keys"]):
        raise ModelError(
            f"the weights of {source} are incomplete: {len(missing)} tensors are missing "
            f"(first: {missing[0]}). Get the model again, or one made for text generation."
        )
    return model.to(device).eval(), tokenizer


def _require_causal(source: str, config: Any) -> None:
    named = [str(name) for name in (getattr(config, "architectures", None) or ())]
    other = named and all(name.endswith(_NOT_CAUSAL) for name in named)
    if other or getattr(config, "is_encoder_decoder", False):
        raise ModelError(
            f"{source} is not a causal language model ({', '.join(named) or config.model_type}); "
            "use a model made for text generation"
        )


def _typed(spec: ModelSpec, source: str, error: Exception) -> ModelError:
    text = " ".join(str(error).split())[:300]
    if "Unrecognized configuration class" in str(error):
        return ModelError(
            f"{source} is not a causal language model; use a model made for text generation "
            f"({text})"
        )
    if "safetensors" in str(error) and isinstance(error, OSError) and not spec.allow_pickle:
        return ModelNotFoundError(
            f"{source} has no safetensors weights; convert it, or accept pickled weights, which "
            f"can run code, with allow_pickle=True ({text})"
        )
    if spec.directory is None and isinstance(error, OSError):
        return ModelNotFoundError(
            f"{source} is not in the local cache and could not be downloaded. Check the name, "
            "connect once to the hub, give a directory, or use LocalLM.bundled() "
            f"({text})"
        )
    return ModelError(
        f"{source} could not be loaded; its files are damaged, incomplete or of an unknown kind "
        f"({type(error).__name__}: {text}). Get the model again."
    )


def resolve_device(device: str) -> torch.device:
    """The torch device meant; ``"auto"`` takes CUDA, else MPS, else the CPU.

    Raises:
        ConfigurationError: There is no such device here.
    """
    import torch

    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if device == "auto":
        return torch.device("cuda" if cuda else "mps" if mps else "cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError as error:
        raise ConfigurationError(
            f"unknown device {device!r}; use 'auto', 'cpu', 'cuda' or 'mps'"
        ) from error
    if (resolved.type == "cuda" and not cuda) or (resolved.type == "mps" and not mps):
        raise ConfigurationError(f"device {device!r} is not available here; use device='auto'")
    if resolved.type == "cuda" and (resolved.index or 0) >= (number := torch.cuda.device_count()):
        raise ConfigurationError(
            f"device {device!r} is not available here; there are {number}, counted from 0"
        )
    return resolved


def resolve_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """The torch dtype meant; ``"auto"`` is float32 on a CPU and 16 bits on a GPU.

    Raises:
        ConfigurationError: It has another name than those of `ModelSpec`.
    """
    import torch

    _require_known(dtype)
    if dtype == "auto":
        if device.type == "cpu":
            return torch.float32
        if device.type == "cuda":
            with torch.cuda.device(device):  # one card may know it and another not
                if torch.cuda.is_bf16_supported(including_emulation=False):
                    return torch.bfloat16
        return torch.float16
    named: torch.dtype = getattr(torch, dtype)
    return named


def _require_known(dtype: str) -> None:
    if dtype not in _DTYPES:
        raise ConfigurationError(f"dtype must be one of {_DTYPES}, got {dtype!r}")
