"""Tiny random models and tokenizers, built in memory."""

from __future__ import annotations

import functools

import pytest
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
    core.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=CONTROL,
            initial_alphabet=alphabet,
            show_progress=False,
        ),
    )
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHATML,
    )


def sentencepiece():
    """Unigram: a dummy space before every text, BOS by convention, controls in the vocabulary."""
    core = Tokenizer(models.Unigram())
    core.normalizer = normalizers.NFKC()
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    core.decoder = decoders.Metaspace(prepend_scheme="always")
    core.train_from_iterator(
        CORPUS,
        trainers.UnigramTrainer(
            vocab_size=200,
            special_tokens=["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"],
            unk_token="<unk>",
            show_progress=False,
        ),
    )
    core.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", core.token_to_id("<s>"))]
    )
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        chat_template=CHATML,
    )


def wordpiece():
    core = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.decoder = decoders.WordPiece()
    core.train_from_iterator(
        CORPUS,
        trainers.WordPieceTrainer(
            vocab_size=VOCABULARY,
            special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "<|im_start|>", "<|im_end|>"],
            show_progress=False,
        ),
    )
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[("[CLS]", core.token_to_id("[CLS]")), ("[SEP]", core.token_to_id("[SEP]"))],
    )
    return tf.PreTrainedTokenizerFast(
        tokenizer_object=core,
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        eos_token="<|im_end|>",
    )


TOKENIZERS = {"byte_level": byte_level, "sentencepiece": sentencepiece, "wordpiece": wordpiece}


@functools.cache
def tokenizer(family: str):
    return TOKENIZERS[family]()


SHAPE = {
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
HEADS = {"head_dim": 8}
OPT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "word_embed_proj_dim": 32,
    "ffn_dim": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": WINDOW,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
GPT2 = {
    "vocab_size": VOCABULARY,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": WINDOW,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SHARING = {
    "llama": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**SHAPE)),
    "qwen2": lambda: tf.Qwen2ForCausalLM(tf.Qwen2Config(**SHAPE)),
    "qwen3": lambda: tf.Qwen3ForCausalLM(tf.Qwen3Config(**SHAPE, **HEADS)),
    "gemma2": lambda: tf.Gemma2ForCausalLM(tf.Gemma2Config(**SHAPE, **HEADS)),
    "gpt2": lambda: tf.GPT2LMHeadModel(tf.GPT2Config(**GPT2)),
    "opt": lambda: tf.OPTForCausalLM(tf.OPTConfig(**OPT)),
    "phi3": lambda: tf.Phi3ForCausalLM(tf.Phi3Config(**SHAPE)),
}
SLIDING = {
    "mistral_window": lambda: tf.MistralForCausalLM(tf.MistralConfig(**SHAPE, sliding_window=12)),
    "gemma2_window": lambda: tf.Gemma2ForCausalLM(
        tf.Gemma2Config(**SHAPE, **HEADS, sliding_window=12)
    ),
}
FAMILIES = {**SHARING, **SLIDING}
QUICK = ("llama", "gemma2", "gpt2", "mistral_window")
"""One family of each kind of attention and position; the others are among the slow tests."""


def case(family, *more):
    """A family, and more parameters, of a test; slow unless it is a quick one."""
    return pytest.param(family, *more, marks=() if family in QUICK else pytest.mark.slow)


@functools.cache
def model(family: str):
    """A seeded model with weights large enough that log-probabilities spread by a nat."""
    torch.manual_seed(7)
    built = FAMILIES[family]().eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in built.parameters():
            scale = 0.3 if parameter.ndim > 1 else 0.1
            noise = torch.randn(parameter.shape, generator=generator) * scale
            if parameter.ndim > 1:
                parameter.copy_(noise)
            else:
                parameter.add_(noise)
    return built
