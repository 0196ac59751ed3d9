"""Tiny random configurations of many model families, and the path each is expected to take.

Every entry is ``name: (class stem, options, expected path)`` with ``SMALL`` as common shape.
The prompts of the matrix have 60 to 120 tokens: a window of 24 is shorter, one of 200 longer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import transformers as tf

VOCABULARY = 160
WINDOW = 256
CASCADE, MASKED, PADDED, REFERENCE = "cascade", "masked", "padded", "reference"
SHORT, LONG = 24, 200


@dataclass(frozen=True)
class Family:
    build: Callable[[], tf.PreTrainedModel]
    path: str


def family(
    stem: str, path: str, /, *, causal: str = "ForCausalLM", shape=None, **options
) -> Family:
    def build():
        config = getattr(tf, f"{stem}Config")(**{**(SMALL if shape is None else shape), **options})
        return getattr(tf, f"{stem}{causal}")(config)

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
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
MANY_EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
MAMBA = {**IDS, "hidden_size": 32, "state_size": 4, "num_hidden_layers": 2, "time_step_rank": 4}
FULL, SLIDING = "full_attention", "sliding_attention"


def rope(kind: str, **parameters):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10_000.0, **parameters}}


def gemma3(window: int, path: str) -> Family:
    options = {"sliding_window": window, "layer_types": [SLIDING, FULL]}
    return Family(
        lambda: tf.Gemma3ForCausalLM(tf.Gemma3TextConfig(**SMALL, **HEAD, **options)), path
    )


FACTORS = {"short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [2.0, 2.5, 3.0, 4.0]}

FAMILIES: dict[str, Family] = {
    "llama": family("Llama", CASCADE),
    "llama_tied_bias": family("Llama", CASCADE, tie_word_embeddings=True, attention_bias=True),
    "llama_linear": family("Llama", CASCADE, **rope("linear", factor=2.0)),
    "llama_llama3": family(
        "Llama",
        CASCADE,
        **rope(
            "llama3",
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=64,
        ),
    ),
    "llama_yarn": family(
        "Llama", CASCADE, **rope("yarn", factor=4.0, original_max_position_embeddings=64)
    ),
    "llama_dynamic": family("Llama", CASCADE, **rope("dynamic", factor=2.0)),
    "llama_longrope_beyond": family(
        "Llama",
        REFERENCE,
        **rope("longrope", factor=4.0, original_max_position_embeddings=32, **FACTORS),
    ),
    "llama_longrope_within": family(
        "Llama",
        CASCADE,
        **rope("longrope", factor=1.3, original_max_position_embeddings=200, **FACTORS),
    ),
    "phi3_longrope_beyond": family(
        "Phi3",
        REFERENCE,
        original_max_position_embeddings=32,
        **rope("longrope", original_max_position_embeddings=32, **FACTORS),
    ),
    "qwen2": family("Qwen2", CASCADE),
    "qwen2_window": family(
        "Qwen2", PADDED, use_sliding_window=True, sliding_window=SHORT, max_window_layers=1
    ),
    "qwen3": family("Qwen3", CASCADE, **HEAD),
    "qwen2_moe": family("Qwen2Moe", CASCADE, **MANY_EXPERTS),
    "qwen3_moe": family("Qwen3Moe", CASCADE, **HEAD, **MANY_EXPERTS),
    "qwen3_next": family(
        "Qwen3Next",
        PADDED,
        **HEAD,
        **MANY_EXPERTS,
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        layer_types=["linear_attention", FULL],
    ),
    "mistral": family("Mistral", CASCADE, sliding_window=None),
    "mistral_short_window": family("Mistral", PADDED, sliding_window=SHORT),
    "mistral_long_window": family("Mistral", CASCADE, sliding_window=LONG),
    "mixtral": family("Mixtral", CASCADE, **EXPERTS),
    "phi": family("Phi", CASCADE),
    "phi3": family("Phi3", CASCADE),
    "olmo2": family("Olmo2", CASCADE),
    "olmo3": family("Olmo3", PADDED, sliding_window=SHORT),
    "smollm3": family("SmolLM3", CASCADE),
    "granite": family("Granite", CASCADE, logits_scaling=2.0, residual_multiplier=0.5),
    "stablelm": family("StableLm", MASKED),
    "starcoder2": family("Starcoder2", CASCADE),
    "starcoder2_window": family("Starcoder2", PADDED, sliding_window=SHORT),
    "gemma": family("Gemma", CASCADE, **HEAD),
    "gemma2_short_window": family("Gemma2", PADDED, **HEAD, sliding_window=SHORT),
    "gemma2_long_window": family("Gemma2", MASKED, **HEAD, sliding_window=LONG),
    "gemma3_short_window": gemma3(SHORT, PADDED),
    "gemma3_long_window": gemma3(LONG, CASCADE),
    "gpt_oss_short_window": family(
        "GptOss", PADDED, **HEAD, **EXPERTS, sliding_window=SHORT, **rope("default")
    ),
    "gpt_oss_long_window": family(
        "GptOss", MASKED, **HEAD, **EXPERTS, sliding_window=LONG, **rope("default")
    ),
    "cohere": family("Cohere", CASCADE, logit_scale=0.25),
    "cohere2": family(
        "Cohere2",
        PADDED,
        sliding_window=SHORT,
        **HEAD,
        logit_scale=0.25,
        layer_types=[SLIDING, FULL],
    ),
    "lfm2": family("Lfm2", PADDED, layer_types=["conv", FULL], block_auto_adjust_ff_dim=False),
    "gpt_neox": family("GPTNeoX", CASCADE, shape={**ONE_KIND_OF_HEAD, "intermediate_size": 48}),
    "gpt_neo": family(
        "GPTNeo",
        PADDED,
        shape={
            **IDS,
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "max_position_embeddings": WINDOW,
        },
        attention_types=[[["global", "local"], 1]],
        window_size=SHORT,
    ),
    "gpt2": family("GPT2", CASCADE, causal="LMHeadModel", shape=GPT2),
    "gptj": family("GPTJ", MASKED, shape=GPT2, rotary_dim=4),
    "gpt_bigcode": family("GPTBigCode", CASCADE, shape=GPT2),
    "codegen": family("CodeGen", MASKED, shape=GPT2, rotary_dim=4),
    "opt": family("OPT", CASCADE, shape=OPT),
    "bloom": family("Bloom", PADDED, shape={**IDS, "hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "falcon_rope": family("Falcon", MASKED, shape=ONE_KIND_OF_HEAD, alibi=False),
    "falcon_alibi": family("Falcon", PADDED, shape=ONE_KIND_OF_HEAD, alibi=True),
    "mpt": family(
        "Mpt",
        PADDED,
        shape={**IDS, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": WINDOW},
    ),
    "mamba": family("Mamba", PADDED, shape=MAMBA),
    "falcon_mamba": family("FalconMamba", PADDED, shape=MAMBA),
    "mamba2": family(
        "Mamba2",
        PADDED,
        shape={
            **IDS,
            "hidden_size": 32,
            "state_size": 8,
            "num_hidden_layers": 2,
            "num_heads": 8,
            "head_dim": 8,
            "n_groups": 2,
            "chunk_size": 16,
        },
    ),
    "recurrent_gemma": family(
        "RecurrentGemma", PADDED, lru_width=32, attention_window_size=SHORT, num_hidden_layers=3
    ),
    "jamba": family(
        "Jamba",
        PADDED,
        num_experts=2,
        num_experts_per_tok=1,
        attn_layer_period=2,
        attn_layer_offset=1,
        mamba_d_state=4,
        mamba_dt_rank=4,
        use_mamba_kernels=False,
    ),
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
    "llama4_chunked": Family(
        lambda: tf.Llama4ForCausalLM(
            tf.Llama4TextConfig(
                **SMALL,
                **HEAD,
                attention_chunk_size=SHORT,
                num_local_experts=2,
                num_experts_per_tok=1,
                intermediate_size_mlp=48,
            )
        ),
        PADDED,
    ),
    "glm4": family("Glm4", CASCADE, **HEAD),
    "nemotron": family("Nemotron", MASKED),
    "exaone4": family("Exaone4", PADDED, sliding_window=SHORT, layer_types=[SLIDING, FULL]),
    "persimmon": family("Persimmon", CASCADE),
    "biogpt": family("BioGpt", MASKED, shape={**OPT, "intermediate_size": 48}),
    "xglm": family(
        "XGLM",
        MASKED,
        shape={
            **IDS,
            "d_model": 32,
            "ffn_dim": 48,
            "num_layers": 2,
            "attention_heads": 4,
            "max_position_embeddings": WINDOW,
        },
    ),
    "granite_moe": family("GraniteMoe", CASCADE, **EXPERTS),
}


def built(name: str) -> tf.PreTrainedModel:
    """A seeded model with weights large enough that log-probabilities spread by a nat."""
    torch.manual_seed(11)
    model = FAMILIES[name].build().eval()
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                parameter.copy_(noise * 0.3)
            else:
                parameter.add_(noise * 0.1)
    return model
