"""Tiny random models of many families, their engines, tokenizers and requests, built in memory.

``FAMILIES`` names the path that each is expected to take. The prompts of the matrix have 60 to 120
tokens: a window of 24 is shorter, one of 200 longer.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import transformers as tf
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from ecs_plugins.lm.base import ScoreRequest, Segment
from ecs_plugins.lm.encoding import encode_request
from ecs_plugins.lm.local import LocalLM
from ecs_plugins.lm.scoring.planner import ScoringEngine
from ecs_plugins.lm.scoring.profile import profile_of
from ecs_plugins.lm.scoring.request import Continuation, TokenRequest
from ecs_plugins.lm.scoring.runner import Runner

VOCABULARY = 384
WINDOW = 256
CORPUS = [
    "Ann moved to Paris in the spring and kept a small garden there.",
    "Bob sells bread, cheese and honey at the market on Sunday.",
    "The train from Rome to Milan was late again because of snow.",
    "Question: Where does Ann live? Answer: in Paris.",
    "Nobody knows why the old lighthouse was painted green twice.",
    "user assistant system im_start im_end s endoftext SEP CLS",
]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_level():
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    train(core, trainers.BpeTrainer, CONTROL, initial_alphabet=alphabet)
    bos, eos, pad = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
    return made(core, bos_token=bos, eos_token=eos, pad_token=pad, chat_template=CHATML)


def train(core, trainer, special, vocab_size=VOCABULARY, **options):
    options |= {"vocab_size": vocab_size, "special_tokens": special, "show_progress": False}
    core.train_from_iterator(CORPUS, trainer(**options))


def made(core, **tokens):
    return tf.PreTrainedTokenizerFast(tokenizer_object=core, **tokens)


def sentencepiece():
    """Unigram: a dummy space before every text, BOS by convention, controls in the vocabulary."""
    core = Tokenizer(models.Unigram())
    core.normalizer = normalizers.NFKC()
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    core.decoder = decoders.Metaspace(prepend_scheme="always")
    special = ["<unk>", "<s>", "</s>", *CONTROL[1:]]
    train(core, trainers.UnigramTrainer, special, vocab_size=200, unk_token="<unk>")
    core.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", core.token_to_id("<s>"))]
    )
    bos, eos, unk = "<s>", "</s>", "<unk>"
    return made(core, bos_token=bos, eos_token=eos, unk_token=unk, chat_template=CHATML)


def wordpiece():
    core = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.decoder = decoders.WordPiece()
    named = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
    }
    special = [*named.values(), *CONTROL[1:]]
    train(core, trainers.WordPieceTrainer, special)
    ends = [(token, core.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=ends
    )
    return made(core, **named, eos_token="<|im_end|>")


TOKENIZERS = {"byte_level": byte_level, "sentencepiece": sentencepiece, "wordpiece": wordpiece}


@functools.cache
def tokenizer(family: str):
    return TOKENIZERS[family]()


CASCADE, MASKED, PADDED, REFERENCE = "cascade", "masked", "padded", "reference"
SHORT, LONG = 24, 200


@dataclass(frozen=True)
class Family:
    build: Callable[[], tf.PreTrainedModel]
    path: str


def family(
    stem: str,
    path: str,
    /,
    *,
    causal: str = "ForCausalLM",
    shape=None,
    **options,
) -> Family:
    settings = (SMALL if shape is None else shape) | options

    def build():
        configuration = getattr(tf, f"{stem}Config")
        architecture = getattr(tf, f"{stem}{causal}")
        return architecture(configuration(**settings))

    return Family(build, path)


SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": WINDOW,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
HEAD = {"head_dim": 8}
IDS = {"vocab_size": VOCABULARY, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
ONE_KIND_OF_HEAD = {
    key: value
    for key, value in SMALL.items()
    if key not in ("intermediate_size", "num_key_value_heads")
}
GPT2 = {**IDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": WINDOW}
OPT = {**ONE_KIND_OF_HEAD, "word_embed_proj_dim": 32, "ffn_dim": 48}
MAMBA = {**IDS, "hidden_size": 32, "state_size": 4, "num_hidden_layers": 2, "time_step_rank": 4}
FULL = "full_attention"


def rope(kind: str, **parameters):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10_000.0, **parameters}}


FACTORS = {
    "short_factor": [1.0, 1.1, 1.2, 1.3],
    "long_factor": [2.0, 2.5, 3.0, 4.0],
}

FAMILIES: dict[str, Family] = {
    "llama": family("Llama", CASCADE),
    "llama_dynamic": family("Llama", CASCADE, **rope("dynamic", factor=2.0)),
    "llama_longrope_beyond": family(
        "Llama",
        REFERENCE,
        **rope("longrope", factor=4.0, original_max_position_embeddings=32, **FACTORS),
    ),
    "qwen2": family("Qwen2", CASCADE),
    "qwen2_window": family(
        "Qwen2", PADDED, use_sliding_window=True, sliding_window=SHORT, max_window_layers=1
    ),
    "qwen3": family("Qwen3", CASCADE, **HEAD),
    "mistral_short_window": family("Mistral", PADDED, sliding_window=SHORT),
    "mistral_long_window": family("Mistral", CASCADE, sliding_window=LONG),
    "phi3": family("Phi3", CASCADE),
    "stablelm": family("StableLm", MASKED),
    "gemma2_short_window": family("Gemma2", PADDED, **HEAD, sliding_window=SHORT),
    "gemma2_long_window": family("Gemma2", MASKED, **HEAD, sliding_window=LONG),
    "lfm2": family("Lfm2", PADDED, layer_types=["conv", FULL], block_auto_adjust_ff_dim=False),
    "gpt2": family("GPT2", CASCADE, causal="LMHeadModel", shape=GPT2),
    "opt": family("OPT", CASCADE, shape=OPT),
    "falcon_alibi": family("Falcon", PADDED, shape=ONE_KIND_OF_HEAD, alibi=True),
    "mamba": family("Mamba", PADDED, shape=MAMBA),
    "deepseek_v3": family(
        "DeepseekV3",
        CASCADE,
        num_key_value_heads=4,
        q_lora_rank=8,
        kv_lora_rank=8,
        qk_rope_head_dim=4,
        qk_nope_head_dim=4,
        v_head_dim=8,
        n_routed_experts=4,
        n_group=1,
        topk_group=1,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        first_k_dense_replace=1,
    ),
}
"""One for each thing that decides between paths; ``test_architectures`` has all the others."""


SHARING = ("llama", "qwen2", "qwen3", "gemma2_long_window", "gpt2", "opt", "phi3")
"""Families that every path serves, but for the soft-capped one, which does not cascade."""
SOFT_CAPPED = "gemma2_long_window"
SHORT_WINDOWS = ("mistral_short_window", "gemma2_short_window")


def seeded(build: Callable[[], tf.PreTrainedModel]) -> tf.PreTrainedModel:
    """A model with weights large enough that log-probabilities spread by a nat."""
    torch.manual_seed(7)
    built = build().eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for weights in built.parameters():
            noise = torch.randn(weights.shape, generator=generator)
            if weights.ndim > 1:
                weights.copy_(noise * 0.3)
            else:
                weights.add_(noise * 0.1)
    return built


@functools.cache
def model(name: str) -> tf.PreTrainedModel:
    return seeded(FAMILIES[name].build)


def engine_of(made: tf.PreTrainedModel, name: str = "tiny") -> ScoringEngine:
    runner = Runner(made, name)
    return ScoringEngine(runner, profile_of(made, runner.takes, 10**30))


def engine(name: str = "llama") -> ScoringEngine:
    return engine_of(model(name), name)


def local(
    name: str = "llama",
    /,
    tokens: str = "byte_level",
    **options,
) -> LocalLM:
    return LocalLM(model(name), tokenizer(tokens), **options)


def ids(seed: int, number: int) -> tuple[int, ...]:
    draw = np.random.default_rng(seed)
    return tuple(draw.integers(4, 380, size=number).tolist())


def token_request(
    prefix=(),
    passages: int = 3,
    answers: int = 1,
    seed: int = 0,
) -> TokenRequest:
    """An empty candidate, others of 5, 8, 11, ... tokens, and answers of six tokens and more."""
    candidates = [ids(seed + 100 + n, 5 + 3 * n) for n in range(passages)]
    tails = [ids(seed + 50 + n, 6 + n) for n in range(answers)]
    continuations = tuple(Continuation(tail, ((2, 6),)) for tail in tails)
    return TokenRequest(prefix, ((), *candidates), continuations)


ASKED = TokenRequest(
    prefix=ids(3, 50),
    candidates=(
        (),
        ids(1, 30),
        ids(1, 30)[:20] + ids(4, 5),
        ids(5, 11),
    ),
    continuations=(
        Continuation(
            ids(2, 20) + ids(6, 6),
            ((20, 26),),
        ),
        Continuation(
            ids(2, 20) + ids(7, 3),
            ((5, 8), (20, 23)),
        ),
    ),
)
"""Prompts of 73 to 106 tokens; together more than the window."""


def logits_of(made: tf.PreTrainedModel, asked: TokenRequest):
    """One forward per candidate and continuation: its key, its scored tokens, rows of logits."""
    takes = inspect.signature(made.forward).parameters
    fixed = {"use_cache": False} if "use_cache" in takes else {}
    for k, candidate in enumerate(asked.candidates):
        for m, continuation in enumerate(asked.continuations):
            whole = asked.prefix + candidate + continuation.ids
            first = len(whole) - len(continuation.ids)
            scored = []
            for start, end in continuation.spans:
                scored.extend(range(first + start, first + end))
            with torch.inference_mode():
                logits = made(torch.tensor([whole]), **fixed).logits[0]
            tokens = [whole[index] for index in scored]
            predicting = [index - 1 for index in scored]
            yield (k, m), tokens, logits[predicting]


PREFIX = "The market was closed, and nobody knew why the old lighthouse was painted twice.\n"
PASSAGES = (
    "Ann moved to Paris in the spring.",
    "Bob sells bread, cheese and honey at the market on Sunday.",
    "Ann moved to Rome.",
    "Ann moved to Paris in the spring.",
    "snow",
)
LONG = " in Paris with Bob and honey, because the old train was late again in Rome"


def request(prefix=PREFIX, passages=PASSAGES, answers=(" Paris", LONG), **options) -> ScoreRequest:
    before = (Segment(prefix),) if prefix else ()
    candidates = [(Segment(passage),) for passage in passages]
    head = (
        Segment("\nQuestion:", trusted=True),
        Segment(" Where does Ann live?", scored=True),
        Segment("\nAnswer:", trusted=True),
    )
    continuations = [(*head, Segment(answer, scored=True)) for answer in answers]
    return ScoreRequest(before, ((), *candidates), tuple(continuations), **options)


def encoded(asked: ScoreRequest, tokens: str = "byte_level") -> TokenRequest:
    return encode_request(local(tokens=tokens)._load().encoder, asked)
