"""Conversion of a GGUF file to a float32 copy for transformers, checked against the original.

Reading GGUF takes about twenty seconds each time, so it is converted once to safetensors in
float32: the dequantised Q4_1 values do not survive half precision (float16 moves single
log-probabilities by 0.01 nats, bfloat16 by 0.07). The copy is loaded again and must give a fixed
text the same log-probabilities within 1e-4 nats.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import TYPE_CHECKING

from ecs_plugins.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

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
    differences = [abs(a - b) for a, b in zip(original, copied, strict=True)]
    worst = max(differences)
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
    """Copy the weights into a model that has no quantisation settings."""
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
    """Return the log-probability (nats) of every token but the first, given those before it."""
    import torch

    tokens = torch.tensor([ids])
    with torch.inference_mode():
        logprobs = model(tokens).logits[0, :-1].float().log_softmax(-1)
    picked: list[float] = logprobs.gather(-1, tokens[0, 1:, None])[:, 0].tolist()
    return picked
