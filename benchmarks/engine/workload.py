"""The settings, models and requests of the benchmark.

Random weights cost what trained ones cost. They are seeded, drawn with a standard deviation of
0.05 (0.02 in wide models) so that log-probabilities spread by about a nat, and rounded to bfloat16
as published checkpoints are. They are drawn where the model is, so that a large one never passes
through the processor's memory; those of a GPU are therefore not those of a CPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from benchmarks.engine.concurrency import WORDS
from benchmarks.engine.target import CPU, Target
from ecs_plugins.errors import InvalidInputError
from ecs_plugins.lm.scoring.request import Continuation, Ids, TokenRequest

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

VOCABULARY = 49152
_WEIGHT_SPREAD = 0.05
_WIDE, _WIDE_SPREAD = 1024, 0.02
"""At this width and beyond, products add up to more."""
_WINDOW = 16384

SHAPES: dict[str, dict[str, int]] = {
    "llama38": {
        "num_hidden_layers": 12,
        "hidden_size": 384,
        "intermediate_size": 1024,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
    },
    "llama135": {
        "num_hidden_layers": 30,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
    },
    "small": {  # 8 KiB of keys and values per token
        "num_hidden_layers": 4,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "vocab_size": 2048,
    },
    "wide4": {  # as wide as Llama 3.2 1B, a quarter as deep
        "num_hidden_layers": 4,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
    "llama8b": {
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "tie_word_embeddings": False,
    },
}
BUNDLED = "bundled"


@dataclass(frozen=True, slots=True)
class Setting:
    """One scoring task.

    Attributes:
        model: ``"bundled"`` or a key of `SHAPES`.
        context: Tokens of the shared prefix C.
        candidates: Passages K.
        passage: Shortest and longest passage, in tokens.
        question: Tokens of each question.
        answer: Scored tokens behind each question.
        questions: Questions M over the same passages.
    """

    model: str
    context: int
    candidates: int
    passage: tuple[int, int] = (30, 200)
    question: int = 40
    answer: int = 10
    questions: int = 1

    @property
    def label(self) -> str:
        """A short name."""
        many = f", M={self.questions}" if self.questions > 1 else ""
        return f"{self.model}, C={self.context}, K={self.candidates}{many}"


HEADLINE = (
    Setting("llama38", 1000, 24),
    Setting("llama135", 1000, 24),
    Setting("llama38", 0, 24),
    Setting("llama38", 4000, 8, (60, 160)),
    Setting("wide4", 1000, 8),
)
"""The settings that the peers are compared on."""


def request_of(setting: Setting, seed: int, vocabulary: int = VOCABULARY) -> TokenRequest:
    """A request of random ids; one token stands in for an empty context."""
    draw = np.random.default_rng(seed)

    def ids(number: int) -> Ids:
        return tuple(int(i) for i in draw.integers(300, vocabulary, size=number))

    prefix = ids(max(1, setting.context))
    low, high = setting.passage
    lengths = np.linspace(low, high, setting.candidates).round().astype(int)
    draw.shuffle(lengths)
    behind = setting.question
    return TokenRequest(
        prefix,
        tuple(ids(int(length)) for length in lengths),
        tuple(
            Continuation(ids(behind + setting.answer), ((behind, behind + setting.answer),))
            for _ in range(setting.questions)
        ),
        setting.label,
    )


def stratified(request: TokenRequest, number: int) -> list[int]:
    """Candidates spread evenly over the lengths, so that a part costs like the whole."""
    order = sorted(range(len(request.candidates)), key=lambda k: len(request.candidates[k]))
    number = min(number, len(order))
    return [order[int((n + 0.5) * len(order) / number)] for n in range(number)]


def only(request: TokenRequest, candidates: list[int]) -> TokenRequest:
    """Return the request with some of its candidates."""
    return replace(request, candidates=tuple(request.candidates[k] for k in candidates))


def model_of(name: str, seed: int = 0, target: Target = CPU) -> PreTrainedModel:
    """The bundled model, or a random one of a known shape.

    Args:
        name: ``"bundled"`` or a key of `SHAPES`.
        seed: Of random weights.
        target: Where it is made, and in what dtype.

    Raises:
        InvalidInputError: There is no such shape.
        ModelNotFoundError: The bundled model is not installed.
    """
    import transformers

    if name == BUNDLED:
        from ecs_plugins.lm.bundled import bundled_path

        loaded: PreTrainedModel = transformers.AutoModelForCausalLM.from_pretrained(
            bundled_path(), dtype=target.dtype
        )
        moved: Any = loaded
        return cast("PreTrainedModel", moved.to(target.device))
    if name not in SHAPES:
        raise InvalidInputError(f"no model {name!r}; choose from {', '.join((BUNDLED, *SHAPES))}")
    options: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "max_position_embeddings": _WINDOW,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        **SHAPES[name],
    }
    config = transformers.LlamaConfig(**options)
    with target.device:
        made: Any = transformers.AutoModelForCausalLM
        model: PreTrainedModel = made.from_config(config, dtype=target.dtype)
    model.train(False)
    spread = _WIDE_SPREAD if config.hidden_size >= _WIDE else _WEIGHT_SPREAD
    generator = torch.Generator(target.device).manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, device=target.device)
            noise *= spread
            drawn = noise if parameter.ndim > 1 else 1 + noise
            parameter.copy_(drawn.bfloat16())
    return model


def tokenizer_of(size: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token per word of random texts, for scorers that need one."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    made: Any = PreTrainedTokenizerFast
    known = [*(f"w{n}" for n in range(4)), *WORDS, *(f"w{n}" for n in range(4, size))][:size]
    inner = Tokenizer(models.WordLevel({w: n for n, w in enumerate(known)}, unk_token="w3"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer: PreTrainedTokenizerFast = made(
        tokenizer_object=inner,
        pad_token="w0",
        bos_token="w1",
        eos_token="w2",
        unk_token="w3",
    )
    return tokenizer
