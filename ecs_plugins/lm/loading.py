"""Loading of a model and its tokenizer by name, with typed errors.

It trusts as little as possible: safetensors only, no remote code, and no download
for a path. A checkpoint that lacks weights is refused; transformers would fill them with random
numbers and only log a warning.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from ecs_plugins.common.config import Config
from ecs_plugins.common.progress import without_progress_bars
from ecs_plugins.errors import ConfigurationError, ModelError, ModelNotFoundError
from ecs_plugins.lm.devices import resolve_device, resolve_dtype

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class LoadingOptions(Config):
    """Options for loading a model. Hashable and picklable."""

    device: str = Field(
        "auto", description='"auto" (CUDA, else MPS, else CPU) or a torch device, e.g. "cuda:1".'
    )
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = Field(
        "auto",
        description='"auto" is 16 bits on a GPU, and on a CPU float32, right to about 1e-5 nats '
        "per token, or bfloat16 if the CPU multiplies at least 1.5 times as fast in it.",
    )
    revision: str | None = Field(None, description="Branch, tag or commit on the hub.")
    trust_remote_code: bool = Field(False, description="Run code that the checkpoint brings along.")
    allow_download: bool = Field(
        False,
        description="Whether the hub may be asked for what is not on this machine.",
    )

    @property
    def loading(self) -> LoadingOptions:
        """Return the loading settings alone, without the fields of a subclass."""
        return LoadingOptions(**{name: getattr(self, name) for name in LoadingOptions.model_fields})


def directory_of(name_or_path: str) -> Path | None:
    """Return the directory of a path, or None for a name on the hub."""
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
    if name_or_path.endswith(".gguf"):
        raise ConfigurationError(
            f"{name_or_path} is a GGUF file; load it with transformers, "
            "AutoModelForCausalLM.from_pretrained(directory, gguf_file=...), and give it and its "
            "tokenizer to LocalLM(model, tokenizer)"
        )
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


@without_progress_bars()
def load(
    name_or_path: str,
    options: LoadingOptions,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a model in evaluation mode and its tokenizer.

    Raises:
        ModelNotFoundError: It is not on this machine and cannot be had.
        ModelError: It is damaged, incomplete, or not a causal language model.
        ConfigurationError: The device does not exist here.
    """
    from ecs_plugins.lm.bundled import check_weights

    require_directory(name_or_path)
    device = resolve_device(options.device)
    dtype = resolve_dtype(options.dtype, device)
    directory = directory_of(name_or_path)
    if directory is not None:
        check_weights(directory)
        return _load(str(directory), options, device, dtype, local=True)
    try:
        # What is on this machine is used as it is; the hub is asked only for what is missing.
        return _load(name_or_path, options, device, dtype, local=True)
    except ModelNotFoundError:
        if not options.allow_download:
            raise
        return _load(name_or_path, options, device, dtype, local=False)


def _load(
    source: str,
    options: LoadingOptions,
    device: torch.device,
    dtype: torch.dtype,
    *,
    local: bool,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    from transformers import AutoConfig, AutoModelForCausalLM

    common: dict[str, Any] = {
        "revision": options.revision,
        "trust_remote_code": options.trust_remote_code,
        "local_files_only": local,
    }
    common = {key: value for key, value in common.items() if value is not None}
    try:
        config = AutoConfig.from_pretrained(source, **common)
        if getattr(config, "is_encoder_decoder", False):
            raise ModelError(f"{source} is not a causal language model, it has an encoder")
        tokenizer = _tokenizer_of(source, common)
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
    missing = sorted(report["missing_keys"])
    if missing:
        raise ModelError(
            f"the weights of {source} are incomplete: {len(missing)} tensors are missing "
            f"(first: {missing[0]}). Get the model again, or one made for text generation."
        )
    return model.to(device).eval(), tokenizer


def _tokenizer_of(source: str, options: dict[str, Any]) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(source, **options)
    except Exception as error:
        raise ModelNotFoundError(
            f"{source} has no tokenizer that can be read; put the model's tokenizer there with "
            f"tokenizer.save_pretrained, or give both to LocalLM(model, tokenizer) ({_line(error)})"
        ) from error
    return tokenizer


def _line(error: Exception) -> str:
    """Return the message of an error in one line."""
    return " ".join(str(error).split())[:300]


def _typed(source: str, error: Exception) -> ModelError:
    text = _line(error)
    if "Unrecognized configuration class" in str(error):
        return ModelError(
            f"{source} is not a causal language model; use a model made for text generation "
            f"({text})"
        )
    if isinstance(error, FileNotFoundError):
        return ModelError(
            f"{source} is incomplete, a file of its weights is missing ({text}). Get the model "
            "again"
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
