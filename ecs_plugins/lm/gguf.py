"""Conversion of a GGUF file to a float32 copy for transformers.

Reading GGUF takes about twenty seconds each time, so it is converted once to safetensors in
float32: the dequantised Q4_1 values do not survive half precision (float16 moves single
log-probabilities by 0.01 nats, bfloat16 by 0.07).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ecs_plugins.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def convert_gguf(gguf: Path, target: Path) -> None:
    """Convert a GGUF file to float32 safetensors and a tokenizer.

    Raises:
        ModelError: The file cannot be read.
    """
    model, tokenizer = read_gguf(gguf)
    for attribute in ("quantization_config", "_model_name_or_path"):
        if hasattr(model.config, attribute):
            delattr(model.config, attribute)
    plain = type(model)(model.config)  # a model that was read from GGUF cannot be saved
    plain.load_state_dict(model.state_dict())
    plain.save_pretrained(target)
    tokenizer.save_pretrained(target)


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
            gguf.parent,
            gguf_file=gguf.name,
            dtype=torch.float32,
        )
    except Exception as error:
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
