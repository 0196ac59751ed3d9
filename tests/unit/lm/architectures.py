"""A tiny random model of every causal architecture that the installed transformers has.

Sizes are told by the names of a configuration's fields, so that an architecture of a new release is
built without a line here; ``OVERRIDES`` holds what a name does not tell.
"""

import copy
import dataclasses
import re

import torch
import transformers as tf
from tiny_models import seeded
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

WINDOW = 256
LARGEST = 3_000_000
_NAMES_OF_SIZE = {
    384: """vocab_size vocab_size_per_layer_input ngram_vocab_size_base pronunciation_vocab_size
        shape_vocab_size unpadded_vocab_size""",
    256: """max_position_embeddings n_positions n_ctx max_seq_len context_length model_max_length
        max_target_positions""",
    64: "mamba_d_ssm",
    48: """intermediate_size ffn_dim d_ff dim_ff dff d_inner ffn_hidden_size encoder_ffn_dim n_inner
        decoder_ffn_dim intermediate_size_mlp feed_forward_size shared_intermediate_size
        dense_intermediate_size""",
    32: """hidden_size d_model n_embd emb_dim embedding_dim embedding_size input_embedding_size
        output_embedding_size word_embed_proj_dim lru_width hidden_size_per_layer_input
        attention_hidden_size ple_embed_dim pronunciation_embed_dim shape_embed_dim""",
    16: """moe_intermediate_size shared_expert_intermediate_size shared_experts_intermediate_size
        expert_ffn_hidden_size moe_shared_expert_intermediate_size index_head_dim""",
    8: """head_dim d_head attention_head_size dim_head kv_lora_rank q_lora_rank v_head_dim
        kv_channels qk_rope_head_dim linear_key_head_dim linear_value_head_dim linear_head_dim
        swa_head_dim d_rel o_lora_rank hc_lowrank gated_norm_rank laurel_rank mamba_d_head
        mamba_head_dim mamba_headdim mamba_n_heads mamba_num_heads global_head_dim""",
    4: """num_hidden_layers n_layer num_layers n_layers encoder_layers decoder_layers num_blocks
        num_encoder_layers num_decoder_layers num_attention_heads n_head num_heads n_heads
        encoder_attention_heads decoder_attention_heads attention_heads num_encoder_attention_heads
        num_decoder_attention_heads linear_num_heads linear_num_value_heads index_n_heads
        swa_num_attention_heads qk_nope_head_dim rotary_dim state_size mamba_d_state ssm_state_size
        time_step_rank mamba_dt_rank router_hidden_size adapter_rank num_experts n_routed_experts
        num_local_experts moe_num_experts zero_expert_num""",
    2: """num_key_value_heads num_kv_heads linear_num_key_heads swa_num_key_value_heads moe_topk
        num_experts_per_tok num_experts_per_token""",
    1: "n_group topk_group n_groups mamba_n_groups num_expert_group",
}
SIZES = {name: size for size, names in _NAMES_OF_SIZE.items() for name in names.split()}
FIXED = {
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "decoder_start_token_id": 1,
    "is_decoder": True,
    "use_mamba_kernels": False,
}
LENGTH = re.compile(r"window|local_att|chunk|original_max|floor|index_topk|extent|distance|block_s")
NO_LENGTH = re.compile(r"feed_forward|layers")
OVERRIDES = {
    "cohere": {"logit_scale": 1.0},
    "cohere2": {"logit_scale": 1.0},
    "bamba": {"attn_layer_indices": [1, 3]},
    "dots1": {"n_shared_experts": 1},
    "ernie4_5_moe": {"moe_k": 2},
    "gemma3n_text": {"num_kv_shared_layers": 0},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "mamba2": {"num_heads": 8},
    "xmod": {"default_language": "en_XX"},
    "zaya": {"num_experts_per_tok": 1},
}


def options_of(cls, threshold: int) -> dict:
    """Arguments of a small configuration: every length that it names is ``threshold``."""
    defaults = cls().to_dict()
    out = {}
    for field in dataclasses.fields(cls):
        value = option_of(field.name, defaults.get(field.name), threshold)
        if value is not None:
            out[field.name] = value
    if "kv_lora_rank" in out:
        out["num_key_value_heads"] = 4
    return out


def option_of(name: str, default, threshold: int):
    """The value of one field; None if its default will do."""
    if name in SIZES:
        return SIZES[name]
    if name in FIXED:
        return FIXED[name]
    if name == "rope_parameters" and "original_max" in str(default):
        return with_lengths(default, threshold)
    if name == "layer_types" and default:
        kinds = list(dict.fromkeys(default))[:4]
        return (4 * kinds)[:4]
    names_a_length = LENGTH.search(name) and not NO_LENGTH.search(name)
    return threshold if names_a_length and type(default) is int else None


def with_lengths(parameters: dict, threshold: int) -> dict:
    """Parameters in which every length, however deep, is ``threshold``."""
    out = {}
    for key, value in parameters.items():
        if isinstance(value, dict):
            out[key] = with_lengths(value, threshold)
        else:
            out[key] = threshold if LENGTH.search(key) and value else value
    return out


def build(kind: str, threshold: int, **options) -> tf.PreTrainedModel:
    """A model of an architecture; ValueError if it would not be a tiny one."""
    cls, made = CONFIG_MAPPING[kind], getattr(tf, NAMES[kind])
    settings = options_of(cls, threshold)
    config = cls(**{**settings, **OVERRIDES.get(kind, {}), **options})
    with torch.device("meta"):
        weights = made(copy.deepcopy(config)).parameters()
        number = sum(each.numel() for each in weights)
    if number > LARGEST:
        raise ValueError(f"it has {number} weights")
    return seeded(lambda: made(config))
