"""From a name to a loaded model and tokenizer: devices, dtypes, safety, and typed errors.

Nothing is trusted that need not be: safetensors only, no remote code, and nothing downloaded
for a path. A checkpoint that lacks weights is refused; transformers would fill them with random
numbers and only log a warning.
"""

from __future__ import annotations

import os
import timeit
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from ecs_plugins.common.config import Config
from ecs_plugins.errors import ConfigurationError, ModelError, ModelNotFoundError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_NOT_CAUSAL = (
    "ForMaskedLM",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForMultipleChoice",
)


class LoadingOptions(Config):
    """How a model is loaded. Hashable and picklable."""

    device: str = Field(
        "auto", description='"auto" (CUDA, else MPS, else CPU) or a torch device, e.g. "cuda:1".'
    )
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = Field(
        "auto",
        description='"auto" is float32 on a CPU, right to about 1e-5 nats per token, and 16 bits '
        "on a GPU.",
    )
    revision: str | None = Field(None, description="Branch, tag or commit on the hub.")
    trust_remote_code: bool = Field(False, description="Run code that the checkpoint brings along.")
    allow_download: bool = Field(
        False, description="Whether the hub may be asked for what is not on this machine."
    )

    @property
    def loading(self) -> LoadingOptions:
        """These settings alone, without those of a subclass."""
        return LoadingOptions(**{name: getattr(self, name) for name in LoadingOptions.model_fields})


def directory_of(name_or_path: str) -> Path | None:
    """The directory meant, or None if the name is one on the hub."""
    path = Path(name_or_path).expanduser()
    looks_like_path = (
        path.is_absolute()
        or name_or_path.startswith((".", "~"))
        or name_or_path.count("/") > 1
        or (os.sep != "/" and os.sep in name_or_path)
    )
    return path if looks_like_path or path.is_dir() else None


def require_directory(name_or_path: str) -> None:
    """Refuse an empty name, and a path that leads to no directory with a ``config.json``."""
    if not name_or_path.strip():
        raise ConfigurationError("a model needs a name or a directory, got an empty text")
    directory = directory_of(name_or_path)
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


def load(
    name_or_path: str, options: LoadingOptions
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a model in evaluation mode and its tokenizer.

    Raises:
        ModelNotFoundError: It is not on this machine and cannot be had.
        ModelError: It is damaged, incomplete, or not a causal language model.
        ConfigurationError: The device does not exist here.
    """
    require_directory(name_or_path)
    device = resolve_device(options.device)
    dtype = resolve_dtype(options.dtype, device)
    if (device.type, options.dtype) == ("cpu", "bfloat16"):
        _warn_of_slow_bfloat16()
    directory = directory_of(name_or_path)
    if directory is not None:
        return _load(str(directory), options, device, dtype, local=True)
    try:
        # What is on this machine is used as it is; the hub is asked only for what is missing.
        return _load(name_or_path, options, device, dtype, local=True)
    except ModelNotFoundError:
        if not options.allow_download:
            raise
        return _load(name_or_path, options, device, dtype, local=False)


@cache
def _warn_of_slow_bfloat16() -> None:
    times = _seconds_of_a_product("bfloat16") / _seconds_of_a_product("float32")
    if times > 2:
        warnings.warn(
            f"this processor takes {times:.0f} times as long for a product in bfloat16 as in "
            "float32: load the model with dtype='auto' or 'float32'",
            RuntimeWarning,
            stacklevel=3,
        )


def _seconds_of_a_product(dtype: str) -> float:
    """The quickest of three products of 256 by 256 numbers, after one that is not counted."""
    import torch

    numbers = torch.ones(256, 256, dtype=getattr(torch, dtype))
    return min(timeit.repeat(lambda: torch.mm(numbers, numbers), number=1, repeat=4)[1:])


def _load(
    source: str, options: LoadingOptions, device: torch.device, dtype: torch.dtype, *, local: bool
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    common: dict[str, Any] = {
        "revision": options.revision,
        "trust_remote_code": options.trust_remote_code,
        "local_files_only": local,
    }
    common = {key: value for key, value in common.items() if value is not None}
    try:
        config = AutoConfig.from_pretrained(source, **common)
        _require_causal(source, config)
        tokenizer = AutoTokenizer.from_pretrained(source, **common)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            source,
            config=config,
            dtype=dtype,
            use_safetensors=True,
            output_loading_info=True,
            **common,
        )
    except ModelError:
        raise
    except Exception as error:  # transformers, safetensors and json each raise their own
        raise _typed(source, error) from error
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


def _typed(source: str, error: Exception) -> ModelError:
    text = " ".join(str(error).split())[:300]
    if "Unrecognized configuration class" in str(error):
        return ModelError(
            f"{source} is not a causal language model; use a model made for text generation "
            f"({text})"
        )
    if "safetensors" in str(error) and isinstance(error, OSError):
        return ModelNotFoundError(
            f"{source} has no safetensors weights; convert it, or load it yourself, which can run "
            f"code that it holds, and give the pair to LocalLM ({text})"
        )
    if directory_of(source) is None and isinstance(error, OSError):
        return ModelNotFoundError(
            f"{source} is not in the local cache and was not downloaded. Check the name, allow "
            "the hub to be asked (allow_download=True), give a directory, or use LocalLM.bundled() "
            f"({text})"
        )
    return ModelError(
        f"{source} could not be loaded; its files are damaged, incomplete or of an unknown kind "
        f"({type(error).__name__}: {text}). Get the model again."
    )


def resolve_device(device: str) -> torch.device:
    """The torch device meant; ``"auto"`` takes CUDA, else MPS, else the CPU."""
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
    """The torch dtype meant; ``"auto"`` is float32 on a CPU and 16 bits on a GPU."""
    import torch

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
